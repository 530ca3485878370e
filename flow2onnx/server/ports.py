"""The inputs and outputs of a model as the protocol speaks of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from flow2onnx_runtime import TensorInfo

__all__ = ["DATATYPES", "Port", "datatype", "port"]

_SPECIAL = {"float16": "FP16", "float32": "FP32", "float64": "FP64", "bfloat16": "BF16"}
_PLAIN = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DATATYPES = {**_SPECIAL, **{name: name.upper() for name in _PLAIN}}


@dataclass(frozen=True)
class Port:
    """An input or output: -1 stands for a size that a request may choose."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    dtype: "np.dtype[Any]"  # any scalar type
    info: TensorInfo

    @property
    def key(self) -> tuple[str, str, tuple[int, ...]]:
        """What must be equal for one model to stand in for another."""
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
