"""OneFlow's operator types, which `flow.user_op_builder` names, as operators of ours.

A row says which of our operators does the same, under which names its inputs come, and what each
attribute is called there, "" if it says nothing new. Attributes that mean more than their name are
translated by a function.
"""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from types import MappingProxyType
from typing import Any

from flow2onnx.ops import user_ops
from flow2onnx.optim import loss_scale
from flow2onnx.trace.registry import operator

__all__ = ["OP_TYPES", "OpType"]

Attributes = dict[str, Any]


@dataclass(frozen=True)
class OpType:
    """One operator type: `operator` on the inputs in order, with attributes under our names.

    An input may come under several names, as releases changed them, and `optional` ones not at
    all; with `lists` it is a list of blobs. Inputs go by position, or to the `parameters` named.
    The one output has any name, or one of `outputs` where the type had further ones that are not
    here; an operator of several results has one name in `results` for each, or "" for none;
    one that gives a list has the name of its output in `many`.
    """

    name: str
    operator: str | Callable[..., Any]
    inputs: tuple[tuple[str, ...], ...]
    attributes: Mapping[str, str] = field(default_factory=dict)
    translate: Callable[[Attributes], Attributes] = dict
    _: KW_ONLY
    lists: bool = False
    parameters: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    optional: int = 0
    many: str = ""

    @property
    def function(self) -> Callable[..., Any]:
        """Our operator itself."""
        return operator(self.operator) if isinstance(self.operator, str) else self.operator


def _number(attributes: Attributes, prefix: str = "", suffix: str = "_operand") -> Any:
    """The one of a float and an int attribute that counts."""
    is_int = attributes.get(f"has_int{suffix}", False)
    return attributes[f"int{suffix}" if is_int else f"float{suffix}"]


def _scalar(attributes: Attributes) -> Attributes:
    return {"y": _number(attributes)}


def _value(attributes: Attributes) -> Attributes:
    is_float = attributes.get("is_floating_value", False)
    value = attributes["floating_value" if is_float else "integer_value"]
    return {"value": value, **{k: attributes[k] for k in ("dtype", "shape") if k in attributes}}


def _one_hot(attributes: Attributes) -> Attributes:
    dtype = attributes["dtype"]
    kind = "floating" if dtype.is_floating_point else "integer"
    values = {f"{n}_value": attributes.get(f"{kind}_{n}_value", n == "on") for n in ("on", "off")}
    return {"depth": attributes["depth"], "dtype": dtype, **values}


def _bounds(attributes: Attributes) -> Attributes:
    """The float bounds; the integer ones where only those are given."""
    return {
        f"{end}_value": attributes.get(f"floating_{end}", attributes.get(f"integral_{end}"))
        for end in ("min", "max")
    }


def _pairs(attributes: Attributes) -> Attributes:
    pads = zip(attributes["padding_before"], attributes["padding_after"], strict=True)
    value = attributes.get("floating_constant_value", attributes.get("integral_constant_value", 0))
    return {"paddings": list(pads), "constant_value": value}


def _slices(attributes: Attributes) -> Attributes:
    ranges = zip(attributes["start"], attributes["stop"], attributes["step"], strict=True)
    return {"slice_tup_list": list(ranges)}


_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _layout(attributes: Attributes, axes: int) -> str:
    first = _LAYOUTS[axes]
    is_last = attributes.get("data_format", "channels_first") == "channels_last"
    return f"N{first[2:]}C" if is_last else first


def _padding(attributes: Attributes, after: str) -> Any:
    """Pairs of zeros to add, beside none on the batch and the channels."""
    pairs = list(zip(attributes["padding_before"], attributes[after], strict=True))
    is_last = attributes.get("data_format", "channels_first") == "channels_last"
    return [(0, 0), *pairs, (0, 0)] if is_last else [(0, 0), (0, 0), *pairs]


