"""Shape, element type and constant content of values while a graph is built."""

import math
from typing import Any

import numpy as np
from onnx_ir import Value

from flow2onnx.dtypes import DType, by_code
from flow2onnx.errors import UnknownShapeError

__all__ = [
    "Sizes",
    "bounds_of",
    "constant_of",
    "dims",
    "dtype_of",
    "is_static",
    "limits_of",
    "may_match",
    "rank_of",
    "size_of",
    "sizes_of",
]

# A shape; what is known at run time only has a name, the same for all that are equal.
Sizes = tuple[int | str, ...]

_STATIC = "this needs a static shape: flow.cast_to_static_shape fills up with zeros to one"


def is_static(value: Value) -> bool:
    """True if every dimension is known."""
    return value.shape is not None and value.shape.is_static()


def dims(value: Value) -> tuple[int, ...]:
    """The shape of a value whose every dimension is known."""
    if value.shape is None or not value.shape.is_static():
        raise _unknown_shape(value, _STATIC)
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # static, hence ints


def sizes_of(value: Value) -> Sizes:
    """The shape of a value, with names for the sizes known at run time only.

    A builder takes such a list wherever it takes sizes, and reads what has a name off the values.
    """
    shape = () if value.shape is None else value.shape
    found = tuple(d if isinstance(d, int) else d.value for d in shape)
    if value.shape is None or None in found:
        raise _unknown_shape(value, "only sizes of values made in the graph have names")
    return tuple(d for d in found if d is not None)


def bounds_of(value: Value) -> tuple[int, ...]:
    """The shape of a value, with the most it may be for each size known at run time only."""
    if is_static(value):
        return dims(value)
    found = value.meta.get("bounds", (None,))
    if None in found:
        raise _unknown_shape(value, "nothing says how large it may be: this needs an upper bound")
    return tuple(int(d) for d in found)


def limits_of(value: Value) -> Sizes:
    """The shape of a value, with the most it may be for a size known at run time only, or its name
    where nothing says.
    """
    bounds = value.meta.get("bounds") or (None,) * rank_of(value)
    pairs = zip(sizes_of(value), bounds, strict=True)
    return tuple(d if isinstance(d, int) or most is None else most for d, most in pairs)


def may_match(x: Value, y: Value) -> bool:
    """True if two shapes are the same as far as they are known."""
    pairs = list(zip(sizes_of(x), sizes_of(y), strict=False))
    known = [(a, b) for a, b in pairs if isinstance(a, int) and isinstance(b, int)]
    return rank_of(x) == rank_of(y) and all(a == b for a, b in known)


def _unknown_shape(value: Value, hint: str) -> UnknownShapeError:
    return UnknownShapeError(
        f"{value.name} has a shape known only at run time: {value.shape}", hint=hint
    )


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
