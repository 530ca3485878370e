"""What is not a number, or not a finite one."""

from flow2onnx.dtypes import int64
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.trace.op import op


def not_finite(b: Builder, x: Value) -> Value:
    """Where `x` is infinite or no number, as ONNX asks for conditions."""
    if not dtype_of(x).is_floating_point:
        raise DTypeError(f"takes real numbers, got {dtype_of(x).name}", hint="use flow.cast first")
    return b.Or(b.IsNaN(x), b.IsInf(x))


@op("count_not_finite")
def count_not_finite(b: Builder, x: Value, name: str | None = None) -> Value:
    """How many elements are infinite or no number, int64."""
    found = b.Cast(not_finite(b, x), to=int64)
    return b.Reshape(b.ReduceSum(found, list(range(rank_of(x))), keepdims=0), [1])


@op("multi_count_not_finite")
def multi_count_not_finite(
    b: Builder, x: list[Value] | None = None, name: str | None = None
) -> Value:
    """How many elements of several blobs are infinite or no number, int64."""
    if not x:
        raise ArgumentError("multi_count_not_finite needs at least one blob in x")
    counts = [count_not_finite.lower(b, value) for value in x]
    return counts[0] if len(counts) == 1 else b.ReduceSum(b.Concat(*counts, axis=0), [0])