def _convolution(attributes: Attributes) -> Attributes:
    return {
        "strides": attributes["strides"],
        "padding": _padding(attributes, "padding_before"),
        "data_format": _layout(attributes, len(attributes["strides"])),
        "dilations": attributes.get("dilation_rate"),
        "groups": attributes.get("groups", 1),
    }


def _pool(attributes: Attributes) -> Attributes:
    name = attributes.get("padding", "customized").upper()
    is_custom = name == "CUSTOMIZED"
    return {
        "ksize": attributes["pool_size"],
        "strides": attributes["strides"],
        "padding": _padding(attributes, "padding_after") if is_custom else name,
        "data_format": _layout(attributes, len(attributes["strides"])),
        **({"ceil_mode": attributes.get("ceil_mode", False)} if is_custom else {}),
    }


def _triangle(attributes: Attributes) -> Attributes:
    is_float = attributes.get("is_floating_fill_value", False)
    fill = attributes.get("floating_fill_value" if is_float else "integer_fill_value", 0)
    return {"diagonal": attributes.get("diagonal", 0), "fill_value": fill}


def _channels(attributes: Attributes) -> Attributes:
    return {"data_format": "NCHW" if attributes.get("axis", 1) == 1 else "NHWC"}


def _upsampling(attributes: Attributes) -> Attributes:
    return {
        "size": (attributes["height_scale"], attributes["width_scale"]),
        "align_corners": attributes.get("align_corners", False),
        "data_format": _layout(attributes, 2),
        "interpolation": attributes.get("interpolation", "nearest"),
    }


def _by_sample(attributes: Attributes) -> Attributes:
    """The loss of each sample: the mean is taken by further operators."""
    known: Attributes = {k: attributes[k] for k in ("blank", "zero_infinity") if k in attributes}
    return {**known, "reduction": "none"}


def _random_attributes(attributes: Attributes) -> Attributes:
    """The seed, unless the operator is said to have none."""
    known = {k: v for k, v in attributes.items() if k not in ("seed", "has_seed")}
    return {**known, "seed": attributes.get("seed") if attributes.get("has_seed") else None}


_X = ("x", "in", "input", "input_tensor")
_XY = (("x",), ("y",))
_TRANSPOSED = {"transpose_a": "transpose_a", "transpose_b": "transpose_b", "alpha": "alpha"}
_REDUCED = {"axis": "axis", "keepdims": "keepdims"}
_LOSS = (("label",), ("prediction",))
_PREDICTED = (("prediction",), ("label",))
_STATISTICS = (("x",), ("moving_mean",), ("moving_variance",), ("gamma",), ("beta",))


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


def _unary(*types: str, prefix: str = "math.") -> list[OpType]:
    return [OpType(t, prefix + t, (_X,)) for t in types]


