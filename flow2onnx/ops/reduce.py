"""Reductions. A full reduction has shape (1,): OneFlow 0.4 has no blobs of rank 0."""

import numpy as np

from flow2onnx.dtypes import int8, int32, int64, uint8
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.ops.arguments import Axes, at_least_1d, axes_of, axis_of
from flow2onnx.ops.arithmetic import condition
from flow2onnx.trace.op import op

# The standard has no sums and products of 8 bits; those of 32 wrap to the same.
_WIDE = ("ReduceSum", "ReduceProd")


def _reduce(b: Builder, op_type: str, x: Value, axis: Axes, keepdims: bool) -> Value:
    axes = axes_of(x, axis)
    if not axes:
        return x
    is_narrow = dtype_of(x) in (int8, uint8) and op_type in _WIDE
    operands = b.Cast(x, to=int32) if is_narrow else x, np.asarray(axes, np.int64)
    result = b.emit(op_type, operands, {"keepdims": int(keepdims)})[0]
    return at_least_1d(b, b.Cast(result, to=dtype_of(x)) if is_narrow else result)


@op("math.reduce_sum")
def reduce_sum(
    b: Builder,
    input_tensor: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The sum over `axis`."""
    return _reduce(b, "ReduceSum", input_tensor, axis, keepdims)


@op("math.reduce_mean")
def reduce_mean(
    b: Builder,
    input_blob: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The mean over `axis`."""
    return _reduce(b, "ReduceMean", input_blob, axis, keepdims)


@op(
    "math.reduce_max",
    earlier={"0.1.5": "(input_tensor, axis=None, keepdims=False, name=None)"},
)
def reduce_max(
    b: Builder, x: Value, axis: Axes = None, keepdims: bool = False, name: str | None = None
) -> Value:
    """The largest over `axis`; ties share the gradient."""
    return _reduce(b, "ReduceMax", x, axis, keepdims)


@op(
    "math.reduce_min",
    earlier={"0.1.5": "(input_tensor, axis=None, keepdims=False, name=None)"},
)
def reduce_min(
    b: Builder, x: Value, axis: Axes = None, keepdims: bool = False, name: str | None = None
) -> Value:
    """The smallest over `axis`; ties share the gradient."""
    return _reduce(b, "ReduceMin", x, axis, keepdims)


@op("math.reduce_variance")
def reduce_variance(
    b: Builder,
    input_tensor: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The biased variance over `axis`, as mean(x²) - mean(x)²."""
    mean = _reduce(b, "ReduceMean", input_tensor, axis, keepdims)
    square = _reduce(b, "ReduceMean", b.Mul(input_tensor, input_tensor), axis, keepdims)
    return b.Sub(square, b.Mul(mean, mean))


@op("math.reduce_std")
def reduce_std(
    b: Builder,
    input_tensor: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The root of `reduce_variance`."""
    return b.Sqrt(reduce_variance.lower(b, input_tensor, axis, keepdims))


@op("math.reduce_prod")
def reduce_prod(
    b: Builder,
    x: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The product over `axis`."""
    return _reduce(b, "ReduceProd", x, axis, keepdims)


@op("math.reduce_euclidean_norm")
def reduce_euclidean_norm(
    b: Builder,
    input_tensor: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The root of the sum of squares over `axis`."""
    square = b.Mul(input_tensor, input_tensor)
    return b.Sqrt(_reduce(b, "ReduceSum", square, axis, keepdims))


@op("math.reduce_logsumexp")
def reduce_logsumexp(
    b: Builder,
    input_tensor: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """The logarithm of the sum of e^x over `axis`, which overflows as OneFlow's does."""
    return b.Log(_reduce(b, "ReduceSum", b.Exp(input_tensor), axis, keepdims))


def _truth(b: Builder, x: Value) -> Value:
    """1 where `x` is not 0, int8."""
    return b.Cast(condition(b, x), to=int8)


@op("math.reduce_all")
def reduce_all(
    b: Builder,
    x: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """1 where nothing over `axis` is 0, int8."""
    return _reduce(b, "ReduceMin", _truth(b, x), axis, keepdims)


@op("math.reduce_any")
def reduce_any(
    b: Builder,
    x: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """1 where something over `axis` is not 0, int8."""
    return _reduce(b, "ReduceMax", _truth(b, x), axis, keepdims)


@op("math.two_stage_reduce_max")
def two_stage_reduce_max(
    b: Builder,
    x: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """`reduce_max`, which devices once made in two stages."""
    return reduce_max.lower(b, x, axis, keepdims)


@op("math.two_stage_reduce_min")
def two_stage_reduce_min(
    b: Builder,
    x: Value,
    axis: Axes = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Value:
    """`reduce_min`, which devices once made in two stages."""
    return reduce_min.lower(b, x, axis, keepdims)


@op("experimental.square_sum")
def square_sum(b: Builder, x: Value, name: str | None = None) -> Value:
    """The sum of all squares, shape (1,)."""
    return _reduce(b, "ReduceSum", b.Mul(x, x), None, False)


@op("math.argmax", earlier={"0.3.0": "(input, name=None)"})
def argmax(b: Builder, input: Value, axis: int = -1, name: str | None = None) -> Value:
    """The position of the largest element along `axis`, int32."""
    place = b.ArgMax(input, axis=axis_of(axis, rank_of(input)), keepdims=0)
    return at_least_1d(b, b.Cast(place, to=int32))


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
