"""The shared libraries of operators: where they are, which are the right ones, what they have."""

import ctypes
import functools
import logging
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from flow2onnx_runtime.errors import OptionsError, UnsupportedError
from flow2onnx_runtime.trusted_libraries import PackageLibrary, trusted_library

from flow2onnx_native.abi import digest

__all__ = [
    "NativeLibrary",
    "cuda_library_path",
    "library_path",
    "nvrtc_path",
    "onednn_path",
    "open_cuda_library",
    "open_library",
]

_log = logging.getLogger("flow2onnx.native")
_LIBRARY = "libflow2onnx_native.so"
_CUDA_LIBRARY = "libflow2onnx_native_cuda.so"
_ONEDNN_PACKAGE, _ONEDNN = "onednn-cpu-gomp", "libdnnl.so.3"
_DRIVER = "libcuda.so.1"
_REMEDY = (
    "install flow2onnx-native for this system, from its sources if need be, or set "
    "config.runtime.native(False)"
)
_ELF_MACHINES = {62: "x86-64", 183: "aarch64"}  # the numbers in the headers of libraries
_MACHINES = {"x86_64": "x86-64", "amd64": "x86-64", "aarch64": "aarch64", "arm64": "aarch64"}
# The newest first: the CUDA provider of onnxruntime-gpu is built for CUDA 13 or 12.
_NVRTC = {"nvidia-cuda-nvrtc": "libnvrtc.so.13", "nvidia-cuda-nvrtc-cu12": "libnvrtc.so.12"}


@dataclass(frozen=True)
class NativeLibrary:
    """A library of operators that the runtime can register, and what they are.

    `instruction_set` is the one that its loops use: baseline, avx2 or avx512; on GPUs it is empty.
    """

    path: str
    operators: tuple[str, ...]
    instruction_set: str = ""

    @property
    def uses_avx512(self) -> bool:
        """True where its loops use AVX-512."""
        return self.instruction_set == "avx512"


def library_path() -> str:
    """The path of the shared library for CPUs: `FLOW2ONNX_NATIVE`, or that in this package.

    Raises `UnsupportedError` for a variable that names what may not be loaded.
    """
    return _path_of("FLOW2ONNX_NATIVE", _LIBRARY)


def cuda_library_path() -> str:
    """The same of the shared library for CUDA: `FLOW2ONNX_NATIVE_CUDA` goes before the package."""
    return _path_of("FLOW2ONNX_NATIVE_CUDA", _CUDA_LIBRARY)


def _path_of(variable: str, name: str) -> str:
    asked = os.environ.get(variable)
    if not asked:
        return PackageLibrary(Path(__file__).with_name(name))
    try:
        return trusted_library(asked)
    except OptionsError as error:
        raise UnsupportedError(
            f"{variable} cannot be opened: {error.message}", hint=error.hint
        ) from error


def onednn_path() -> str | None:
    """The path or name of oneDNN's shared library; None if there is none.

    The environment variable `FLOW2ONNX_ONEDNN` goes before the package onednn-cpu-gomp, and that
    before what the system's loader finds; empty, it means none. Raises `OptionsError` for a
    variable that names what may not be loaded.
    """
    asked = os.environ.get("FLOW2ONNX_ONEDNN")
    if asked is not None:
        return trusted_library(asked) if asked else None
    return _packaged(_ONEDNN_PACKAGE, _ONEDNN) or _system(_ONEDNN)


def nvrtc_path() -> str | None:
    """The path or name of NVRTC's shared library, which compiles for GPUs; None if there is none.

    The environment variable `FLOW2ONNX_NVRTC` goes before the packages nvidia-cuda-nvrtc and
    nvidia-cuda-nvrtc-cu12, and those before what the system's loader finds; empty, it means none.
    Raises `OptionsError` for a variable that names what may not be loaded.
    """
    asked = os.environ.get("FLOW2ONNX_NVRTC")
    if asked is not None:
        return trusted_library(asked) if asked else None
    packaged = (_packaged(package, name) for package, name in _NVRTC.items())
    return next(filter(None, [*packaged, *map(_system, _NVRTC.values())]), None)


def _packaged(package: str, library: str) -> str | None:
    try:
        listed = [f for f in files(package) or () if f.name == library]
    except PackageNotFoundError:
        return None
    places = [Path(str(f.locate())).resolve() for f in listed]
    return next((str(p) for p in places if p.is_file()), None)


