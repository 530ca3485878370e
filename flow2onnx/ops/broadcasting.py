"""Repeating a blob until it has another's shape, and counting what it has."""

import math
from collections.abc import Sequence

import numpy as np

from flow2onnx.dtypes import DType, element_type, int32, int64
from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, is_static, rank_of, sizes_of
from flow2onnx.ops.arguments import Axes, axes_of, axis_of
from flow2onnx.trace.op import op


def _expand(b: Builder, x: Value, shape: Sequence[int]) -> Value:
    """`x` repeated to `shape`, which has to be reachable."""
    if not is_static(x):
        return b.Expand(x, list(shape))
    try:
        reached = np.broadcast_shapes(dims(x), tuple(shape))
    except ValueError:
        reached = ()
    if reached != tuple(shape):
        raise ShapeError(
            f"{dims(x)} cannot be repeated to {tuple(shape)}", hint="only dimensions of 1 may grow"
        )
    return x if dims(x) == reached else b.Expand(x, list(shape))


@op("broadcast_like", catalogued=True)
def broadcast_like(
    b: Builder, x: Value, like: Value, broadcast_axes: Axes, name: str | None
) -> Value:
    """`x` repeated to the shape of `like`; `broadcast_axes` are those of `like` that `x` lacks."""
    missing = rank_of(like) - rank_of(x)
    if not is_static(like):
        lacks = broadcast_axes is not None and missing > 0
        wide = b.Unsqueeze(x, axes_of(like, broadcast_axes)) if lacks else x
        return b.Expand(wide, list(sizes_of(like)))
    if broadcast_axes is None or missing <= 0:
        return _expand(b, x, dims(like))
    axes = axes_of(like, broadcast_axes)
    if len(axes) < missing:
        raise ArgumentError(f"broadcast_axes {axes} leave axes of {dims(like)} that x lacks")
    if len(axes) > missing:
        return _expand(b, x, dims(like))
    return _expand(b, b.Unsqueeze(x, axes), dims(like))


@op("broadcast_to_compatible_with", "math.broadcast_to_compatible_with")
def broadcast_to_compatible_with(
    b: Builder, x: Value, compatible: list[Value], name: str | None = None
) -> Value:
    """`x` repeated to the shape that arithmetic of it with all of `compatible` would have."""
    shapes = [dims(x), *(dims(other) for other in compatible)]
    try:
        return _expand(b, x, np.broadcast_shapes(*shapes))
    except ValueError:
        raise ShapeError(f"shapes {shapes} are not compatible") from None


@op("expand")
def expand(b: Builder, x: Value, expand_size: Sequence[int], name: str | None = None) -> Value:
    """`x` repeated to `expand_size`; -1 keeps a dimension, new ones may lead."""
    if not isinstance(expand_size, list | tuple) or len(expand_size) < rank_of(x):
        raise ArgumentError(f"expand_size names every dimension of {dims(x)}, got {expand_size!r}")
    lead = len(expand_size) - rank_of(x)
    have = (None,) * lead + dims(x)
    shape = [d if size == -1 else size for size, d in zip(expand_size, have, strict=True)]
    if any(d is None or d < 1 for d in shape):
        raise ArgumentError(f"expand_size {list(expand_size)} does not say every new dimension")
    return _expand(b, x, [int(d or 0) for d in shape])


@op("elem_cnt")
def elem_cnt(
    b: Builder, inputs: Value, dtype: DType | None = None, name: str | None = None
) -> Value:
    """The number of elements at the call, shape (1,), int32 unless said."""
    return b.Cast(b.Reshape(b.Size(inputs), [1]), to=element_type(dtype, int32))


@op("math.reduced_shape_elem_cnt", catalogued=True)
def reduced_shape_elem_cnt(
    b: Builder, input_blob: Value, axis: Axes, dtype: DType | None, name: str | None
) -> Value:
    """The number of elements that a reduction over `axis` sees, shape (1,), int32 unless said."""
    dtype = element_type(dtype, int32)
    extents = [sizes_of(input_blob)[a] for a in axes_of(input_blob, axis)]
    known = math.prod(d for d in extents if isinstance(d, int))
    total = b.const([known], int64)
    for name in (d for d in extents if isinstance(d, str)):
        total = b.Mul(total, b.vector([name]))
    return b.const([known], dtype) if not total.producer() else b.Cast(total, to=dtype)


@op("reverse")
def reverse(b: Builder, input: Value, axis: int | Sequence[int], name: str | None = None) -> Value:
    """The elements along `axis` from the last to the first."""
    if isinstance(axis, int):
        axis = [axis]
    if not isinstance(axis, list | tuple):
        raise ArgumentError(f"axis is an int or a list of them, got {axis!r}")
    axes = sorted({axis_of(a, rank_of(input)) for a in axis})
    count = len(axes)
    if not count:
        return input
    return b.Slice(input, [-1] * count, [-(2**31)] * count, axes, [-1] * count)


@op("range", catalogued=True)
def range_(
    b: Builder, start: int, limit: int | None, delta: int, dtype: DType | None, name: str | None
) -> Value:
    """The whole numbers from `start` (0, given one number) below `limit` by `delta`, int64."""
    first, last = (0, start) if limit is None else (start, limit)
    if not all(isinstance(n, int) for n in (first, last, delta)) or delta == 0:
        raise ArgumentError(f"range takes ints and no delta of 0, got {first}, {last}, {delta}")
    numbers = np.arange(first, last, delta)
    if not numbers.size:
        raise ArgumentError(f"nothing lies from {first} to {last} by {delta}")
    return b.const(numbers.astype(element_type(dtype, int64).numpy))
