"""Transposed convolutions."""

from collections.abc import Sequence

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops import spatial
from flow2onnx.ops.spatial import Ints
from flow2onnx.trace.op import op


def _operands(
    value: Value | None, filter: Value | None, input: Value | None, filters: Value | None
) -> tuple[Value, Value]:
    """The input and the filters, given by their first names or by their second."""
    if (value is None) == (input is None) or (filter is None) == (filters is None):
        raise ArgumentError("pass value and filter, or input and filters")
    x, w = value if input is None else input, filter if filters is None else filters
    assert x is not None and w is not None, "one of two is there"  # noqa: PT018  # for mypy
    if rank_of(x) != 4 or rank_of(w) != 4:
        raise ShapeError(f"conv2d_transpose needs rank 4: input {dims(x)}, filters {dims(w)}")
    return x, w


def _conv_transpose(
    b: Builder,
    x: Value,
    w: Value,
    strides: Sequence[int],
    dilations: Sequence[int],
    cuts: Sequence[int],
    output_padding: Sequence[int],
    data_format: str,
) -> Value:
    """The transposed convolution; of an odd number to cut off an axis the extra goes behind."""
    pads = [*(cut // 2 for cut in cuts), *(cut - cut // 2 for cut in cuts)]
    first, kernel = (spatial.channels_first(b, v, data_format) for v in (x, w))
    if dims(first)[1] != dims(kernel)[0]:
        raise ShapeError(f"input has {dims(first)[1]} channels, filters expect {dims(kernel)[0]}")
    y = b.ConvTranspose(
        first, kernel, strides=strides, dilations=dilations, pads=pads,
        output_padding=output_padding,
    )  # fmt: skip
    return spatial.channels_back(b, y, data_format)


@op("nn.conv2d_transpose")
def conv2d_transpose(
    b: Builder,
    value: Value | None = None,
    filter: Value | None = None,
    output_shape: Sequence[int] | None = None,
    strides: Ints | None = None,
    padding: str = "VALID",
    data_format: str = "NCHW",
    name: str | None = None,
    input: Value | None = None,
    filters: Value | None = None,
    dilations: Ints | None = None,
) -> Value:
    """The blob whose convolution has the shape of this one, of the extents in `output_shape`.

    Filters are (in, out, kh, kw), or (in, kh, kw, out) for NHWC. They give the channels: as in
    OneFlow, those of `output_shape` are not looked at.
    """
    x, w = _operands(value, filter, input, filters)
    spatial.spatial_rank(data_format, 2)
    s, d = spatial.per_axis(strides, 2, "strides"), spatial.per_axis(dilations, 2, "dilations")
    extents, kernel, wanted = (
        _extents(shape, data_format) for shape in (dims(x), dims(w), _whole(output_shape))
    )
    cuts, more = [], []
    for extent, k, out, step, dilation in zip(extents, kernel, wanted, s, d, strict=True):
        window = (k - 1) * dilation + 1
        cut = _excess(padding, extent, window, out, step)
        cuts.append(cut)
        more.append(out - ((extent - 1) * step + window - cut))
    if any(not 0 <= extra < step for extra, step in zip(more, s, strict=True)):
        raise ShapeError(f"no {padding} convolution of {tuple(wanted)} gives {extents}")
    return _conv_transpose(b, x, w, s, d, cuts, more, data_format)


def _whole(output_shape: Sequence[int] | None) -> tuple[int, ...]:
    if not isinstance(output_shape, list | tuple) or len(output_shape) != 4:
        raise ArgumentError(f"output_shape is four dimensions, got {output_shape!r}")
    return tuple(output_shape)


def _extents(shape: Sequence[int], data_format: str) -> tuple[int, ...]:
    return tuple(shape[1:3] if spatial.is_channels_last(data_format) else shape[2:])


def _excess(padding: str, extent: int, window: int, out: int, stride: int) -> int:
    """The elements cut off the ends of an axis."""
    if padding.upper() == "VALID":
        return 0
    if padding.upper() != "SAME":
        raise ArgumentError(f"padding {padding!r} is not VALID or SAME")
    return max(0, (extent - 1) * stride + window - out)


@op("nn.torch_conv2d_transpose")
def torch_conv2d_transpose(
    b: Builder,
    value: Value | None = None,
    filter: Value | None = None,
    output_padding: Ints | None = None,
    strides: Ints | None = None,
    padding_needed: Ints | None = None,
    data_format: str = "NCHW",
    name: str | None = None,
    input: Value | None = None,
    filters: Value | None = None,
    dilations: Ints | None = None,
) -> Value:
    """A transposed convolution cut by `padding_needed` in all, and longer by `output_padding`."""
    x, w = _operands(value, filter, input, filters)
    spatial.spatial_rank(data_format, 2)
    s, d = spatial.per_axis(strides, 2, "strides"), spatial.per_axis(dilations, 2, "dilations")
    cuts, more = _pair(padding_needed, "padding_needed"), _pair(output_padding, "output_padding")
    return _conv_transpose(b, x, w, s, d, cuts, more, data_format)


def _pair(value: Ints | None, what: str) -> list[int]:
    numbers = [value] * 2 if isinstance(value, int) else list(value or [0, 0])
    if len(numbers) != 2 or min(numbers) < 0:
        raise ArgumentError(f"{what} is a whole number or two of them, got {value!r}")
    return numbers
