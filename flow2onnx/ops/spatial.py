"""Sliding windows: paddings and layouts that convolutions and pools share."""

from collections.abc import Sequence

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import rank_of

Ints = int | Sequence[int]
Padding = str | Sequence[int | Sequence[int]]
LAYOUTS = {"NCW": 1, "NWC": 1, "NCHW": 2, "NHWC": 2, "NCDHW": 3, "NDHWC": 3}


def spatial_rank(data_format: str, allowed: int) -> int:
    """The number of spatial axes of a layout, which has to be `allowed`."""
    if LAYOUTS.get(data_format) != allowed:
        known = " or ".join(k for k, v in LAYOUTS.items() if v == allowed)
        raise ArgumentError(f"data_format {data_format!r} is not {known}")
    return allowed


def is_channels_last(data_format: str) -> bool:
    """True if the channel axis is the last."""
    return data_format.endswith("C")


def channels_first(b: Builder, x: Value, data_format: str) -> Value:
    """`x` with its channels on axis 1."""
    if not is_channels_last(data_format):
        return x
    rank = rank_of(x)
    return b.Transpose(x, perm=[0, rank - 1, *range(1, rank - 1)])


def channels_back(b: Builder, x: Value, data_format: str) -> Value:
    """A channels-first `x` in the layout asked for."""
    if not is_channels_last(data_format):
        return x
    return b.Transpose(x, perm=[0, *range(2, rank_of(x)), 1])


def per_axis(value: int | Sequence[int] | None, axes: int, what: str) -> list[int]:
    """One number for each spatial axis; None means 1."""
    numbers = (
        [1 if value is None else value] * axes if value is None or isinstance(value, int) else value
    )
    if len(numbers) != axes or any(n < 1 for n in numbers):
        raise ArgumentError(f"{what} is a positive int or {axes} of them, got {value!r}")
    return list(numbers)


def pads(
    padding: Padding,
    data_format: str,
    extents: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    ceil_mode: bool = False,
) -> tuple[list[int], list[int]]:
    """Zeros before and after each spatial axis.

    SAME is SAME_LOWER: of an odd number the extra one goes before. An explicit padding is one
    (before, after) pair for every axis of the layout; with `ceil_mode` the end grows until the
    last partial window fits.
    """
    before, after = [], []
    explicit = _explicit(padding, data_format) if not isinstance(padding, str) else None
    for axis, (d, k, s, r) in enumerate(zip(extents, kernel, strides, dilations, strict=True)):
        window = (k - 1) * r + 1
        if explicit is not None:
            first, last = explicit[axis]
            if ceil_mode:
                last += -(d + first + last - window) % s
        else:
            first, last = _same_or_valid(str(padding), d, window, s)
        if d + first + last < window:
            raise ArgumentError(
                f"a window of {window} does not fit {d} elements padded by {first + last}"
            )
        before.append(first)
        after.append(last)
    return before, after


def _explicit(padding: Sequence[int | Sequence[int]], data_format: str) -> list[tuple[int, int]]:
    rank = len(data_format)
    given = [(p, p) if isinstance(p, int) else tuple(p) for p in padding]
    if len(given) != rank or any(len(p) != 2 for p in given):
        raise ArgumentError(
            f"padding {padding!r} is not one (before, after) pair, or one number, for each of "
            f"{data_format}"
        )
    pairs = [(int(before), int(after)) for before, after in given]
    channel = rank - 1 if is_channels_last(data_format) else 1
    if pairs[0] != (0, 0) or pairs[channel] != (0, 0):
        raise ArgumentError("padding of the batch and channel axes is 0")
    return [p for i, p in enumerate(pairs) if i not in (0, channel)]


def _same_or_valid(padding: str, extent: int, window: int, stride: int) -> tuple[int, int]:
    name = padding.upper()
    if name == "VALID":
        return 0, 0
    if name not in ("SAME", "SAME_LOWER", "SAME_UPPER"):
        raise ArgumentError(
            f"padding {padding!r} is not VALID, SAME, SAME_LOWER, SAME_UPPER or pairs of numbers"
        )
    total = max(0, (-(-extent // stride) - 1) * stride + window - extent)
    small, large = total // 2, total - total // 2
    return (small, large) if name == "SAME_UPPER" else (large, small)
