"""Schemas of operators of ONNX Runtime beside the standard, of which language models are made.

ONNX knows nothing of them: what the builder needs is written here, after the runtime's own
definitions (``get_all_operator_schema`` of onnxruntime 1.31).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import onnx
import onnx_ir as ir
from onnx.defs import OpSchema

from flow2onnx.dtypes import float32
from flow2onnx.errors import ShapeError
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dtype_of, rank_of, sizes_of

__all__ = [
    "AFTER_SOFTMAX",
    "CONTRIB",
    "CONTRIB_DOMAIN",
    "contrib_definition",
    "contrib_types",
    "shown_to_checker",
]

CONTRIB_DOMAIN = "com.microsoft"
AFTER_SOFTMAX = 2  # of qk_output: GroupQueryAttention gives the weights of its keys

_Shape = Sequence[int | str | None]
_Shapes = Callable[[ir.Node], list[_Shape]]
_REAL = ("tensor(float)", "tensor(float16)", "tensor(bfloat16)", "tensor(double)")
_BYTES = ("tensor(uint8)", "tensor(uint4)", "tensor(int4)")
_WHOLE = ("tensor(int32)", "tensor(int64)")


@dataclass(frozen=True, kw_only=True)
class _Operator:
    """One operator: its inputs and outputs as ``name:type``, those after `required` optional.

    `attributes` are ``name:TYPE``, `shapes` gives the shapes of the outputs of a node.
    """

    inputs: str
    outputs: str
    attributes: str = ""
    required: int
    shapes: _Shapes


def _as_first(node: ir.Node) -> list[_Shape]:
    """Every output in the shape of the first input."""
    return [_shape(node, 0)] * len(node.outputs)


def _shape(node: ir.Node, place: int) -> _Shape:
    value = node.inputs[place]
    if value is None or value.shape is None:
        raise ShapeError(f"{node.op_type}: the shape of input {place} is not known")
    return sizes_of(value)


def _normalisation_shapes(node: ir.Node) -> list[_Shape]:
    """The result, and the statistics of each row."""
    shape = list(_shape(node, 0))
    axis = attribute(node, "axis", -1) % len(shape)
    return [shape, [*shape[:axis], *[1] * (len(shape) - axis)]]


def _skip_normalisation_shapes(node: ir.Node) -> list[_Shape]:
    """The result, mean and deviation of each row, and the sum that is normalised."""
    shape = list(_shape(node, 0))
    row = [*shape[:-1], 1]
    return [shape, row, row, shape]


def _product_shapes(node: ir.Node) -> list[_Shape]:
    return [[*_shape(node, 0)[:-1], int(attribute(node, "N"))]]


def _gather_shapes(node: ir.Node) -> list[_Shape]:
    """Rows of a quantised table; two numbers of 4 bits lie in a byte."""
    data, indices = list(_shape(node, 0)), _shape(node, 1)
    source = node.inputs[0]
    assert source is not None, "a table is there"
    if dtype_of(source).name == "uint8" and isinstance(data[-1], int):
        data[-1] *= 8 // int(attribute(node, "bits", 4))
    axis = int(attribute(node, "gather_axis", 0)) % len(data)
    return [[*data[:axis], *indices, *data[axis + 1 :]]]


def _grouped_attention(node: ir.Node) -> list[_Shape]:
    """The shapes of what is attended to, of the keys and values so far, and of their weights."""
    images, rows, width = _shape(node, 0)
    heads, shared = attribute(node, "num_heads"), attribute(node, "kv_num_heads")
    is_packed = node.inputs[1] is None
    if not isinstance(width, int):
        raise ShapeError(f"{node.op_type}: the width of the queries is not known")
    size = width // (heads + 2 * shared if is_packed else heads)
    past = node.inputs[3] if len(node.inputs) > 3 else None
    cache: _Shape = [images, shared, rows if past is None else None, size]
    return [[images, rows, heads * size], cache, cache, [images, heads, rows, cache[2]]]


def _multi_head_attention(node: ir.Node) -> list[_Shape]:
    query = _shape(node, 0)
    images, rows = query[:2]
    if len(query) == 5:  # (image, row, head, 3, size)
        count, size = query[2], query[4]
        if not (isinstance(count, int) and isinstance(size, int)):
            raise ShapeError(f"{node.op_type}: the width of the queries is not known")
        return [[images, rows, count * size]]
    value = node.inputs[2] if len(node.inputs) > 2 else None
    if value is None:
        return [[images, rows, query[2]]]
    if rank_of(value) == 4:  # (image, head, row, size)
        count, size = sizes_of(value)[1], sizes_of(value)[3]
        width = count * size if isinstance(count, int) and isinstance(size, int) else None
        return [[images, rows, width]]
    return [[images, rows, sizes_of(value)[2]]]


_EXPERTS = (
    "activation_alpha:FLOAT activation_beta:FLOAT activation_type:STRING k:INT "
    "normalize_routing_weights:INT swiglu_fusion:INT swiglu_limit:FLOAT use_sparse_mixer:INT"
)
_SKIP_OUTPUTS = "output:T mean:U inv_std_var:U input_skip_bias_sum:T"

# By the name of the operator, with the domain before it where it has one.
CONTRIB: Mapping[str, _Operator] = {
    # of the runtime's own, and yet without a domain
    "SimplifiedLayerNormalization": _Operator(
        inputs="X:T scale:T", outputs="Y:T inv_std_var:U", required=2,
        attributes="axis:INT epsilon:FLOAT stash_type:INT", shapes=_normalisation_shapes,
    ),
    "com.microsoft::SkipSimplifiedLayerNormalization": _Operator(
        inputs="input:T skip:T gamma:T bias:T", outputs=_SKIP_OUTPUTS, required=3,
        attributes="epsilon:FLOAT", shapes=_skip_normalisation_shapes,
    ),
    "com.microsoft::SkipLayerNormalization": _Operator(
        inputs="input:T skip:T gamma:T beta:T bias:T", outputs=_SKIP_OUTPUTS, required=3,
        attributes="epsilon:FLOAT", shapes=_skip_normalisation_shapes,
    ),
    "com.microsoft::MatMulNBits": _Operator(
        inputs="A:T1 B:T2 scales:T1 zero_points:T3 g_idx:T4 bias:T1", outputs="Y:T1", required=3,
        attributes="K:INT N:INT accuracy_level:INT bits:INT block_size:INT weight_prepacked:INT",
        shapes=_product_shapes,
    ),
    "com.microsoft::GatherBlockQuantized": _Operator(
        inputs="data:T1 indices:Tind scales:T2 zero_points:T1", outputs="output:T2", required=3,
        attributes="bits:INT block_size:INT gather_axis:INT quantize_axis:INT",
        shapes=_gather_shapes,
    ),
    "com.microsoft::GroupQueryAttention": _Operator(
        inputs="query:T key:T value:T past_key:T past_value:T seqlens_k:M total_sequence_length:M "
        "cos_cache:T sin_cache:T position_ids:P attention_bias:T head_sink:T k_scale:S v_scale:S "
        "q_norm_weight:T k_norm_weight:T",
        outputs="output:T present_key:T present_value:T output_qk:T", required=7,
        attributes="causal:INT do_rotary:INT k_quant_type:STRING kv_cache_bit_width:INT "
        "kv_num_heads:INT local_window_size:INT num_heads:INT qk_norm_epsilon:FLOAT qk_output:INT "
        "rotary_interleaved:INT scale:FLOAT sliding_window_cache:INT smooth_softmax:INT "
        "softcap:FLOAT v_quant_type:STRING",
        shapes=_grouped_attention,
    ),
    "com.microsoft::MultiHeadAttention": _Operator(
        inputs="query:T key:T value:T bias:T key_padding_mask:M attention_bias:T past_key:T "
        "past_value:T past_sequence_length:M cache_indirection:M",
        outputs="output:T", required=1,
        attributes="mask_filter_value:FLOAT num_heads:INT scale:FLOAT unidirectional:INT",
        shapes=_multi_head_attention,
    ),
    "com.microsoft::RotaryEmbedding": _Operator(
        inputs="input:T position_ids:M cos_cache:T sin_cache:T", outputs="output:T", required=4,
        attributes="interleaved:INT is_packed_batching:INT num_heads:INT rotary_embedding_dim:INT "
        "scale:FLOAT",
        shapes=_as_first,
    ),
    "com.microsoft::Gelu": _Operator(inputs="X:T", outputs="Y:T", required=1, shapes=_as_first),
    "com.microsoft::BiasGelu": _Operator(
        inputs="A:T B:T", outputs="C:T", required=2, shapes=_as_first
    ),
    "com.microsoft::FastGelu": _Operator(
        inputs="X:T bias:T", outputs="Y:T", required=1, shapes=_as_first
    ),
    "com.microsoft::QuickGelu": _Operator(
        inputs="X:T", outputs="Y:T", required=1, attributes="alpha:FLOAT", shapes=_as_first
    ),
    "com.microsoft::MoE": _Operator(
        inputs="input:T router_probs:T fc1_experts_weights:T fc1_experts_bias:T "
        "fc2_experts_weights:T fc2_experts_bias:T fc3_experts_weights:T fc3_experts_bias:T",
        outputs="output:T", required=5, attributes=_EXPERTS, shapes=_as_first,
    ),
    "com.microsoft::QMoE": _Operator(
        inputs="input:T router_probs:T fc1_experts_weights:T1 fc1_scales:T2 fc1_experts_bias:T "
        "fc2_experts_weights:T1 fc2_scales:T2 fc2_experts_bias:T fc3_experts_weights:T1 "
        "fc3_scales:T2 fc3_experts_bias:T fc1_zero_points:T1 fc2_zero_points:T1 "
        "fc3_zero_points:T1 router_weights:T fc1_global_scale:S fc2_global_scale:S "
        "fc1_act_scale:S fc2_act_scale:S fc1_act_block_scale:T2 fc2_act_block_scale:T2",
        outputs="output:T", required=7, shapes=_as_first,
        attributes=f"{_EXPERTS} accuracy_level:INT block_size:INT expert_weight_bits:INT "
        "fc1_expert_weight_bits:INT fc2_expert_weight_bits:INT fc3_expert_weight_bits:INT "
        "quant_type:STRING weights_prepacked:INT",
    ),
}  # fmt: skip

_TYPES = {
    "T": _REAL, "T1": _REAL, "S": _REAL, "U": _REAL, "T3": ("tensor(uint8)", *_REAL),
    "M": _WHOLE, "P": _WHOLE, "Tind": _WHOLE, "T4": _WHOLE,
}  # fmt: skip
_TABLE_TYPES = {"T1": _BYTES, "T2": _REAL}  # of those that name them the other way round
_TABLES = ("GatherBlockQuantized", "QMoE")


def contrib_definition(name: str) -> OpSchema:
    """The schema of an operator of `CONTRIB` in ONNX's own form."""
    operator, (domain, _, op_type) = CONTRIB[name], name.rpartition("::")[::1]
    option = OpSchema.FormalParameterOption

    def parameters(text: str, required: int) -> list[OpSchema.FormalParameter]:
        pairs = [part.split(":") for part in text.split()]
        return [
            OpSchema.FormalParameter(n, t, param_option=option.Single if i < required else
                                     option.Optional)
            for i, (n, t) in enumerate(pairs)
        ]  # fmt: skip

    texts = f"{operator.inputs} {operator.outputs}".split()
    variables = dict.fromkeys(text.split(":")[1] for text in texts)
    is_table = op_type in _TABLES
    allowed = {**_TYPES, "T2": _BYTES, **(_TABLE_TYPES if is_table else {})}
    return OpSchema(
        op_type, domain, 1, "",
        inputs=parameters(operator.inputs, operator.required),
        outputs=parameters(operator.outputs, 1),
        type_constraints=[(v, list(allowed[v]), "") for v in variables],
        attributes=[
            OpSchema.Attribute(n, getattr(OpSchema.AttrType, t), required=False)
            for n, t in (part.split(":") for part in operator.attributes.split())
        ],
    )  # fmt: skip