# fmt: off
_ROWS = [
    *_unary("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf",
            "erfc", "exp", "expm1", "floor", "gelu", "lgamma", "log", "log1p", "log_sigmoid",
            "negative", "reciprocal", "reciprocal_no_nan", "relu", "rint", "round", "rsqrt",
            "sigmoid", "sigmoid_v2", "sign", "sin", "sinh", "softplus", "sqrt", "square", "tan",
            "tanh"),
    *_unary("mish", "hardsigmoid", "hardswish", prefix="nn."),
    *_unary("identity", "amp_white_identity", "cast_to_static_shape", prefix=""),
    *(OpType(t, f"math.{t}", _XY) for t in ("atan2", "floordiv", "pow", "xdivy", "xlogy")),
    *(OpType(f"broadcast_{t}", f"math.{t}", _XY)
      for t in ("equal", "greater", "greater_equal", "less", "less_equal", "logical_and",
                "maximum", "minimum", "not_equal")),
    OpType("broadcast_add", "math.add", _XY),
    OpType("broadcast_sub", "math.subtract", _XY),
    OpType("broadcast_mul", "math.multiply", _XY),
    OpType("broadcast_div", "math.divide", _XY),
    OpType("broadcast_floor_mod", "math.mod", _XY),
    OpType("elementwise_maximum", "math.maximum", _XY),
    OpType("elementwise_minimum", "math.minimum", _XY),
    OpType("multiply", "math.multiply", _XY),
    OpType("scalar_add_by_tensor", "math.add", (("x",), ("scalar",))),
    OpType("scalar_sub_by_tensor", "math.subtract", (("x",), ("scalar",))),
    OpType("scalar_mul_by_tensor", "math.multiply", (("x",), ("scalar",))),
    OpType("scalar_div_by_tensor", "math.divide", (("x",), ("scalar",))),
    OpType("scalar_add", "math.add", (_X,), translate=_scalar),
    OpType("scalar_mul", "math.multiply", (_X,), translate=_scalar),
    OpType("scalar_pow", "math.pow", (_X,), {"exponent": "y"}),
    OpType("add_n", "math.add_n", (_X,), lists=True),
    OpType("clip_by_scalar", "clip_by_value", (_X,), translate=_bounds),
    OpType("clip_by_scalar_min", "clip_by_value", (_X,), translate=_bounds),
    OpType("clip_by_scalar_max", "clip_by_value", (_X,), translate=_bounds),
    OpType("matmul", "matmul", (("a",), ("b",)), _TRANSPOSED),
    OpType("batch_matmul", "matmul", (("a",), ("b",)), _TRANSPOSED),
    OpType("broadcast_matmul", "matmul", (("a",), ("b",)), _TRANSPOSED),
    OpType("bias_add", "nn.bias_add", (("a",), ("b",)), translate=_channels),
    *(OpType(f"reduce_{t}", f"math.reduce_{t}", (_X,), _REDUCED)
      for t in ("sum", "max", "min", "prod", "all", "any")),
    OpType("argmax", "math.argmax", (_X,)),
    OpType("top_k", "math.top_k", (_X,), _same("k", "sorted")),
    OpType("in_top_k", "math.in_top_k", (("targets",), ("predictions",)), _same("k")),
    OpType("l2_normalize", user_ops.l2_normalize, (_X,), _same("axis", "epsilon"),
           results=("y", "square_x_sum")),
    OpType("tril", "math.tril", (_X,), translate=_triangle),
    OpType("unsorted_segment_sum", "math.unsorted_segment_sum", (("data",), ("segment_ids",)),
           _same("axis", "num_segments")),
    OpType("arg_sort", "argsort", (_X,), _same("direction")),
    OpType("sort", "sort", (_X,), _same("direction")),
    OpType("cast", "cast", (_X,), _same("dtype")),
    OpType("concat", "concat", (_X,), _same("axis", "max_dim_size"), lists=True),
    OpType("constant", "constant", (), translate=_value),
    OpType("constant_like", "constant_like", (("like",),), translate=_value),
    OpType("zero_like", "zeros_like", (("like",),)),
    OpType("ones_like", "ones_like", (("like",),)),
    OpType("expand_dims", "expand_dims", (_X,), _same("axis")),
    OpType("squeeze", "squeeze", (_X,), {"axes": "axis"}),
    OpType("flatten", "flatten", (_X,), _same("start_dim", "end_dim")),
    OpType("reshape", "reshape", (_X,), _same("shape")),
    OpType("reshape_like", "reshape_like", (("in",), ("like",))),
    OpType("transpose", "transpose", (_X,), _same("perm")),
    OpType("slice", "slice_v2", (_X,), translate=_slices),
    OpType("pad", "pad", (_X,), translate=_pairs),
    OpType("broadcast_like", "broadcast_like", (("x",), ("like",)), _same("broadcast_axes")),
    OpType("gather", "gather", (("in",), ("indices",)), _same("axis")),
    OpType("gather_nd", "gather_nd", (("params",), ("indices",))),
    OpType("dim_gather", "dim_gather", (("input",), ("index",)), _same("dim"),
           parameters=("input", "index")),
    OpType("scatter_nd", "scatter_nd", (("indices",), ("updates",)), _same("shape")),
    OpType("tensor_scatter_nd_update", "tensor_scatter_nd_update",
           (("params",), ("indices",), ("updates",))),
    OpType("tensor_scatter_nd_add", "tensor_scatter_nd_add",
           (("params",), ("indices",), ("updates",))),
    OpType("where", "where", (("condition",), ("x",), ("y",))),
    OpType("one_hot", "one_hot", (("indices",),), translate=_one_hot),
    OpType("parallel_cast", "parallel_cast", (_X,)),
    OpType("conv1d", "nn.conv1d", (("in",), ("weight",)), translate=_convolution),
    OpType("conv2d", "nn.conv2d", (("in",), ("weight",)), translate=_convolution),
    OpType("conv3d", "nn.conv3d", (("in",), ("weight",)), translate=_convolution),
    *(OpType(f"{kind}_pool_{axes}d", f"nn.{kind}_pool{axes}d", (_X,), translate=_pool)
      for kind in ("max", "avg") for axes in (2, 3)),
    OpType("softmax", "nn.softmax", (_X,)),
    OpType("leaky_relu", "nn.leaky_relu", (_X,), _same("alpha")),
    OpType("elu", "nn.elu", (_X,), _same("alpha")),
    OpType("hardtanh", "nn.hardtanh", (_X,), _same("min_val", "max_val")),
    OpType("random_mask_like", "nn.random_mask_like", (("like",),), _same("rate", "seed")),
    OpType("sigmoid_cross_entropy", "nn.sigmoid_cross_entropy_with_logits", _LOSS),
    OpType("sparse_cross_entropy", "nn.sparse_cross_entropy", _LOSS, {"depth": ""}),
    OpType("sparse_softmax_cross_entropy", user_ops.sparse_softmax_cross_entropy, _PREDICTED,
           {"depth": ""}, results=("out", "prob")),
    OpType("softmax_cross_entropy", user_ops.softmax_cross_entropy, _PREDICTED,
           results=("out", "prob")),
    OpType("smooth_l1_loss", "smooth_l1_loss", (("prediction",), ("label",)), _same("beta")),
    OpType("combined_margin_loss", user_ops.combined_margin_loss, (("x",), ("label",)),
           {**_same("m1", "m2", "m3"), "depth": ""}, results=("y", "theta")),
    OpType("layer_norm", user_ops.layer_norm, (("x",), ("gamma",), ("beta",)),
           {**_same("begin_norm_axis", "begin_params_axis", "epsilon"), "center": "", "scale": ""},
           parameters=("x", "gamma", "beta"), optional=2,
           results=("y", "mean", "inv_variance", "normalized")),
    OpType("layer_norm_grad", "layers.layer_norm_grad",
           (("dy",), ("x",), ("mean",), ("inv_variance",)),
           {**_same("begin_norm_axis"), "epsilon": ""}),
    OpType("layer_norm_param_grad", "layers.layer_norm_param_grad",
           (("dy",), ("normalized",), ("gamma",)), _same("begin_params_axis"),
           results=("normalized_diff", "beta_diff", "gamma_diff")),
    OpType("normalization", user_ops.batch_norm, _STATISTICS,
           _same("axis", "epsilon", "momentum", "training"),
           results=("y", "mean", "inv_variance")),
    OpType("normalization_add_relu", user_ops.batch_norm, (*_STATISTICS, ("addend",)),
           translate=lambda given: {**given, "activation": "relu"}, optional=1,
           parameters=(*(i[0] for i in _STATISTICS), "addend"),
           results=("y", "mean", "inv_variance")),
    OpType("dropout", user_ops.dropout, (("in",), ("mask",), ("_add_to_output",)), _same("scale"),
           parameters=("x", "mask", "addend"), optional=1, outputs=("out",)),
    OpType("prelu", user_ops.prelu, (("x",), ("alpha",)), outputs=("y",)),
    OpType("upsample", "layers.upsample_2d", (_X,), translate=_upsampling),
    OpType("deconv2d", user_ops.deconv2d, (("in",), ("weight",)),
           {**_same("padding_before", "strides", "output_padding", "dilation_rate", "data_format"),
            "filters": "", "kernel_size": ""}),
    OpType("batch_gather", user_ops.batch_gather, (("in",), ("indices",))),
    OpType("argwhere", user_ops.argwhere, (("input",),), {"dtype": ""},
           results=("output", "output_size")),
    OpType("softmax_grad", "nn.softmax_grad", (("y",), ("dy",))),
    *(OpType(f"{t}_grad", f"math.{t}_grad", ((v,), ("dy",)))
      for t, v in (("sigmoid", "y"), ("tanh", "y"), ("gelu", "x"))),
    OpType("diag", "diag", (_X,), _same("diagonal")),
    OpType("pad_grad", "pad_grad", (("dy",),), translate=_pairs),
    OpType("reflection_pad2d", "reflection_pad2d", (_X,), {"padding": "padding",
                                                          "floating_value": ""}),
    OpType("replication_pad2d", "replication_pad2d", (_X,), _same("padding")),
    OpType("slice_update", "slice_update", (("x",), ("update",)), translate=_slices),
    OpType("logical_slice", "experimental.logical_slice", (("x",),), translate=_slices),
    OpType("unsorted_batch_segment_sum", "unsorted_batch_segment_sum",
           (("data",), ("segment_ids",)), _same("num_segments")),
    OpType("unsorted_segment_sum_like", "unsorted_segment_sum_like",
           (("data",), ("segment_ids",), ("like",)), _same("axis")),
    OpType("fused_bias_add_gelu", "nn.fused_bias_add_gelu", (("a",), ("b",)), translate=_channels),
    OpType("fused_self_attention_query_mul_key_and_value",
           "nn.fused_self_attention_query_mul_key_and_value", (("hidden_states",),),
           _same("head_size", "alpha"), results=("query_mul_key", "value")),
    OpType("unique_with_counts", "experimental.unique_with_counts", (("x",),), _same("out_idx"),
           results=("y", "idx", "count", "num_unique")),
    OpType("indexed_slices_reduce_sum", "experimental.indexed_slices_reduce_sum",
           (("x_indices",), ("x_values",)), results=("y_indices", "y_values", "num_unique")),
    OpType("multi_count_not_finite", "multi_count_not_finite", (("x",),), lists=True),
    OpType("multi_square_sum", user_ops.multi_square_sum, (("x",),), lists=True),
    OpType("fused_cast_scale", user_ops.fused_cast_scale,
           (("x",), ("scale_by_tensor", "scale")), _same("scale")),
    OpType("split_like", user_ops.split_like, (("in",), ("like",)), _same("axis"), lists=True,
           many="out"),
    OpType("dynamic_loss_scale_schedule", loss_scale.dynamic_loss_scale_schedule,
           (("count_not_finite",), ("loss_scale",), ("good_step_counter",)),
           _same("increment_period", "multiplier"), results=("loss_scale", "good_step_counter")),
    OpType("ctc_loss", "ctc_loss",
           (("log_probs",), ("targets",), ("input_lengths",), ("target_lengths",)),
           translate=_by_sample, outputs=("loss",)),
    OpType("bernoulli", "random.bernoulli", (_X,), translate=_random_attributes),
    OpType("generate_random_batch_permutation_indices",
           "random.generate_random_batch_permutation_indices", (("x",),),
           translate=_random_attributes),
]
# fmt: on
OP_TYPES = MappingProxyType({row.name: row for row in _ROWS})
