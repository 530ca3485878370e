"""The inputs and outputs of a model as the protocol speaks of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flow2onnx_runtime import TensorInfo
from numpy.typing import NDArray

__all__ = ["DATATYPES", "Port", "datatype", "mark_columns", "port"]

_SPECIAL = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"}
_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DATATYPES = {**_SPECIAL, **{name: name.upper() for name in _PLAIN}}


@dataclass(frozen=True)
class Port:
    """An input or output: -1 stands for a size that a request may choose.

    A column has one number in each row, and in the protocol a last size of 1 that the model's own
    shape lacks: Triton has no other way to speak of single numbers.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"  # any scalar type
    info: TensorInfo
    is_column: bool = False

    def inner(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the protocol's shape in the model's."""
        is_fit = self.is_column and array.shape[-1:] == (1,)
        return array.reshape(array.shape[:-1]) if is_fit else array

    def fits(self, array: NDArray[Any], sizes: dict[str, int]) -> bool:
        """True if an array of the protocol's shape can be given, with those before it."""
        is_wrong = self.is_column and array.shape[-1:] != (1,)
        return not is_wrong and self.info.fits(self.inner(array).shape, sizes)

    def outer(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array of the model's shape in the protocol's."""
        return array.reshape((*array.shape, 1)) if self.is_column else array

    @property
    def key(self) -> tuple[str, str, tuple[int, ...]]:
        """Name, datatype and shape: equal where one model can stand in for another."""
        return self.name, self.datatype, self.shape

    def __str__(self) -> str:
        return f"{self.name} {self.datatype} {list(self.shape)}"


def datatype(element: str) -> str:
    """The protocol's name of an element type such as ``float32``."""
    return DATATYPES[element]


def port(info: TensorInfo) -> Port:
    """The protocol's view of a model's input or output."""
    shape = tuple(size if isinstance(size, int) else -1 for size in info.shape)
    return Port(info.name, datatype(info.element), shape, info.dtype, info)


def mark_columns(ports: Mapping[str, Port], names: Collection[str]) -> dict[str, Port]:
    """The ports, those of these names as columns."""
    return {
        name: replace(port, shape=(*port.shape, 1), is_column=True) if name in names else port
        for name, port in ports.items()
    }
