"""Reductions. A full reduction has shape (1,): OneFlow 0.4 has no blobs of rank 0."""

from collections.abc import Callable

import numpy as np

from flow2onnx.dtypes import int8, int32, int64, uint8
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.ops.arguments import Axes, at_least_1d, axes_of, axis_of, real
from flow2onnx.ops.arithmetic import condition
from flow2onnx.trace.op import Operator, op

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


def _truth(b: Builder, x: Value) -> Value:
    """1 where `x` is not 0, int8."""
    return b.Cast(condition(b, x), to=int8)


Reduction = Callable[[Builder, Value, Axes, bool], Value]


def _reduction(name: str, doc: str, compute: Reduction) -> Operator[Value]:
    """Publish ``(x, axis=None, keepdims=False, name=None)``, or as the catalogue calls them."""

    def lower(
        b: Builder, x: Value, axis: Axes = None, keepdims: bool = False, name: str | None = None
    ) -> Value:
        return compute(b, x, axis, keepdims)

    lower.__name__, lower.__doc__ = name, doc
    return op(f"math.{name}", catalogued=True)(lower)


def _node(op_type: str) -> Reduction:
    return lambda b, x, axis, keepdims: _reduce(b, op_type, x, axis, keepdims)


def _variance(b: Builder, x: Value, axis: Axes, keepdims: bool) -> Value:
    mean = _reduce(b, "ReduceMean", x, axis, keepdims)
    square = _reduce(b, "ReduceMean", b.Mul(x, x), axis, keepdims)
    return b.Sub(square, b.Mul(mean, mean))


reduce_sum = _reduction("reduce_sum", "The sum over `axis`.", _node("ReduceSum"))
reduce_mean = _reduction("reduce_mean", "The mean over `axis`.", _node("ReduceMean"))
reduce_max = _reduction(
    "reduce_max", "The largest over `axis`; ties share the gradient.", _node("ReduceMax")
)
reduce_min = _reduction(
    "reduce_min", "The smallest over `axis`; ties share the gradient.", _node("ReduceMin")
)
reduce_variance = _reduction(
    "reduce_variance", "The biased variance over `axis`, as mean(x²) - mean(x)².", _variance
)
reduce_std = _reduction(
    "reduce_std",
    "The root of `reduce_variance`.",
    lambda b, x, *over: b.Sqrt(_variance(b, x, *over)),
)
reduce_prod = _reduction("reduce_prod", "The product over `axis`.", _node("ReduceProd"))
reduce_euclidean_norm = _reduction(
    "reduce_euclidean_norm",
    "The root of the sum of squares over `axis`.",
    lambda b, x, *over: b.Sqrt(_reduce(b, "ReduceSum", b.Mul(x, x), *over)),
)
reduce_logsumexp = _reduction(
    "reduce_logsumexp",
    "The logarithm of the sum of e^x over `axis`, which overflows as OneFlow's does.",
    lambda b, x, *over: b.Log(_reduce(b, "ReduceSum", b.Exp(x), *over)),
)
reduce_all = _reduction(
    "reduce_all",
    "1 where nothing over `axis` is 0, int8.",
    lambda b, x, *over: _reduce(b, "ReduceMin", _truth(b, x), *over),
)
reduce_any = _reduction(
    "reduce_any",
    "1 where something over `axis` is not 0, int8.",
    lambda b, x, *over: _reduce(b, "ReduceMax", _truth(b, x), *over),
)
two_stage_reduce_max = _reduction(
    "two_stage_reduce_max", "`reduce_max`, which devices once made in two stages.", reduce_max.lower
)
two_stage_reduce_min = _reduction(
    "two_stage_reduce_min", "`reduce_min`, which devices once made in two stages.", reduce_min.lower
)


@op("experimental.square_sum")
def square_sum(b: Builder, x: Value, name: str | None = None) -> Value:
    """The sum of all squares, shape (1,)."""
    return _reduce(b, "ReduceSum", b.Mul(x, x), None, False)


@op("math.argmax")
def argmax(b: Builder, input: Value, axis: int = -1, name: str | None = None) -> Value:
    """The position of the largest element along `axis`, int32."""
    place = b.ArgMax(input, axis=axis_of(axis, rank_of(input)), keepdims=0)
    return at_least_1d(b, b.Cast(place, to=int32))


def not_finite(b: Builder, x: Value) -> Value:
    """True where `x` is infinite or NaN."""
    return b.Or(b.IsNaN(real(x)), b.IsInf(x))


@op("count_not_finite")
def count_not_finite(b: Builder, x: Value, name: str | None = None) -> Value:
    """The number of elements that are infinite or NaN, int64."""
    found = b.Cast(not_finite(b, x), to=int64)
    return b.Reshape(b.ReduceSum(found, list(range(rank_of(x))), keepdims=0), [1])


@op("multi_count_not_finite")
def multi_count_not_finite(
    b: Builder, x: list[Value] | None = None, name: str | None = None
) -> Value:
    """The number of elements of several blobs that are infinite or NaN, int64."""
    if not x:
        raise ArgumentError("multi_count_not_finite needs at least one blob in x")
    counts = [count_not_finite.lower(b, value) for value in x]
    return counts[0] if len(counts) == 1 else b.ReduceSum(b.Concat(*counts, axis=0), [0])
