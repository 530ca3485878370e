"""Boxes and polygons of objects: moved with the images they are on, and drawn as masks."""

import numpy as np
from flow2onnx_runtime.dtypes import Array

from flow2onnx.data.images import MAX_PIXELS
from flow2onnx.errors import DataError

__all__ = ["flip_boxes", "flip_polygons", "masks", "scale"]


def _rows(values: Array, columns: int, what: str) -> None:
    if values.ndim != 2 or values.shape[1] != columns:
        raise DataError(f"{what} are rows of {columns} numbers, got the shape {values.shape}")


def flip_boxes(boxes: Array, size: Array, code: int) -> Array:
    """Boxes (left, top, right, bottom) on the mirrored image of `size` (width, height)."""
    _rows(boxes, 4, "boxes")
    left, top, right, bottom = boxes.T
    last_x, last_y = boxes.dtype.type(size[0] - 1), boxes.dtype.type(size[1] - 1)
    if code & 0x01:
        left, right = last_x - right, last_x - left
    if code & 0x10:
        top, bottom = last_y - bottom, last_y - top
    return np.stack([left, top, right, bottom], axis=1)


def flip_polygons(points: Array, size: Array, code: int) -> Array:
    """Points (x, y) on the mirrored image of `size` (width, height)."""
    _rows(points, 2, "points")
    x, y = points.T
    kind = points.dtype.type
    return np.stack(
        [kind(size[0]) - x if code & 0x01 else x, kind(size[1]) - y if code & 0x10 else y], axis=1
    )


def scale(values: Array, factors: Array) -> Array:
    """Points or boxes times the factors (horizontal, vertical)."""
    _rows(values, 4 if values.ndim == 2 and values.shape[1] == 4 else 2, "points")
    made: Array = (values * np.tile(factors, values.shape[1] // 2)).astype(values.dtype)
    return made


def masks(points: Array, places: Array, size: Array) -> Array:
    """For each object an int8 mask (height, width): 1 inside its polygons and on their edges.

    Where polygons of one object overlap they count evenly, as in OpenCV's fillPoly.
    """
    _rows(points, 2, "points")
    _rows(places, 3, "indices of points")
    width, height = int(size[0]), int(size[1])
    if len(points) != len(places):
        raise DataError(f"{len(points)} points and {len(places)} indices of points")
    count = int(places[:, 2].max()) + 1 if len(places) else 0
    if count < 0 or count > len(points) or count * width * height > MAX_PIXELS:
        raise DataError(f"{count} masks of {width} × {height} pixels")
    made = np.zeros((count, height, width), np.int8)
    pixels = np.rint(points).astype(np.int64)
    for number in range(count):
        mine = places[:, 2] == number
        parts = [pixels[mine & (places[:, 1] == p)] for p in np.unique(places[mine, 1])]
        made[number] = _fill(parts, height, width)
    return made


def _fill(parts: list[Array], height: int, width: int) -> Array:
    inside = np.zeros((height, width), bool)
    edges = np.zeros((height, width), bool)
    for polygon in parts:
        inside ^= _inside(polygon, height, width)
        for start, end in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
            _draw(edges, start, end)
    return (inside | edges).astype(np.int8)


def _inside(polygon: Array, height: int, width: int) -> Array:
    """Pixels with an odd number of edges at their left."""
    found = np.zeros((height, width), bool)
    columns = np.arange(width)
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        low, high = sorted((int(y0), int(y1)))
        rows = np.arange(max(low, 0), min(high, height))  # the lower end belongs to the next edge
        if rows.size:
            crossing = x0 + (rows - y0) * (x1 - x0) / (y1 - y0)
            found[rows] ^= columns[None, :] > crossing[:, None]
    return found


def _draw(mask: Array, start: Array, end: Array) -> None:
    """A line of one pixel, clipped to the mask."""
    steps = int(np.abs(end - start).max())
    if steps > MAX_PIXELS:
        raise DataError(f"an edge from {start.tolist()} to {end.tolist()}")
    t = np.linspace(0, 1, steps + 1)[:, None]
    x, y = np.rint(start + t * (end - start)).astype(int).T
    kept = (x >= 0) & (y >= 0) & (x < mask.shape[1]) & (y < mask.shape[0])
    mask[y[kept], x[kept]] = True
