"""Declarations of inputs and outputs: name, shape, element type."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from flow2onnx_runtime.dtypes import find_onnx_element
from flow2onnx_runtime.errors import BundleError

__all__ = ["TensorInfo", "tensor_info"]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output of a model: a symbolic dimension is its name, or "?" if it has none.

    `dtype` is the numpy dtype in which values travel, `element` the element type's name; they
    differ for bfloat16, which travels as uint16 bits.
    """

    name: str
    shape: tuple[int | str, ...]
    dtype: "np.dtype[Any]"  # any scalar type
    element: str

    def __str__(self) -> str:
        return f"{self.name}: {self.element}[{', '.join(map(str, self.shape))}]"

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape, where every dimension is a number."""
        return tuple(int(size) for size in self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes of a value, where every dimension is a number."""
        return prod(self.sizes) * self.dtype.itemsize

    @property
    def is_static(self) -> bool:
        """True if every dimension is a number."""
        return all(isinstance(size, int) for size in self.shape)

    def fits(self, shape: Sequence[int], known: dict[str, int]) -> bool:
        """True if a value of `shape` may stand here; `known` collects the symbols' sizes."""
        if len(shape) != len(self.shape):
            return False
        return all(
            size == asked
            if isinstance(asked, int)
            else asked == "?" or known.setdefault(asked, size) == size
            for asked, size in zip(self.shape, shape, strict=True)
        )


def tensor_info(model: str, arg: Any) -> TensorInfo:
    """The description of an argument of a session; `BundleError` for what is no tensor."""
    element = find_onnx_element(arg.type)
    if element is None:
        raise BundleError(
            f"{model}: {arg.name} is {arg.type}, which this runtime does not pass in or out",
            hint="only tensors of numbers and booleans can be inputs and outputs",
        )
    shape = tuple(size if isinstance(size, int) else size or "?" for size in arg.shape)
    return TensorInfo(arg.name, shape, element.numpy, element.name)
