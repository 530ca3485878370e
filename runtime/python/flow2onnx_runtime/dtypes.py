"""Element types: one row each, with the name every format gives it."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from flow2onnx_runtime.errors import FlowError

__all__ = [
    "ELEMENTS",
    "Array",
    "Element",
    "all_finite",
    "as_bits",
    "element_named",
    "element_of",
    "find_element",
    "find_onnx_element",
]

# Of any shape and element type.
Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Element:
    """An element type: its name, ONNX code and type string, safetensors name, numpy dtype.

    numpy has no bfloat16: such a tensor travels as the uint16 bits of its values (`is_bits`).
    """

    name: str
    code: int
    onnx: str
    safetensors: str
    numpy: "np.dtype[Any]"  # any scalar type: one row per type
    is_bits: bool

    def takes(self, dtype: "np.dtype[Any]") -> bool:
        """True if an array of `dtype` holds such elements, as they are or as bits."""
        return dtype == self.numpy or (self.is_bits and dtype.name == self.name)

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return self.numpy.itemsize


def _row(name: str, code: int, onnx: str, safetensors: str, numpy: str | None = None) -> Element:
    is_bits = numpy is not None
    return Element(name, code, f"tensor({onnx})", safetensors, np.dtype(numpy or name), is_bits)


ELEMENTS = (
    _row("float32", 1, "float", "F32"),
    _row("uint8", 2, "uint8", "U8"),
    _row("int8", 3, "int8", "I8"),
    _row("uint16", 4, "uint16", "U16"),
    _row("int16", 5, "int16", "I16"),
    _row("int32", 6, "int32", "I32"),
    _row("int64", 7, "int64", "I64"),
    _row("bool", 9, "bool", "BOOL"),
    _row("float16", 10, "float16", "F16"),
    _row("float64", 11, "double", "F64"),
    _row("uint32", 12, "uint32", "U32"),
    _row("uint64", 13, "uint64", "U64"),
    _row("bfloat16", 16, "bfloat16", "BF16", "uint16"),
)
_BY_NAME = {element.name: element for element in ELEMENTS}
_BY_ONNX = {element.onnx: element for element in ELEMENTS}


def find_element(name: str) -> Element | None:
    """The element type of a name such as ``"float32"``, or None."""
    return _BY_NAME.get(name)


def element_named(name: str) -> Element:
    """The element type of a name that was found to be one."""
    element = _BY_NAME.get(name)
    assert element is not None, f"{name!r} was checked when it was read"
    return element


def find_onnx_element(onnx: str) -> Element | None:
    """The element type of an ONNX type string such as ``"tensor(float)"``, or None."""
    return _BY_ONNX.get(onnx)


def element_of(dtype: "np.dtype[Any]", error: type[FlowError], what: str) -> Element:
    """The element type that arrays of `dtype` hold; if none, `error` is raised and names `what`."""
    element = _BY_NAME.get(dtype.name)
    if element is None or not element.takes(dtype):
        known = ", ".join(_BY_NAME)
        raise error(
            f"{what} has element type {dtype}, which no tensor can hold",
            hint=f"convert it to one of {known}",
        )
    return element


def as_bits(array: Array, element: Element) -> Array:
    """`array` in the numpy dtype that carries `element`; the same memory."""
    return array if array.dtype == element.numpy else array.view(element.numpy)


def all_finite(array: Array, element: Element) -> bool:
    """True if no element is NaN or infinite; also of bits, of which numpy finds none so."""
    if element.name == "bfloat16":
        return bool(np.all(array & 0x7F80 != 0x7F80))
    return bool(np.isfinite(array).all())
