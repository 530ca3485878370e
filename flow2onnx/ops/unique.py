"""Values without their repetitions. What is left is padded to the length of what was given."""

from math import prod

from flow2onnx.dtypes import DType, int32, int64
from flow2onnx.errors import DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.lowering.scatters import scatter_sum, zeros
from flow2onnx.trace.op import op


def _unique(b: Builder, x: Value) -> tuple[Value, Value, Value, Value]:
    """Different values, in order of appearance; where each element went; counts; how many."""
    kind = dtype_of(x) if dtype_of(x).is_floating_point else int64
    wide = x if dtype_of(x) == kind else b.Cast(x, to=kind)
    y, _, places, counts = b.several("Unique", wide, sorted=0, outputs=4)
    values = y if dtype_of(x) == kind else b.Cast(y, to=dtype_of(x))
    length = dims(x)[0]
    return (
        _pad_to(b, values, length),
        b.Reshape(places, [length]),
        _pad_to(b, counts, length),
        b.Reshape(b.Shape(y), [1]),
    )


def _pad_to(b: Builder, x: Value, length: int) -> Value:
    """`x` with zeros behind it, `length` in all."""
    longer = b.Concat(x, zeros(b, [length], dtype_of(x)), axis=0)
    return b.Reshape(b.Slice(longer, [0], [length]), [length])


@op("experimental.unique_with_counts")
def unique_with_counts(
    b: Builder, x: Value, out_idx: DType = int32, name: str | None = None
) -> list[Value]:
    """The different values of a vector, where each element went, how often each is, how many."""
    if rank_of(x) != 1:
        raise ShapeError(f"x is a vector, got {dims(x)}", hint="flow.flatten makes one")
    if out_idx not in (int32, int64):
        raise DTypeError(f"out_idx is flow.int32 or flow.int64, got {out_idx!r}")
    y, *numbers = _unique(b, x)
    return [y, *(b.Cast(n, to=out_idx) for n in numbers)]


@op("experimental.indexed_slices_reduce_sum")
def indexed_slices_reduce_sum(
    b: Builder, indices: Value, values: Value, name: str | None = None
) -> list[Value]:
    """The different indices, the sum of the values of each, and how many there are."""
    k = rank_of(indices)
    if dims(values)[:k] != dims(indices) or k == rank_of(values):
        raise ShapeError(f"values {dims(values)} hold no slice for each of indices {dims(indices)}")
    if dtype_of(indices).is_floating_point:
        raise DTypeError(f"indices are whole numbers, got {dtype_of(indices).name}")
    length = prod(dims(indices))
    different, places, _, count = _unique(b, b.Reshape(indices, [length]))
    rows = b.Reshape(values, [length, *dims(values)[k:]])
    total = scatter_sum(b, "ScatterND", dims(rows), b.Unsqueeze(places, [-1]), rows)
    return [different, total, count]
