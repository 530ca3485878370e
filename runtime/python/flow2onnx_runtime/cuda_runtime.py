"""Calls of the CUDA runtime library that onnxruntime uses, where onnxruntime has none of its own.

Everything here is None, or does nothing, where that library or a driver is missing.
"""

import contextlib
import ctypes
import functools
import sys
import weakref
from collections.abc import Iterator
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnxruntime.capi import build_and_package_info as _built

from flow2onnx_runtime.errors import DeviceError, OutOfMemoryError

__all__ = [
    "CopyStream",
    "PinnedMemory",
    "copy_stream",
    "device_count",
    "device_fault",
    "device_name",
    "free_device_bytes",
]

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
_NON_BLOCKING = 1  # cudaStreamNonBlocking: it does not wait for the stream 0
_BY_ADDRESS = 4  # cudaMemcpyDefault: the addresses tell where they are
_PROPERTIES = 8192  # more bytes than cudaDeviceProp has in any version; the name comes first

_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudaGetDeviceCount": (POINTER(c_int),),
    "cudaGetDevice": (POINTER(c_int),),
    "cudaSetDevice": (c_int,),
    "cudaMemGetInfo": (POINTER(c_size_t), POINTER(c_size_t)),
    "cudaHostAlloc": (POINTER(c_void_p), c_size_t, c_uint),
    "cudaFreeHost": (c_void_p,),
    "cudaStreamCreateWithFlags": (POINTER(c_void_p), c_uint),
    "cudaStreamDestroy": (c_void_p,),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaDeviceSynchronize": (),
    "cudaGetLastError": (),
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
}


class _Library:
    """The functions of the library by name; an error that one returns is raised."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        for name, arguments in _SIGNATURES.items():
            getattr(library, name).argtypes = arguments
        library.cudaGetErrorString.restype = c_char_p

    def ask(self, name: str, *arguments: Any) -> int:
        """The error code of a call, which is forgotten: who asks next would take it for theirs."""
        code = int(getattr(self._library, name)(*arguments))
        if code:
            self._library.cudaGetLastError()
        return code

    def call(self, name: str, *arguments: Any) -> None:
        """Call; raises `OutOfMemoryError` or `DeviceError`."""
        code = self.ask(name, *arguments)
        if code == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"{name}: {self.text(code)}", hint="make the batch smaller")
        if code:
            raise DeviceError(
                f"{name}: {self.text(code)}",
                hint="where other calls fail too, begin a new process and load a saved state",
            )

    def text(self, code: int) -> str:
        """The library's words about an error code."""
        said: bytes = self._library.cudaGetErrorString(code)
        return f"{said.decode()} (CUDA error {code})"

    def name_of(self, device: int) -> str | None:
        """The name of a device."""
        properties = ctypes.create_string_buffer(_PROPERTIES)
        for name in ("cudaGetDeviceProperties_v2", "cudaGetDeviceProperties"):  # CUDA 12, and 13
            if hasattr(self._library, name) and not self.ask(name, properties, c_int(device)):
                return properties.value.decode(errors="replace")
        return None

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        """The device of this thread is that one inside, and as before afterwards."""
        before = c_int()
        self.call("cudaGetDevice", byref(before))
        self.call("cudaSetDevice", device)
        try:
            yield
        finally:
            self.ask("cudaSetDevice", before.value)


@functools.cache
def _library() -> _Library | None:
    """The library of the version that the installed onnxruntime was built for."""
    version = getattr(_built, "cuda_version", "").partition(".")[0]
    name = f"cudart64_{version}.dll" if sys.platform == "win32" else f"libcudart.so.{version}"
    try:
        return _Library(ctypes.CDLL(name)) if version else None
    except (OSError, AttributeError):
        return None


def device_count() -> int | None:
    """The GPUs that CUDA shows to this process, by CUDA_VISIBLE_DEVICES among others."""
    cuda, count = _library(), c_int()
    if cuda is None or cuda.ask("cudaGetDeviceCount", byref(count)):
        return None
    return count.value


def device_name(device: int) -> str | None:
    """The name of a GPU by CUDA's own number, such as ``"NVIDIA H200"``."""
    cuda = _library()
    return None if cuda is None else cuda.name_of(device)


def free_device_bytes(device: int) -> int | None:
    """The bytes that can still be allocated on a GPU, by CUDA's own number."""
    cuda, free, total = _library(), c_size_t(), c_size_t()
    if cuda is None or not 0 <= device < (device_count() or 0):
        return None
    try:
        with cuda.on(device):
            code = cuda.ask("cudaMemGetInfo", byref(free), byref(total))
    except DeviceError:
        return None
    return None if code else free.value


def device_fault(device: int) -> str | None:
    """Why a GPU answers nothing any more, as after a wrong address; None while it works."""
    cuda = _library()
    if cuda is None:
        return None
    try:
        with cuda.on(device):
            code = cuda.ask("cudaDeviceSynchronize")
    except DeviceError as error:
        return error.message
    return cuda.text(code) if code else None


class PinnedMemory:
    """Host memory of fixed pages, from which a device copies while the host goes on."""

    def __init__(self, size: int) -> None:
        cuda, pointer = _library(), c_void_p()
        assert cuda is not None, "asked for where there is a copy stream"
        cuda.call("cudaHostAlloc", byref(pointer), size, 0)
        self.address, self.size = int(pointer.value or 0), size
        self._bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(self.address))
        weakref.finalize(self, cuda.ask, "cudaFreeHost", self.address)

    def like(self, array: NDArray[Any]) -> NDArray[Any]:
        """The beginning of this memory as an array of the same shape and dtype."""
        return self._bytes[: array.nbytes].view(array.dtype).reshape(array.shape)


class CopyStream:
    """Copies in order, beside what a device runs. Addresses tell where they are."""

    def __init__(self, cuda: _Library, device: int) -> None:
        self._cuda, self._handle = cuda, c_void_p()
        with cuda.on(device):
            cuda.call("cudaStreamCreateWithFlags", byref(self._handle), _NON_BLOCKING)
        weakref.finalize(self, cuda.ask, "cudaStreamDestroy", self._handle.value)

    def copy(self, target: int, source: int, size: int) -> None:
        """Begin to copy so many bytes; what is pinned must stay as it is until `wait`."""
        self._cuda.call("cudaMemcpyAsync", target, source, size, _BY_ADDRESS, self._handle)

    def wait(self) -> None:
        """Wait until all copies are done."""
        self._cuda.call("cudaStreamSynchronize", self._handle)


def copy_stream(place: tuple[str, int]) -> CopyStream | None:
    """A new stream for copies to a place; None for the host, and where CUDA cannot be called."""
    cuda = _library() if place[0] == "cuda" else None
    return None if cuda is None else CopyStream(cuda, place[1])
