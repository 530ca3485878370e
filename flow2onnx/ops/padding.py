"""Padding, and its undoing."""

from collections.abc import Sequence

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.ops.spatial import is_channels_last, pads, per_axis
from flow2onnx.trace.op import op

Pairs = Sequence[Sequence[int]]


def _before_after(x: Value, paddings: Pairs) -> tuple[list[int], list[int]]:
    """The elements added before and after each axis."""
    is_list = isinstance(paddings, list | tuple)
    if not is_list or not all(isinstance(p, list | tuple) and len(p) == 2 for p in paddings):
        raise ArgumentError(f"paddings are (before, after) pairs, got {paddings!r}")
    if len(paddings) != rank_of(x):
        raise ArgumentError(f"paddings need one pair for each dimension of {dims(x)}")
    return [int(p[0]) for p in paddings], [int(p[1]) for p in paddings]


def _pad(
    b: Builder,
    x: Value,
    sides: tuple[list[int], list[int]],
    value: float = 0,
    mode: str = "constant",
) -> Value:
    before, after = sides
    if any(f + d + a < 1 for f, d, a in zip(before, dims(x), after, strict=True)):
        raise ShapeError(f"padding {before} before and {after} after leaves nothing of {dims(x)}")
    if mode != "constant":
        return b.Pad(x, before + after, mode=mode)
    return b.Pad(x, before + after, b.const(value, dtype_of(x)))


@op("pad")
def pad(
    b: Builder, x: Value, paddings: Pairs, constant_value: float = 0, name: str | None = None
) -> Value:
    """As many of `constant_value` before and after each axis as its pair in `paddings` says."""
    return _pad(b, x, _before_after(x, paddings), constant_value)


@op("pad_grad")
def pad_grad(
    b: Builder, x: Value, paddings: Pairs, constant_value: float = 0, name: str | None = None
) -> Value:
    """The part inside the padding: the undoing of `pad`."""
    before, after = _before_after(x, paddings)
    ends = [d - a for d, a in zip(dims(x), after, strict=True)]
    if any(f < 0 or f >= e or e > d for f, e, d in zip(before, ends, dims(x), strict=True)):
        raise ShapeError(f"paddings {list(paddings)} leave nothing of {dims(x)}")
    return b.Slice(x, before, ends)


def _around(x: Value, padding: int | Sequence[int]) -> tuple[list[int], list[int]]:
    """The elements added around the two last axes of an image by one number, or by four."""
    if rank_of(x) != 4:
        raise ShapeError(f"x has shape (N, C, H, W), got {dims(x)}")
    sides = [padding] * 4 if isinstance(padding, int) else list(padding)
    if len(sides) != 4 or any(s < 0 for s in sides):
        raise ArgumentError(f"padding is an int or [left, right, top, bottom], got {padding!r}")
    left, right, top, bottom = sides
    return [0, 0, top, left], [0, 0, bottom, right]


@op("constant_pad2d", catalogued=True)
def constant_pad2d(
    b: Builder, x: Value, padding: int | Sequence[int], constant_value: float, name: str | None
) -> Value:
    """A frame of `constant_value` around each image; four sides are left, right, top, bottom."""
    return _pad(b, x, _around(x, padding), constant_value)


@op("zero_pad2d")
def zero_pad2d(
    b: Builder, x: Value, padding: int | Sequence[int], name: str | None = None
) -> Value:
    """A frame of zeros around each image; four sides are left, right, top, bottom."""
    return _pad(b, x, _around(x, padding))


@op("replication_pad2d")
def replication_pad2d(
    b: Builder, x: Value, padding: int | Sequence[int], name: str | None = None
) -> Value:
    """The border of each image repeated around it; four sides are left, right, top, bottom."""
    return _pad(b, x, _around(x, padding), mode="edge")


@op("reflection_pad2d")
def reflection_pad2d(
    b: Builder, x: Value, padding: int | Sequence[int], name: str | None = None
) -> Value:
    """Each image mirrored at its border; four sides are left, right, top, bottom."""
    sides = _around(x, padding)
    if any(f >= d or a >= d for f, d, a in zip(sides[0], dims(x), sides[1], strict=True)):
        raise ArgumentError(f"padding {padding!r} has to be smaller than the image {dims(x)[2:]}")
    return _pad(b, x, sides, mode="reflect")


@op("same_padding")
def same_padding(
    b: Builder,
    x: Value,
    padding: str,
    data_format: str,
    kernel_size: int | Sequence[int],
    strides: int | Sequence[int],
    dilation_rate: int | Sequence[int],
    name: str | None = None,
) -> Value:
    """The zeros around `x` that a convolution padded SAME_LOWER or SAME_UPPER adds."""
    if str(padding).upper() not in ("SAME_LOWER", "SAME_UPPER"):
        raise ArgumentError(f"padding is SAME_LOWER or SAME_UPPER, got {padding!r}")
    axes = rank_of(x) - 2
    if axes < 1 or len(str(data_format)) != rank_of(x):
        raise ArgumentError(f"data_format {data_format!r} does not name the axes of {dims(x)}")
    lead = 1 if is_channels_last(data_format) else 2
    before, after = pads(
        padding,
        data_format,
        dims(x)[lead : lead + axes],
        per_axis(kernel_size, axes, "kernel_size"),
        per_axis(strides, axes, "strides"),
        per_axis(dilation_rate, axes, "dilation_rate"),
    )
    rest = [0] * (2 - lead)
    return _pad(b, x, ([0] * lead + before + rest, [0] * lead + after + rest))
