"""Writing into parts of tensors, and reading by coordinates."""

from collections.abc import Sequence
from math import prod

import numpy as np

from flow2onnx.dtypes import int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import bounds_of, dims, dtype_of, rank_of
from flow2onnx.lowering.scatters import scatter_add, scatter_sum, zeros
from flow2onnx.ops.arguments import axis_of
from flow2onnx.ops.arithmetic import condition
from flow2onnx.ops.indexing import Slices, as_index, part_of, slice_v2
from flow2onnx.ops.variable import assign
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import composite, op


def _coordinates(b: Builder, indices: Value, shape: Sequence[int]) -> Value:
    """Indices whose last axis holds a coordinate for each of the first axes of `shape`."""
    if dtype_of(indices).is_floating_point:
        raise DTypeError(f"indices are whole numbers, got {dtype_of(indices).name}")
    depth = indices.shape[-1] if indices.shape else None
    if not isinstance(depth, int) or depth > len(shape):
        raise ShapeError(f"indices {indices.shape} hold no coordinates of {tuple(shape)}")
    return indices if dtype_of(indices) == int64 else b.Cast(indices, to=int64)


def _check_updates(indices: Value, updates: Value, shape: Sequence[int]) -> None:
    *places, depth = bounds_of(indices)
    have, wanted = bounds_of(updates), (*places, *tuple(shape)[depth:])
    if have != wanted:
        raise ShapeError(f"updates are {have}, the slices that indices name are {wanted}")


@op("gather_nd")
def gather_nd(b: Builder, params: Value, indices: Value, name: str | None = None) -> Value:
    """The slices of `params` whose coordinates the last axis of `indices` holds."""
    places = _coordinates(b, indices, bounds_of(params))
    if rank_of(indices) > 1:
        return b.GatherND(params, places)
    slices = b.GatherND(params, b.Unsqueeze(places, [0]))
    return slices if rank_of(slices) == 1 else b.Squeeze(slices, [0])


@op("scatter_nd", catalogued=True)
def scatter_nd(
    b: Builder, indices: Value, updates: Value, shape: Sequence[int], name: str | None
) -> Value:
    """Zeros of `shape` with `updates` added where `indices` point."""
    if not isinstance(shape, list | tuple) or not all(isinstance(d, int) and d > 0 for d in shape):
        raise ArgumentError(f"shape is a list or tuple of positive ints, got {shape!r}")
    places = _coordinates(b, indices, shape)
    _check_updates(indices, updates, shape)
    return scatter_sum(b, "ScatterND", shape, places, updates)


@op("tensor_scatter_nd_add")
def tensor_scatter_nd_add(
    b: Builder, params: Value, indices: Value, updates: Value, name: str | None = None
) -> Value:
    """`params` with `updates` added where `indices` point."""
    places = _coordinates(b, indices, bounds_of(params))
    _check_updates(indices, updates, bounds_of(params))
    return scatter_add(b, "ScatterND", params, places, updates)


@op("tensor_scatter_nd_update")
def tensor_scatter_nd_update(
    b: Builder, params: Value, indices: Value, updates: Value, name: str | None = None
) -> Value:
    """`params` with `updates` in place of what `indices` point to."""
    places = _coordinates(b, indices, bounds_of(params))
    _check_updates(indices, updates, bounds_of(params))
    return b.ScatterND(params, places, updates)


@op("slice_update")
def slice_update(
    b: Builder, x: Value, update: Value, slice_tup_list: Slices, name: str | None = None
) -> Value:
    """`x` with `update` in place of the part that `slice_v2` would give."""
    parts = part_of(x, slice_tup_list)
    picked = [np.arange(d)[p] for d, p in zip(dims(x), parts, strict=False)]
    wanted = (*(p.size for p in picked), *dims(x)[len(picked) :])
    if dims(update) != wanted:
        raise ShapeError(f"update is {dims(update)}, the slice of {dims(x)} is {wanted}")
    while (
        picked and picked[-1].size == dims(x)[len(picked) - 1] and (np.diff(picked[-1]) > 0).all()
    ):
        picked.pop()
    if not picked:
        return b.Identity(update)
    places = np.stack(np.meshgrid(*picked, indexing="ij"), -1)
    return b.ScatterND(x, places, update)


def _check_forward(slice_tup_list: Slices) -> None:
    if any(t[2] is not None and t[2] < 0 for t in slice_tup_list if len(t) == 3):
        raise ArgumentError("logical slices step forward", hint="flow.slice_v2 steps back too")


@op("experimental.logical_slice")
def logical_slice(b: Builder, x: Value, slice_tup_list: Slices, name: str | None = None) -> Value:
    """`slice_v2` with steps forward only."""
    _check_forward(slice_tup_list)
    return slice_v2.lower(b, x, slice_tup_list)


@composite("experimental.logical_slice_assign")
def logical_slice_assign(
    x: Blob, value: Blob, slice_tup_list: Slices, name: str | None = None
) -> None:
    """After this call the slice of variable `x` holds `value`."""
    _check_forward(slice_tup_list)
    assign.lower(x, slice_update(x, value, slice_tup_list))


@op("dim_gather")
def dim_gather(b: Builder, input: Value, dim: int, index: Value, name: str | None = None) -> Value:
    """For each element of `index` the element of `input` with that coordinate in axis `dim`."""
    axis = axis_of(dim, rank_of(input))
    have, want = list(dims(input)), list(dims(index))
    if len(have) != len(want) or [*have[:axis], *have[axis + 1 :]] != [
        *want[:axis],
        *want[axis + 1 :],
    ]:
        raise ShapeError(f"index {dims(index)} and input {dims(input)} differ beside axis {axis}")
    return b.GatherElements(input, as_index(b, index), axis=axis)


