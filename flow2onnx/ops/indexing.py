"""Parts of tensors: slices, gathers, selections."""

from collections.abc import Sequence
from typing import Any

from flow2onnx.dtypes import DType, element_type, float32, int32, int64
from flow2onnx.errors import ArgumentError, DTypeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import bounds_of, dtype_of, rank_of, sizes_of
from flow2onnx.ops.arguments import axis_of
from flow2onnx.ops.arithmetic import condition
from flow2onnx.trace.op import op


def as_index(b: Builder, indices: Value) -> Value:
    """Indices in an element type that ONNX's gathers take."""
    if dtype_of(indices).is_floating_point:
        raise DTypeError(f"indices are whole numbers, got {dtype_of(indices).name}")
    return indices if dtype_of(indices) in (int32, int64) else b.Cast(indices, to=int32)


@op("slice", catalogued=True)
def slice_(
    b: Builder, x: Value, begin: Sequence[int | None], size: Sequence[int | None], name: str | None
) -> Value:
    """From `begin` (None: the start) as many as `size` (None or -1: all that follow), per axis."""
    shape = bounds_of(x)
    if not len(begin) == len(size) == len(shape):
        raise ArgumentError(f"begin and size need one entry for each dimension of {shape}")
    starts, ends = [], []
    for axis, (first, count, extent) in enumerate(zip(begin, size, shape, strict=True)):
        start = 0 if first is None else first + extent if first < 0 else first
        end = extent if count in (None, -1) else start + int(count or 0)
        if not 0 <= start < end <= extent:
            raise ArgumentError(f"begin {first}, size {count} leave axis {axis} of {shape}")
        # counted from the end, which a run decides
        is_late = isinstance(sizes_of(x)[axis], str) and start != (first or 0)
        starts.append(start - extent if is_late else start)
        ends.append(end - extent if is_late and end != extent else end)
    return b.Slice(x, starts, ends)


Slices = Sequence[tuple[int | None, int | None, int | None]]


def part_of(x: Value, slice_tup_list: Slices) -> list[slice]:
    """One slice for each leading axis of `x` that a (start, stop, step) speaks of."""
    if not isinstance(slice_tup_list, list | tuple) or not all(
        isinstance(t, list | tuple) and len(t) == 3 for t in slice_tup_list
    ):
        raise ArgumentError(f"slices are (start, stop, step) tuples, got {slice_tup_list!r}")
    if len(slice_tup_list) > rank_of(x):
        raise ArgumentError(f"more slices than dimensions of {bounds_of(x)}: {slice_tup_list}")
    if any(step == 0 for _, _, step in slice_tup_list):
        raise ArgumentError("a slice step of 0 goes nowhere")
    return [slice(*t) for t in slice_tup_list]


@op("slice_v2")
def slice_v2(b: Builder, x: Value, slice_tup_list: Slices, name: str | None = None) -> Value:
    """One (start, stop, step) for each leading axis; None leaves an end open."""
    parts = part_of(x, slice_tup_list)
    if not parts:
        return x
    starts, ends, steps = [], [], []
    for part, extent in zip(parts, sizes_of(x), strict=False):
        start, end, step = _open(part) if isinstance(extent, str) else part.indices(extent)
        starts.append(start)
        ends.append(end if end >= 0 or isinstance(extent, str) else -(2**31))
        steps.append(step)
    return b.Slice(x, starts, ends, list(range(len(starts))), steps)


def _open(part: slice) -> tuple[int, int, int]:
    """A slice of as many elements as a run has."""
    step = 1 if part.step is None else part.step
    first, last = (0, 2**31) if step > 0 else (2**31, -(2**31))
    start, stop = (
        end if said is None else said for said, end in ((part.start, first), (part.stop, last))
    )
    return start, stop, step


@op("gather")
def gather(
    b: Builder,
    params: Value,
    indices: Value,
    validate_indices: Any = None,
    axis: int | None = None,
    batch_dims: int = 0,
    name: str | None = None,
) -> Value:
    """The slices of `params` along `axis` that `indices` name."""
    axis = axis_of(batch_dims if axis is None else axis, rank_of(params))
    if batch_dims == 0:
        return b.Gather(params, as_index(b, indices), axis=axis)
    if axis != batch_dims:
        raise UnsupportedError(f"batch_dims={batch_dims} needs axis={batch_dims}, got {axis}")
    # OneFlow goes by the rank of the indices: BERT says batch_dims=2 of indices (batch, places).
    shared = min(batch_dims, rank_of(indices) - 1)
    column = b.Unsqueeze(b.Cast(as_index(b, indices), to=int64), [-1])
    return b.GatherND(params, column, batch_dims=shared)


@op("one_hot")
def one_hot(
    b: Builder,
    indices: Value,
    depth: int,
    on_value: float = 1,
    off_value: float = 0,
    axis: int = -1,
    dtype: DType | None = None,
    name: str | None = None,
) -> Value:
    """A new axis of length `depth` that holds `on_value` at the index and `off_value` elsewhere."""
    dtype = element_type(dtype, float32)
    rank = rank_of(indices) + 1
    position = axis_of(axis, rank)
    column = b.Unsqueeze(as_index(b, indices), [position])
    along = [1] * (rank - position - 1)
    # ONNX has OneHot, but the CPU kernel lacks int32 indices: a comparison serves every type.
    grid = b.const(list(range(depth)), dtype_of(column))
    hit = b.Equal(column, b.Reshape(grid, [depth, *along]) if along else grid)
    return b.Where(hit, b.const(on_value, dtype), b.const(off_value, dtype))


@op("where", catalogued=True)
def where(
    b: Builder, condition: Value, x: Value | None, y: Value | None, name: str | None
) -> Value:
    """x where `condition` is not 0, else y, broadcast; without both, what `argwhere` gives."""
    if x is None and y is None:
        return argwhere.lower(b, condition)
    if x is None or y is None:
        raise ArgumentError("where needs both x and y", hint="flow.argwhere gives the coordinates")
    return b.Where(_condition(b, condition), x, y)


@op("argwhere")
def argwhere(
    b: Builder, condition: Value, dtype: DType | None = None, name: str | None = None
) -> Value:
    """The coordinates of all elements that are not 0, a row each: how many is known at the call."""
    places = b.Transpose(b.NonZero(_condition(b, condition)), perm=[1, 0])
    return b.Cast(places, to=element_type(dtype, int32))


@op("nonzero")
def nonzero(b: Builder, a: Value, name: str | None = None) -> Value:
    """The coordinates of all elements that are not 0, a column each."""
    return b.Cast(b.NonZero(_condition(b, a)), to=int32)


_condition = condition
