"""Convolutions."""

from flow2onnx.errors import ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops import spatial
from flow2onnx.ops.spatial import Ints, Padding
from flow2onnx.trace.op import Operator, op


def _conv(
    b: Builder,
    axes: int,
    x: Value,
    w: Value,
    bias: Value | None,
    strides: Ints,
    padding: Padding,
    data_format: str,
    dilations: Ints | None,
    groups: int,
) -> Value:
    spatial.spatial_rank(data_format, axes)
    if rank_of(x) != axes + 2 or rank_of(w) != axes + 2:
        raise ShapeError(f"{data_format} needs rank {axes + 2}: input {dims(x)}, filters {dims(w)}")
    x = spatial.channels_first(b, x, data_format)
    w = spatial.channels_first(b, w, data_format)
    if dims(w)[1] * groups != dims(x)[1]:
        raise ShapeError(
            f"input has {dims(x)[1]} channels, filters expect {dims(w)[1]} x {groups} groups",
            hint=f"data_format is {data_format}: is the channel axis where it says?",
        )
    s = spatial.per_axis(strides, axes, "strides")
    d = spatial.per_axis(dilations, axes, "dilations")
    before, after = spatial.pads(padding, data_format, dims(x)[2:], dims(w)[2:], s, d)
    operands = (x, w) if bias is None else (x, w, bias)
    y = b.Conv(*operands, strides=s, dilations=d, group=groups, pads=before + after)
    return spatial.channels_back(b, y, data_format)


def _plain_conv(kind: str, axes: int, doc: str, same: str = "SAME_LOWER") -> Operator[Value]:
    """Publish a convolution over `axes` spatial axes; `same` is what SAME pads like."""

    def lower(
        b: Builder,
        x: Value,
        w: Value,
        strides: Ints,
        padding: Padding,
        data_format: str,
        dilations: Ints | None,
        groups: int,
        name: str | None,
    ) -> Value:
        is_same = isinstance(padding, str) and padding.upper() == "SAME"
        pads = same if is_same else padding
        return _conv(b, axes, x, w, None, strides, pads, data_format, dilations, groups)

    lower.__name__, lower.__doc__ = kind, doc
    return op(f"nn.{kind}", catalogued=True)(lower)


conv1d = _plain_conv(
    "conv1d", 1, "One spatial axis; filters (out, in/groups, k), or (out, k, in/groups) for NWC."
)
conv3d = _plain_conv(
    "conv3d",
    3,
    "Three spatial axes; filters (out, in/groups, kd, kh, kw), channels last for NDHWC.",
)
compat_conv2d = _plain_conv(
    "compat_conv2d", 2, "nn.conv2d whose SAME puts the extra zeros after, as in TensorFlow.",
    same="SAME_UPPER",
)  # fmt: skip


@op("nn.conv2d")
def conv2d(
    b: Builder,
    input: Value,
    filters: Value,
    strides: Ints,
    padding: Padding,
    data_format: str = "NCHW",
    dilations: Ints | None = None,
    groups: int = 1,
    name: str | None = None,
    *,
    bias: Value | None = None,
) -> Value:
    """Two spatial axes; filters (out, in/groups, kh, kw), or (out, kh, kw, in/groups) for NHWC."""
    return _conv(b, 2, input, filters, bias, strides, padding, data_format, dilations, groups)