@op("masked_fill")
def masked_fill(b: Builder, x: Value, mask: Value, value: float, name: str | None = None) -> Value:
    """`value` where `mask` is not 0, else `x`."""
    return b.Where(condition(b, mask), b.like(value, x), x)


@op("diag")
def diag(b: Builder, input: Value, diagonal: int = 0, name: str | None = None) -> Value:
    """The diagonal of a matrix, or a matrix with this diagonal; positive ones lie above."""
    if not isinstance(diagonal, int):
        raise ArgumentError(f"diagonal is an int, got {diagonal!r}")
    down, right = max(-diagonal, 0), max(diagonal, 0)
    if rank_of(input) == 1:
        size = dims(input)[0] + abs(diagonal)
        blank = zeros(b, [size, size], dtype_of(input))
        return b.ScatterND(blank, _line(dims(input)[0], down, right), input)
    if rank_of(input) != 2:
        raise ShapeError(f"diag takes a vector or a matrix, got {dims(input)}")
    length = min(dims(input)[0] - down, dims(input)[1] - right)
    if length < 1:
        raise ArgumentError(f"{dims(input)} has no diagonal {diagonal}")
    return b.GatherND(input, _line(length, down, right))


def _line(length: int, down: int, right: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """The coordinates of a diagonal."""
    steps = np.arange(length, dtype=np.int64)
    return np.stack([steps + down, steps + right], -1)


# --- sums of segments -------------------------------------------------------------------------


def _segment_sum(b: Builder, data: Value, ids: Value, count: int) -> Value:
    """The sums of the rows of `data` by number; a row without a segment goes nowhere."""
    index = b.Cast(as_index(b, ids), to=int64)
    outside = b.Or(b.Less(index, 0), b.GreaterOrEqual(index, count))
    rows = b.Unsqueeze(b.Where(outside, b.const(count), index), [-1])
    return b.Slice(
        scatter_sum(b, "ScatterND", [count + 1, *dims(data)[1:]], rows, data), [0], [count]
    )


def _check_segments(data: Sequence[int], ids: Value, axis: int) -> None:
    if data[axis : axis + rank_of(ids)] != dims(ids):
        raise ShapeError(f"segment_ids {dims(ids)} do not fit axis {axis} of data {tuple(data)}")


@op("unsorted_segment_sum", "math.unsorted_segment_sum")
def unsorted_segment_sum(
    b: Builder,
    data: Value,
    segment_ids: Value,
    num_segments: int,
    axis: int = 0,
    name: str | None = None,
) -> Value:
    """The sums of the slices of `data` along `axis` that have the same number."""
    _check_count(num_segments)
    first, k = axis_of(axis, rank_of(data)), rank_of(segment_ids)
    _check_segments(dims(data), segment_ids, first)
    rows, ids = data, segment_ids
    if first or k != 1:
        before, after = dims(data)[:first], dims(data)[first + k :]
        front = [*range(first, first + k), *range(first), *range(first + k, rank_of(data))]
        rows = b.Reshape(b.Transpose(data, perm=front), [prod(dims(segment_ids)), *before, *after])
        ids = b.Reshape(segment_ids, [-1])
    total = _segment_sum(b, rows, ids, num_segments)
    return (
        total
        if not first
        else b.Transpose(total, perm=[*range(1, first + 1), 0, *range(first + 1, rank_of(total))])
    )


@op("unsorted_segment_sum_like", "math.unsorted_segment_sum_like", catalogued=True)
def unsorted_segment_sum_like(
    b: Builder, data: Value, segment_ids: Value, like: Value, axis: int, name: str | None
) -> Value:
    """`unsorted_segment_sum` with as many segments as `like` has along `axis`."""
    count = dims(like)[axis_of(axis, rank_of(like))]
    total = unsorted_segment_sum.lower(b, data, segment_ids, count, axis)
    if dims(total) != dims(like):
        raise ShapeError(f"the sums are {dims(total)}, like is {dims(like)}")
    return total


@op("unsorted_batch_segment_sum", "math.unsorted_batch_segment_sum", catalogued=True)
def unsorted_batch_segment_sum(
    b: Builder, data: Value, segment_ids: Value, num_segments: int, name: str | None
) -> Value:
    """`unsorted_segment_sum` over the last axis of `segment_ids`, for each of those before it."""
    _check_count(num_segments)
    _check_segments(dims(data), segment_ids, 0)
    k = rank_of(segment_ids)
    lead, rest = dims(segment_ids)[:-1], dims(data)[k:]
    columns = b.Reshape(data, [prod(lead), dims(segment_ids)[-1], *rest])
    ids = b.Reshape(segment_ids, [prod(lead), -1])
    return b.Reshape(_batch(b, columns, ids, num_segments), [*lead, num_segments, *rest])


def _batch(b: Builder, data: Value, ids: Value, count: int) -> Value:
    """Each sample has segments of its own, numbered on from those of the sample before."""
    samples = dims(data)[0]
    index = b.Cast(as_index(b, ids), to=int64)
    outside = b.Or(b.Less(index, 0), b.GreaterOrEqual(index, count))
    starts = b.const(np.arange(samples, dtype=np.int64)[:, None] * count)
    own = b.Where(outside, b.const(samples * count), b.Add(index, starts))
    rows = b.Reshape(data, [-1, *dims(data)[2:]])
    return _segment_sum(b, rows, b.Reshape(own, [-1]), samples * count)


def _check_count(num_segments: int) -> None:
    if not isinstance(num_segments, int) or num_segments < 1:
        raise ArgumentError(f"num_segments is a positive int, got {num_segments!r}")
