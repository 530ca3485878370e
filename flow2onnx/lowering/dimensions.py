"""Counts and positions along axes whose sizes may be known at run time only."""

import math

import numpy as np

from flow2onnx.dtypes import DType, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.dimension import Dimension, Extent
from flow2onnx.graph.types import dtype_of

__all__ = ["as_number", "check_constant", "divide", "multiply", "positions", "rows_of_batch"]

_MOST_NUMBERS = 1 << 25  # of a constant that is computed from sizes: 256 MB of positions


def check_constant(*lengths: int) -> None:
    """Raise `UnsupportedError` where a constant of these lengths would have too many numbers."""
    count = math.prod(int(length) for length in lengths)
    if count > _MOST_NUMBERS:
        raise UnsupportedError(
            f"a constant of {count} numbers would be needed; {_MOST_NUMBERS} are the most",
            hint="make the window, or the axis that it runs along, shorter",
        )


def positions(b: Builder, count: Extent, dtype: DType = int64) -> Value:
    """0, 1, …, one for each of `count` elements, in one dimension."""
    if not isinstance(count, Dimension):
        check_constant(count)
        return b.const(np.arange(count, dtype=dtype.numpy))
    every: Value = b.Range(np.int64(0), b.Squeeze(count.value, [0]), np.int64(1))
    return every if dtype == int64 else _cast(b, every, dtype)


def rows_of_batch(b: Builder, x: Value, count: Extent, share: int = 1) -> Value:
    """0, 1, …, one for each of the `count` images of `x`, times `share`, in one dimension.

    Unlike `positions`, it stays a computation where the batch stands for any.
    """
    if isinstance(count, Dimension) or count != b.free_size:
        return positions(b, count * share)
    images = b.Shape(x, start=0, end=1)
    rows = images if share == 1 else b.Mul(images, share)
    every: Value = b.Range(np.int64(0), b.Squeeze(rows, [0]), np.int64(1))
    return every


def as_number(b: Builder, size: Extent, dtype: DType) -> Value:
    """A size as a scalar of an element type."""
    if not isinstance(size, Dimension):
        return b.const(size, dtype)
    return _cast(b, b.Squeeze(size.value, [0]), dtype)


def divide(b: Builder, x: Value, count: Extent) -> Value:
    """`x` divided by a count: a product with its inverse where that is known."""
    made: Value
    if isinstance(count, Dimension):
        made = b.Div(x, as_number(b, count, dtype_of(x)))
    else:
        made = b.Mul(x, 1.0 / count)
    return made


def multiply(b: Builder, x: Value, count: Extent) -> Value:
    """`x` times a count."""
    made: Value
    if isinstance(count, Dimension):
        made = b.Mul(x, as_number(b, count, dtype_of(x)))
    else:
        made = b.Mul(x, float(count))
    return made


def _cast(b: Builder, value: Value, dtype: DType) -> Value:
    made: Value = value if dtype == int64 else b.Cast(value, to=dtype)
    return made
