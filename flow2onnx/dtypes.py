"""Element types under OneFlow's names, with their numpy and ONNX counterparts."""

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from flow2onnx.errors import DTypeError, spelling_hint

__all__ = [
    "DType",
    "bfloat16",
    "bool_",
    "by_code",
    "by_name",
    "by_numpy",
    "char",
    "convert_oneflow_dtype_to_numpy_dtype",
    "double",
    "dtypes",
    "element_type",
    "float",
    "float16",
    "float32",
    "float64",
    "int8",
    "int32",
    "int64",
    "record",
    "tensor_buffer",
    "uint8",
]


@dataclass(frozen=True)
class DType:
    """An element type: its OneFlow name, the ONNX `TensorProto.DataType` code, the numpy dtype."""

    name: str
    code: int
    numpy: np.dtype

    @property
    def is_floating_point(self) -> bool:
        """True if values are real numbers, so that a gradient can exist."""
        return self.name in ("float16", "bfloat16", "float32", "float64")

    def __repr__(self) -> str:
        return f"oneflow.{self.name}"


float32 = float = DType("float32", 1, np.dtype(np.float32))
float64 = double = DType("float64", 11, np.dtype(np.float64))
float16 = DType("float16", 10, np.dtype(np.float16))
bfloat16 = DType("bfloat16", 16, np.dtype(ml_dtypes.bfloat16))
int8 = char = DType("int8", 3, np.dtype(np.int8))
uint8 = DType("uint8", 2, np.dtype(np.uint8))
int32 = DType("int32", 6, np.dtype(np.int32))
int64 = DType("int64", 7, np.dtype(np.int64))
# ONNX conditions are bool; OneFlow has none and shows int8, so it never reaches the surface.
bool_ = DType("bool", 9, np.dtype(np.bool_))
# What a reader gives, on the host only: records, and one array of any size for each sample.
record = DType("record", 0, np.dtype(object))
tensor_buffer = DType("tensor_buffer", 0, np.dtype(object))

# Python's own types say not how many bits they have.
_FLOAT = type(0.0)  # noqa: UP003  # `float` is a name of this module
_PYTHON = (int, _FLOAT, bool, complex, str, object)
_ALL = (float32, float64, float16, bfloat16, int8, uint8, int32, int64, bool_)


def dtypes() -> list[DType]:
    """The element types a job can use."""
    return [d for d in _ALL if d is not bool_]


def by_code(code: int) -> DType:
    """The element type of an ONNX `TensorProto.DataType` code."""
    for dtype in _ALL:
        if dtype.code == code:
            return dtype
    raise DTypeError(f"ONNX element type {code} has no counterpart here")


def by_numpy(dtype: object) -> DType:
    """The element type of anything `numpy.dtype` accepts."""
    try:
        wanted = np.dtype(dtype)  # type: ignore[call-overload]  # numpy decides what it accepts
    except TypeError:
        raise DTypeError(f"{dtype!r} is no element type", hint="such as flow.float32") from None
    for known in _ALL:
        if known.numpy == wanted:
            return known
    names = ", ".join(d.name for d in dtypes())
    raise DTypeError(f"element type {wanted} is not supported", hint=f"convert to one of {names}")


def by_name(name: str) -> DType:
    """The element type of a OneFlow name such as ``"float32"``."""
    for dtype in _ALL:
        if dtype.name == name:
            return dtype
    names = [d.name for d in dtypes()]
    hint = spelling_hint(name, names, f"there are {', '.join(names)}")
    raise DTypeError(f"no element type is named {name!r}", hint=hint)


def element_type(dtype: Any, default: DType | None = None) -> DType:
    """The element type asked for, by name or as numpy's too; the default for None."""
    chosen = default if dtype is None else dtype
    if isinstance(chosen, str):
        chosen = by_name(chosen)
    elif isinstance(chosen, np.dtype) or (isinstance(chosen, type) and chosen not in _PYTHON):
        chosen = by_numpy(chosen)
    if chosen == bool_ or chosen is bool:
        raise DTypeError("there are no bool blobs", hint="truths are int8: flow.int8")
    if not isinstance(chosen, DType):
        raise DTypeError(
            f"dtype is an element type such as flow.float32, got {chosen!r}",
            hint="write flow.float32, 'float32' or numpy.float32",
        )
    return chosen


def convert_oneflow_dtype_to_numpy_dtype(oneflow_dtype: DType) -> np.dtype:
    """The numpy dtype of an element type."""
    return oneflow_dtype.numpy
