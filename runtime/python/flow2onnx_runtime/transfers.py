"""How arrays get into a run and out of it: one object for each input, and for some results."""

import ctypes
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.buffers import new_buffer, wrap_array
from flow2onnx_runtime.dtypes import Element, element_named
from flow2onnx_runtime.tensor_info import TensorInfo
from flow2onnx_runtime.uploads import Uploads

__all__ = ["BoundFeed", "CopiedFeed", "OpenResult"]


class BoundFeed:
    """Binds the caller's memory itself: no copy, any size, and nothing to do for the same again."""

    def __init__(self, binding: Any, feed: TensorInfo) -> None:
        self._binding, self._name, self._element = binding, feed.name, element_named(feed.element)
        self._bound: NDArray[Any] | None = None
        self._shape: tuple[int, ...] = ()

    def fill(self, array: NDArray[Any]) -> None:
        """Bind an array, which nobody may change before the run is over."""
        if array is self._bound and array.shape == self._shape:
            return
        is_plain = array.flags.c_contiguous and array.flags.aligned
        source = array if is_plain else array.copy(order="C")
        if self._element.is_bits:
            self._held = wrap_array(source, self._element)  # older bindings hold no reference
            self._binding.bind_ortvalue_input(self._name, self._held)
        else:
            self._binding.bind_cpu_input(self._name, source)
        self._bound, self._shape = array if is_plain else None, array.shape


class CopiedFeed:
    """Copies into one address of device memory, as graph capture needs it, per shape.

    `uploads` are on their way when `fill` or `take` returns; `slot` is the feed's number.
    """

    def __init__(
        self, binding: Any, feed: TensorInfo, place: tuple[str, int], uploads: Uploads, slot: int
    ) -> None:
        self._binding, self._name, self._element = binding, feed.name, element_named(feed.element)
        self._place, self._shape = place, None if not feed.is_static else feed.sizes
        self._uploads, self._slot = uploads, slot
        if self._shape is not None:
            self._allocate(self._shape)

    def fill(self, array: NDArray[Any]) -> None:
        """Begin to copy an array, which may change afterwards."""
        if array.shape != self._shape:
            self._allocate(array.shape)
        self._uploads.begin(self._slot, self._buffer, array)

    def take(self, value: Any) -> None:
        """Begin to copy an OrtValue of this shape, which is on the device too."""
        assert self._shape is not None, "the feeds of a captured graph have fixed shapes"
        size = prod(self._shape) * self._element.size
        self._uploads.move(self._slot, self._buffer, value, size)

    def _allocate(self, shape: tuple[int, ...]) -> None:
        self._buffer = new_buffer(self._place, shape, self._element)
        self._binding.bind_ortvalue_input(self._name, self._buffer.value)
        self._shape = shape


class OpenResult:
    """A result that the runtime allocates, because its shape varies between runs."""

    def __init__(self, binding: Any, position: int, element: Element) -> None:
        self._binding, self._position, self._element = binding, position, element

    def read(self) -> NDArray[Any]:
        """A copy of the result of the last run."""
        value = self._binding.get_outputs_as_ortvaluevector()[self._position]
        return self._bits(value) if self._element.is_bits else np.array(value.numpy())

    def _bits(self, value: Any) -> NDArray[Any]:
        # OrtValue.numpy() has no bfloat16; the bits are in host memory.
        bits = np.empty(tuple(value.shape()), self._element.numpy)
        ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
        return bits