def contrib_types(name: str, node: ir.Node) -> dict[str, onnx.TypeProto]:
    """The types of the outputs of a node of an operator of `CONTRIB`, by the outputs' names."""
    needed, given = CONTRIB[name].required, sum(v is not None for v in node.inputs)
    if len(node.inputs) < needed:
        raise ShapeError(
            f"{node.op_type} reads {needed} values or more, and {node.name} has {given}",
            hint="the model is not valid: no runtime opens it; export it again",
        )
    first = node.inputs[2] if name.endswith("::GatherBlockQuantized") else node.inputs[0]
    assert first is not None, f"{name} reads something"
    own = dtype_of(first).code
    rows = [part.split(":")[1] for part in CONTRIB[name].outputs.split()]
    shapes = CONTRIB[name].shapes(node)
    return {
        str(value.name): onnx.helper.make_tensor_type_proto(
            float32.code if kind == "U" else own, list(shape)
        )
        for value, kind, shape in zip(node.outputs, rows, shapes, strict=False)
    }


@contextmanager
def shown_to_checker(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model as ONNX's checker accepts it: what no standard has stands in another domain.

    The checker takes any operator of a domain that it does not know.
    """
    moved = [n for n in model.graph.node if not n.domain and n.op_type in CONTRIB]
    is_new = bool(moved) and all(o.domain != CONTRIB_DOMAIN for o in model.opset_import)
    if is_new:
        model.opset_import.append(onnx.helper.make_opsetid(CONTRIB_DOMAIN, 1))
    for node in moved:
        node.domain = CONTRIB_DOMAIN
    try:
        yield model
    finally:
        for node in moved:
            node.domain = ""
        if is_new:
            del model.opset_import[-1]
