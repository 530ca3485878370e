"""What is known of a value while the graph is built: shape, element type, constant content."""

import math
from typing import Any

import numpy as np
from onnx_ir import Value

from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import ShapeError

__all__ = ["constant_of", "dims", "dtype_of", "is_static", "rank_of", "size_of"]


def is_static(value: Value) -> bool:
    """Whether every dimension is known."""
    return value.shape is not None and value.shape.is_static()


def dims(value: Value) -> tuple[int, ...]:
    """The shape of a value whose every dimension is known."""
    if value.shape is None or not value.shape.is_static():
        raise ShapeError(
            f"{value.name} has a shape known only at run time: {value.shape}",
            hint="this operator needs a static shape",
        )
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # static, hence ints


def rank_of(value: Value) -> int:
    """The number of dimensions."""
    assert value.shape is not None, f"{value.name} has no shape"
    return len(value.shape)


def size_of(value: Value) -> int:
    """The number of elements."""
    return math.prod(dims(value))


def dtype_of(value: Value) -> DType:
    """The element type."""
    assert value.dtype is not None, f"{value.name} has no element type"
    return by_code(int(value.dtype))


def constant_of(value: Value | None) -> np.ndarray[Any, Any] | None:
    """The content of a value that is the same at every run, else None."""
    if value is None or value.const_value is None:
        return None
    return value.const_value.numpy()
