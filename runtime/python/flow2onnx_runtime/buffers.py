"""Memory that the runtime reads and writes: a tensor at a fixed address, on host or device."""

import functools
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as _native

from flow2onnx_runtime.dtypes import Element, find_onnx_element
from flow2onnx_runtime.run_errors import allocation_error, copy_error
from flow2onnx_runtime.runtime_log import silent_runtime

__all__ = ["Buffer", "bytes_of", "copy_to_buffer", "new_buffer", "wrap_array"]

_ALIGNMENT = 64  # the widest vector load of the CPU kernels


class Buffer(Protocol):
    """One tensor: `value` is what a session binds; the methods copy."""

    value: Any  # onnxruntime.OrtValue: shipped without types

    def read(self) -> NDArray[Any]:
        """A copy of the tensor."""

    def lend(self) -> NDArray[Any]:
        """The tensor for reading, where it lies if that is the host's memory; else a copy."""

    def read_into(self, array: NDArray[Any]) -> None:
        """Copy the tensor to `array`, which has its shape and dtype."""

    def write(self, array: NDArray[Any]) -> None:
        """Overwrite the tensor; `array` has its shape and dtype, and any strides."""


def wrap_array(array: NDArray[Any], element: Element) -> Any:
    """An OrtValue over the memory of a C-contiguous `array`, which it keeps alive.

    onnxruntime ignores strides here: a sliced array would be read as if it were contiguous.
    """
    assert array.flags.c_contiguous, "the runtime would misread a strided array"
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, element.code)


def bytes_of(value: Any) -> int:
    """The bytes of a tensor's elements; its own `tensor_size_in_bytes` came with later runtimes."""
    element = find_onnx_element(value.data_type())
    assert element is not None, "a value of ours"
    shape: Sequence[int] = value.shape()
    return prod(shape) * element.size


def new_buffer(place: tuple[str, int], shape: Sequence[int], element: Element) -> Buffer:
    """A buffer of undefined content at a place: ``("cpu", 0)``, ``("cuda", device_id)``."""
    return (
        _HostBuffer(shape, element) if place[0] == "cpu" else _DeviceBuffer(place, shape, element)
    )


def copy_to_buffer(place: tuple[str, int], array: NDArray[Any], element: Element) -> Buffer:
    """A buffer at a place, of the shape of an array and with a copy of its content."""
    buffer = new_buffer(place, array.shape, element)
    buffer.write(array)
    return buffer


def _allocate_aligned(shape: Sequence[int], dtype: "np.dtype[Any]") -> NDArray[Any]:
    size = prod(shape) * dtype.itemsize
    memory = np.empty(size + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


class _HostBuffer:
    def __init__(self, shape: Sequence[int], element: Element) -> None:
        self._array = _allocate_aligned(shape, element.numpy)
        self.value = wrap_array(self._array, element)
        self.read = self._array.copy

    def lend(self) -> NDArray[Any]:
        lent = self._array.view()
        lent.flags.writeable = False
        return lent

    def read_into(self, array: NDArray[Any]) -> None:
        np.copyto(array, self._array, casting="no")

    def write(self, array: NDArray[Any]) -> None:
        np.copyto(self._array, array, casting="no")


class _DeviceBuffer:
    def __init__(self, place: tuple[str, int], shape: Sequence[int], element: Element) -> None:
        self._place, self._shape, self._element = place, tuple(shape), element
        _grow_exactly()
        try:
            self.value = ort.OrtValue.ortvalue_from_shape_and_type(
                list(shape), element.code, *place
            )
        except Exception as error:  # the runtime's exceptions have no common base
            raise allocation_error(place, prod(shape) * element.size) from error

    def read(self) -> NDArray[Any]:
        try:
            return self._read()
        except Exception as error:
            raise copy_error(error, self._place) from error

    def lend(self) -> NDArray[Any]:
        return self.read()

    def read_into(self, array: NDArray[Any]) -> None:
        np.copyto(array, self.read(), casting="no")

    def _read(self) -> NDArray[Any]:
        if not self._element.is_bits:
            return np.asarray(self.value.numpy())  # a copy, as the value is not in host memory
        host = _allocate_aligned(self._shape, self._element.numpy)
        wrap_array(host, self._element).update_inplace(self.value)
        return host

    def write(self, array: NDArray[Any]) -> None:
        source = np.ascontiguousarray(array).reshape(self._shape)  # which makes 0-d 1-d
        given = wrap_array(source, self._element) if self._element.is_bits else source
        try:
            self.value.update_inplace(given)
        except Exception as error:
            raise copy_error(error, self._place) from error


@functools.cache
def _grow_exactly() -> None:
    """Let each tensor on a device take its own size: by default memory grows to powers of two.

    The tensors' memory is of no session, and so no option of a provider says it.
    """
    if hasattr(_native, "set_arena_extend_strategy"):  # builds for the CPU have none
        with silent_runtime():  # it says that sessions have an option for theirs
            _native.set_arena_extend_strategy(_native.ArenaExtendStrategy.kSameAsRequested)
