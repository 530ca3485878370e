"""Lower triangles of matrices."""

from typing import Any

import numpy as np

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops.nn import dropout
from flow2onnx.trace.op import op


def _lower(b: Builder, x: Value, diagonal: int, fill_value: float, inside: Value) -> Value:
    """`inside` up to the diagonal of the two last axes of `x`, and `fill_value` above it."""
    if rank_of(x) < 2:
        raise ShapeError(f"a triangle needs two dimensions or more, got {dims(x)}")
    if not isinstance(diagonal, int):
        raise ArgumentError(f"diagonal is an int, got {diagonal!r}")
    rows, columns = (np.arange(d) for d in dims(x)[-2:])
    is_lower = b.GreaterOrEqual(rows[:, None] + diagonal, columns)
    return b.Where(is_lower, inside, b.like(fill_value, x))


@op("math.tril", "nn.tril")
def tril(
    b: Builder, x: Value, diagonal: int = 0, fill_value: float = 0, name: str | None = None
) -> Value:
    """The lower triangle of each matrix, its diagonal shifted up; `fill_value` elsewhere."""
    return _lower(b, x, diagonal, fill_value, x)


@op("math.fused_scale_tril", "nn.fused_scale_tril")
def fused_scale_tril(
    b: Builder,
    x: Value,
    diagonal: int = 0,
    fill_value: float = 0,
    scale: float = 1,
    name: str | None = None,
) -> Value:
    """`scale` times the lower triangle of each matrix; `fill_value`, not scaled, elsewhere."""
    return _lower(b, x, diagonal, fill_value, x if scale == 1 else b.Mul(x, b.like(scale, x)))


@op("math.fused_scale_tril_softmax_dropout", "nn.fused_scale_tril_softmax_dropout")
def fused_scale_tril_softmax_dropout(
    b: Builder,
    x: Value,
    diagonal: int = 0,
    fill_value: float = 0,
    scale: float = 1,
    rate: float = 0.0,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Value:
    """The softmax of `fused_scale_tril` along the last axis, then `dropout`."""
    shares = b.Softmax(fused_scale_tril.lower(b, x, diagonal, fill_value, scale), axis=-1)
    return dropout.lower(b, shares, rate, noise_shape, seed, name)