def _system(library: str) -> str | None:
    """The name by which the system's loader finds it; `find_library` would start compilers."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return None
    return library


@functools.cache
def open_library() -> NativeLibrary:
    """The library, with the operators on oneDNN if that can be opened.

    The environment variable `FLOW2ONNX_NATIVE_ISA` caps the instruction set of both. Raises
    `UnsupportedError` for a library that cannot be used, and for a cap that is none.
    """
    path = library_path()
    library = _load(path)
    instruction_set = _instruction_set(library, path)
    why = _open_onednn(library)
    if why is not None:
        _log.warning("oneDNN cannot be used, convolutions and products run without: %s", why)
    return NativeLibrary(path, _operators(library), instruction_set)


@functools.cache
def open_cuda_library(device: int = 0) -> NativeLibrary:
    """The library of CUDA operators, for the GPU of that number.

    Raises `UnsupportedError` where the library, the driver or NVRTC cannot be used.
    """
    path = cuda_library_path()
    library = _load(path)
    why = _open_cuda(library, device)
    if why is not None:
        raise UnsupportedError(
            f"the native operators for CUDA cannot be used: {why}",
            hint="pip install nvidia-cuda-nvrtc, or set config.runtime.native(False)",
        )
    return NativeLibrary(path, _operators(library))


def _operators(library: ctypes.CDLL) -> tuple[str, ...]:
    library.flow2onnx_native_operators.restype = ctypes.c_char_p
    names: bytes = library.flow2onnx_native_operators()
    return tuple(names.decode().split())


def _instruction_set(library: ctypes.CDLL, path: str) -> str:
    """The name of the instruction set that the loops of the library for CPUs use."""
    try:
        ask, problem = library.flow2onnx_native_isa, library.flow2onnx_native_isa_problem
    except AttributeError as error:
        raise UnsupportedError(
            f"the native library {path} cannot be opened: {error}", hint=_REMEDY
        ) from error
    ask.restype = problem.restype = ctypes.c_char_p
    why: bytes | None = problem()
    if why is not None:
        raise UnsupportedError(
            why.decode(errors="replace"), hint="unset it, or name one that is there"
        )
    name: bytes = ask()
    return name.decode()


def _load(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        library.flow2onnx_native_abi.restype = ctypes.c_char_p
        built: bytes = library.flow2onnx_native_abi()
    except (OSError, AttributeError) as error:
        why = _other_processor(path) or error
        raise UnsupportedError(
            f"the native library {path} cannot be opened: {why}", hint=_REMEDY
        ) from error
    if built.decode(errors="replace") != digest():
        raise UnsupportedError(
            f"the native library {path} was built from other sources than this flow2onnx-native "
            f"has: its table of programs is {built!r}, not {digest()!r}", hint=_REMEDY,
        )  # fmt: skip
    return library


def _other_processor(path: str) -> str:
    """Why a library of another processor cannot be loaded; empty for others.

    The system's loader says that there is no such file.
    """
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return ""
    is_elf = head.startswith(b"\x7fELF") and len(head) == 20
    made_for = _ELF_MACHINES.get(int.from_bytes(head[18:], "little")) if is_elf else None
    own = _MACHINES.get(platform.machine().lower())
    if made_for is None or own is None or made_for == own:
        return ""
    return f"it is made for {made_for}, and this is a process on {own}"


def _open_onednn(library: ctypes.CDLL) -> str | None:
    """Let the library open oneDNN, if there is one; returns why it cannot."""
    try:
        path = onednn_path()
    except OptionsError as error:
        return f"FLOW2ONNX_ONEDNN: {error.message}"
    if path is None:
        return None
    ask = library.flow2onnx_native_open_onednn
    ask.argtypes, ask.restype = [ctypes.c_char_p], ctypes.c_char_p
    answer: bytes | None = ask(path.encode())
    if answer is None:
        return None
    return f"{path}: {_other_processor(path) or answer.decode(errors='replace')}"


def _open_cuda(library: ctypes.CDLL, device: int) -> str | None:
    """Let the library open the driver and NVRTC; returns why it cannot."""
    try:
        compiler = nvrtc_path()
    except OptionsError as error:
        return f"FLOW2ONNX_NVRTC: {error.message}"
    if compiler is None:
        return "there is no NVRTC, which compiles them for the GPU at hand"
    _open_builtins(Path(compiler))
    ask = library.flow2onnx_native_open_cuda
    ask.argtypes, ask.restype = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int], ctypes.c_char_p
    answer: bytes | None = ask(_DRIVER.encode(), compiler.encode(), device)
    return None if answer is None else answer.decode(errors="replace")


def _open_builtins(compiler: Path) -> None:
    """Open the second library of an NVRTC that is no library of the system, which looks for it."""
    for path in sorted(compiler.parent.glob("libnvrtc-builtins.so*"))[:1]:
        if compiler.is_absolute():
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)
