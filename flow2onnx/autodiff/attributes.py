"""The attributes that the gradient of each operator honours; a node with another is refused.

A newer opset may give an operator an attribute that changes what it computes: its gradient here
would be that of another function. Operators that the standard's own body stands for need no row, as
the body is that of the opset.
"""

from collections.abc import Mapping

import onnx_ir as ir

from flow2onnx.graph.nodes import operator_name
from flow2onnx.graph.schemas import schema

__all__ = ["HONOURED", "unknown_attribute"]

_REDUCTION = "keepdims noop_with_empty_axes"
_POOL = "auto_pad ceil_mode dilations kernel_shape pads strides"
_RECURRENT = "activation_alpha activation_beta activations clip direction hidden_size layout"
_EXPERTS = (
    "activation_alpha activation_beta activation_type k normalize_routing_weights swiglu_fusion "
    "swiglu_limit use_sparse_mixer"
)

# By operator with a rule or an expansion; one that is not here has none.
HONOURED: Mapping[str, frozenset[str]] = {
    op_type: frozenset(names.split())
    for op_type, names in {
        "AffineGrid": "align_corners",
        "Attention": "is_causal kv_num_heads left_window_size q_num_heads qk_matmul_output_mode "
        "right_window_size scale softcap softmax_precision",
        "AveragePool": f"{_POOL} count_include_pad",
        "BatchNormalization": "epsilon momentum training_mode",
        "Cast": "round_mode saturate to",
        "CastLike": "round_mode saturate",
        "Col2Im": "dilations pads strides",
        "Compress": "axis",
        "Concat": "axis",
        "ConcatFromSequence": "axis new_axis",
        "Conv": "auto_pad dilations group kernel_shape pads strides",
        "ConvTranspose": "auto_pad dilations group kernel_shape output_padding output_shape pads "
        "strides",
        "CumProd": "exclusive reverse",
        "CumSum": "exclusive reverse",
        "DFT": "axis inverse onesided",
        "DeformConv": "dilations group kernel_shape offset_group pads strides",
        "DepthToSpace": "blocksize mode",
        "DequantizeLinear": "axis block_size output_dtype",
        "Dropout": "seed",
        "Einsum": "equation",
        "Elu": "alpha",
        "Flatten": "axis",
        "GRU": f"{_RECURRENT} linear_before_reset",
        "Gather": "axis",
        "GatherElements": "axis",
        "GatherND": "batch_dims",
        "Gelu": "approximate",
        "Gemm": "alpha beta transA transB",
        "GlobalLpPool": "p",
        "GridSample": "align_corners mode padding_mode",
        "GroupNormalization": "epsilon num_groups stash_type",
        "HardSigmoid": "alpha beta",
        "Hardmax": "axis",
        "If": "else_branch then_branch",
        "InstanceNormalization": "epsilon",
        "LRN": "alpha beta bias size",
        "LSTM": f"{_RECURRENT} input_forget",
        "LayerNormalization": "axis epsilon stash_type",
        "LeakyRelu": "alpha",
        "LogSoftmax": "axis",
        "Loop": "body",
        "LpNormalization": "axis p",
        "LpPool": f"{_POOL} p",
        "MaxPool": f"{_POOL} storage_order",
        "MaxRoiPool": "pooled_shape spatial_scale",
        "MaxUnpool": "kernel_shape pads strides",
        "MeanVarianceNormalization": "axes",
        "Mod": "fmod",
        "OneHot": "axis",
        "Pad": "mode",
        "QuantizeLinear": "axis block_size output_dtype precision saturate",
        "RMSNormalization": "axis epsilon stash_type",
        "RNN": _RECURRENT,
        "ReduceL1": _REDUCTION,
        "ReduceL2": _REDUCTION,
        "ReduceLogSum": _REDUCTION,
        "ReduceLogSumExp": _REDUCTION,
        "ReduceMax": _REDUCTION,
        "ReduceMean": _REDUCTION,
        "ReduceMin": _REDUCTION,
        "ReduceProd": _REDUCTION,
        "ReduceSum": _REDUCTION,
        "ReduceSumSquare": _REDUCTION,
        "Reshape": "allowzero",
        "Resize": "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
        "extrapolation_value keep_aspect_ratio_policy mode nearest_mode",
        "ReverseSequence": "batch_axis time_axis",
        "RoiAlign": "coordinate_transformation_mode mode output_height output_width sampling_ratio "
        "spatial_scale",
        "RotaryEmbedding": "interleaved num_heads rotary_embedding_dim",
        "STFT": "onesided",
        "Scan": "body num_scan_inputs scan_input_axes scan_input_directions scan_output_axes "
        "scan_output_directions",
        "ScatterElements": "axis reduction",
        "ScatterND": "reduction",
        "Selu": "alpha gamma",
        "Softmax": "axis",
        "SpaceToDepth": "blocksize mode",
        "Split": "axis num_outputs",
        "TensorScatter": "axis mode",
        "TopK": "axis largest sorted",
        "Transpose": "perm",
        "Trilu": "upper",
        "Upsample": "mode",
        "SimplifiedLayerNormalization": "axis epsilon stash_type",
        "com.microsoft::SkipSimplifiedLayerNormalization": "epsilon",
        "com.microsoft::SkipLayerNormalization": "epsilon",
        "com.microsoft::MatMulNBits": "K N accuracy_level bits block_size weight_prepacked",
        "com.microsoft::GatherBlockQuantized": "bits block_size gather_axis quantize_axis",
        "com.microsoft::GroupQueryAttention": "causal do_rotary kv_num_heads local_window_size "
        "num_heads qk_output rotary_interleaved scale smooth_softmax softcap",
        "com.microsoft::MultiHeadAttention": "mask_filter_value num_heads scale unidirectional",
        "com.microsoft::RotaryEmbedding": "interleaved num_heads rotary_embedding_dim scale",
        "com.microsoft::QuickGelu": "alpha",
        "com.microsoft::MoE": _EXPERTS,
        "com.microsoft::QMoE": f"{_EXPERTS} accuracy_level block_size expert_weight_bits "
        "quant_type weights_prepacked",
    }.items()
}


def unknown_attribute(node: ir.Node, opset: int) -> str | None:
    """An attribute of a node, not at its default, that its gradient would not honour."""
    known = HONOURED.get(operator_name(node), frozenset())
    for name, given in node.attributes.items():
        if name not in known and not _is_default(node, name, given, opset):
            return name
    return None


def _is_default(node: ir.Node, name: str, given: ir.Attr, opset: int) -> bool:
    declared = schema(operator_name(node), opset).definition.attributes.get(name)
    if declared is None or not declared.default_value.name:
        return False
    default = ir.serde.deserialize_attribute(declared.default_value)
    return bool(default.type == given.type and default.value == given.value)
