"""Orders: sorting, the largest, where they stand. Positions are int32."""

from flow2onnx.dtypes import int8, int32, int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of, sizes_of
from flow2onnx.ops.arguments import axis_of
from flow2onnx.ops.reduce import not_finite
from flow2onnx.trace.op import op

_DIRECTIONS = {"ASCENDING": 0, "DESCENDING": 1}


def _top_k(b: Builder, x: Value, axis: int, direction: str) -> tuple[Value, Value]:
    """The values along `axis` in order, and where each stood."""
    if direction not in _DIRECTIONS:
        raise ArgumentError(f"direction is ASCENDING or DESCENDING, got {direction!r}")
    along = axis_of(axis, rank_of(x))
    largest = _DIRECTIONS[direction]
    operands = x, [sizes_of(x)[along]]
    values, places = b.several("TopK", *operands, axis=along, largest=largest, outputs=2)
    return values, places


@op("sort", catalogued=True)
def sort(b: Builder, input: Value, axis: int, direction: str, name: str | None) -> Value:
    """The values in order along `axis`."""
    return _top_k(b, input, axis, direction)[0]


@op("argsort", catalogued=True)
def argsort(b: Builder, input: Value, axis: int, direction: str, name: str | None) -> Value:
    """Where the values in order along `axis` stand; of equal ones the first comes first."""
    return b.Cast(_top_k(b, input, axis, direction)[1], to=int32)


@op("math.top_k", catalogued=True)
def top_k(b: Builder, input: Value, axis: int, k: int, sorted: bool, name: str | None) -> Value:
    """Where the `k` largest along `axis` stand, the largest first; all of them for a greater k."""
    if not isinstance(k, int) or k < 1:
        raise ArgumentError(f"k is a positive int, got {k!r}")
    along = axis_of(axis, rank_of(input))
    count = min(k, dims(input)[along])
    return b.Cast(b.several("TopK", input, [count], axis=along, outputs=2)[1], to=int32)


@op("math.in_top_k", "in_top_k")
def in_top_k(
    b: Builder, targets: Value, predictions: Value, k: int, name: str | None = None
) -> Value:
    """1 for each sample whose target has fewer than `k` classes above it, ties not counted.

    0 where a prediction is not finite or the target is no class.
    """
    if rank_of(predictions) != 2 or dims(targets) != dims(predictions)[:1]:
        raise ShapeError(
            f"targets {dims(targets)} do not fit predictions {dims(predictions)}",
            hint="targets are (batch,), predictions (batch, classes)",
        )
    if dtype_of(targets).is_floating_point:
        raise DTypeError(f"targets are class numbers, got {dtype_of(targets).name}")
    classes = dims(predictions)[1]
    given = b.Unsqueeze(b.Cast(targets, to=int64), [1])
    target = b.Clip(given, 0, classes - 1)
    above = b.Cast(b.Greater(predictions, b.GatherElements(predictions, target, axis=1)), to=int32)
    strange = b.Cast(not_finite(b, predictions), to=int32)
    no_class = b.Mul(b.Cast(b.Not(b.Equal(given, target)), to=int32), k)
    against = b.Concat(above, b.Mul(strange, k), no_class, axis=1)
    return b.Cast(b.Less(b.ReduceSum(against, [1], keepdims=0), k), to=int8)
