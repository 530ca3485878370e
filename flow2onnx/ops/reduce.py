"""Reductions. A full reduction has shape (1,): OneFlow 0.4 has no blobs of rank 0."""

import numpy as np

from flow2onnx.dtypes import int32
from flow2onnx.graph import Builder, Value, rank_of
from flow2onnx.ops.axes import Axes, axes_of, axis_of
from flow2onnx.trace.op import op


def _reduce(b: Builder, op_type: str, x: Value, axis: Axes, keepdims: bool) -> Value:
    axes = axes_of(x, axis)
    if not axes:
        return x
    result = b.emit(op_type, (x, np.asarray(axes, np.int64)), {"keepdims": int(keepdims)})[0]
    return result if rank_of(result) else b.Reshape(result, [1])


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


@op("math.argmax", earlier={"0.3.0": "(input, name=None)"})
def argmax(b: Builder, input: Value, axis: int = -1, name: str | None = None) -> Value:
    """The position of the largest element along `axis`, int32."""
    return b.Cast(b.ArgMax(input, axis=axis_of(axis, rank_of(input)), keepdims=0), to=int32)
