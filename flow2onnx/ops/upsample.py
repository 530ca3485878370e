"""Images made larger."""

from collections.abc import Sequence

import numpy as np

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops import spatial
from flow2onnx.trace.op import op

_MODES = {"nearest": "nearest", "bilinear": "linear"}


@op("layers.upsample_2d")
def upsample_2d(
    b: Builder,
    x: Value,
    size: int | Sequence[int] = (2, 2),
    align_corners: bool = False,
    data_format: str = "NCHW",
    interpolation: str = "nearest",
    name: str = "Upsample2D",
) -> Value:
    """Height and width times `size`, by the nearest element or between the four next to it."""
    spatial.spatial_rank(data_format, 2)
    if rank_of(x) != 4:
        raise ShapeError(f"{data_format} needs rank 4, got {dims(x)}")
    if interpolation not in _MODES:
        raise ArgumentError(f"interpolation is 'nearest' or 'bilinear', got {interpolation!r}")
    if interpolation == "nearest" and align_corners:
        raise ArgumentError("align_corners goes with interpolation='bilinear'")
    scales = [size, size] if isinstance(size, int | float) else list(size)
    if len(scales) != 2 or min(scales) <= 0:
        raise ArgumentError(f"size is a positive number or two of them, got {size!r}")
    first = spatial.channels_first(b, x, data_format)
    y = b.Resize(
        first, None, np.array([1, 1, *scales], np.float32), mode=_MODES[interpolation],
        coordinate_transformation_mode="align_corners" if align_corners else "half_pixel",
        nearest_mode="round_prefer_ceil",
    )  # fmt: skip
    return spatial.channels_back(b, y, data_format)


@op("nn.PixelShuffle")
def pixel_shuffle(b: Builder, input: Value, upscale_factor: int, name: str | None = None) -> Value:
    """Channels laid out as squares: (n, c r², h, w) becomes (n, c, h r, w r)."""
    return pixel_shuffle_v2.lower(b, input, upscale_factor, upscale_factor)


@op("nn.PixelShufflev2")
def pixel_shuffle_v2(
    b: Builder,
    input: Value,
    h_upscale_factor: int,
    w_upscale_factor: int,
    name: str | None = None,
) -> Value:
    """Channels laid out as rectangles: (n, c r s, h, w) becomes (n, c, h r, w s)."""
    r, s = h_upscale_factor, w_upscale_factor
    if not (isinstance(r, int) and isinstance(s, int)) or min(r, s) < 1:
        raise ArgumentError(f"upscale factors are positive ints, got {r!r} and {s!r}")
    if rank_of(input) != 4 or dims(input)[1] % (r * s):
        raise ShapeError(f"the channels of {dims(input)} are no multiple of {r} x {s}")
    n, c, h, w = dims(input)
    blocks = b.Reshape(input, [n, c // (r * s), r, s, h, w])
    rows = b.Transpose(blocks, perm=[0, 1, 4, 2, 5, 3])
    return b.Reshape(rows, [n, c // (r * s), h * r, w * s])
