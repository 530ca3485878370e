"""Scatters that add, in a form that every provider can run."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, float16, float32
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.dimension import Dimension
from flow2onnx.graph.types import dtype_of

__all__ = ["scatter_add", "scatter_sum", "zeros"]


def zeros(b: Builder, shape: Sequence[int | str | Dimension], dtype: DType) -> Value:
    """Zeros of `shape`, made by ConstantOfShape, which keeps large ones out of the file."""
    known = all(isinstance(d, int) for d in shape)
    sizes = np.asarray(shape, np.int64) if known else list(shape)
    made: Value = b.ConstantOfShape(sizes, value=np.zeros(1, dtype.numpy))
    return made


def scatter_add(
    b: Builder, op_type: str, base: Value, indices: Value, parts: Value, **attributes: Any
) -> Value:
    """`base` to which the scatter `op_type` adds `parts` at `indices`."""
    # the CPU provider cannot add in half precision, and long sums ask for more anyway
    is_half = dtype_of(base) == float16
    wide = [b.Cast(v, to=float32) if is_half else v for v in (base, parts)]
    operands = wide[0], indices, wide[1]
    total = b.emit(op_type, operands, {**attributes, "reduction": "add"})[0]
    return b.Cast(total, to=float16) if is_half else total


def scatter_sum(
    b: Builder,
    op_type: str,
    shape: Sequence[int | str | Dimension],
    indices: Value,
    parts: Value,
    **attributes: Any,
) -> Value:
    """Zeros of `shape` to which the scatter `op_type` adds `parts` at `indices`."""
    # no zeros in half precision: the sum is made in single precision
    is_half = dtype_of(parts) == float16
    wide = b.Cast(parts, to=float32) if is_half else parts
    total = scatter_add(b, op_type, zeros(b, shape, dtype_of(wide)), indices, wide, **attributes)
    return b.Cast(total, to=float16) if is_half else total
