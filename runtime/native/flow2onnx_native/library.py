"""The shared library of operators: where it is, whether it is the right one, what it has."""

import ctypes
import functools
import logging
import os
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

from flow2onnx_runtime.errors import OptionsError, UnsupportedError
from flow2onnx_runtime.trusted_libraries import PackageLibrary, trusted_library

from flow2onnx_native.abi import digest

__all__ = ["NativeLibrary", "library_path", "onednn_path", "open_library"]

_log = logging.getLogger("flow2onnx.native")
_LIBRARY = "libflow2onnx_native.so"
_ONEDNN_PACKAGE, _ONEDNN = "onednn-cpu-gomp", "libdnnl.so.3"


@dataclass(frozen=True)
class NativeLibrary:
    """A library of operators that the runtime can register, and what they are."""

    path: str
    operators: tuple[str, ...]


def library_path() -> str:
    """The path of the shared library: `FLOW2ONNX_NATIVE`, or that in this package.

    Raises `UnsupportedError` for a variable that names what may not be loaded.
    """
    asked = os.environ.get("FLOW2ONNX_NATIVE")
    if not asked:
        return PackageLibrary(Path(__file__).with_name(_LIBRARY))
    try:
        return trusted_library(asked)
    except OptionsError as error:
        raise UnsupportedError(
            f"FLOW2ONNX_NATIVE cannot be opened: {error.message}", hint=error.hint
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
    return _packaged_onednn() or _system_onednn()


def _packaged_onednn() -> str | None:
    try:
        listed = [f for f in files(_ONEDNN_PACKAGE) or () if f.name == _ONEDNN]
    except PackageNotFoundError:
        return None
    places = [Path(str(f.locate())).resolve() for f in listed]
    return next((str(p) for p in places if p.is_file()), None)


def _system_onednn() -> str | None:
    """The name by which the system's loader finds oneDNN; `find_library` would start compilers."""
    try:
        ctypes.CDLL(_ONEDNN)
    except OSError:
        return None
    return _ONEDNN


@functools.cache
def open_library() -> NativeLibrary:
    """The library, with the operators on oneDNN if that can be opened.

    Raises `UnsupportedError` for a library that cannot be used.
    """
    path = library_path()
    library = _load(path)
    why = _open_onednn(library)
    if why is not None:
        _log.warning("oneDNN cannot be used, convolutions and products run without: %s", why)
    library.flow2onnx_native_operators.restype = ctypes.c_char_p
    names: bytes = library.flow2onnx_native_operators()
    return NativeLibrary(path, tuple(names.decode().split()))


def _load(path: str) -> ctypes.CDLL:
    remedy = "reinstall flow2onnx-native, or set config.runtime.native(False)"
    try:
        library = ctypes.CDLL(path)
        library.flow2onnx_native_abi.restype = ctypes.c_char_p
        built: bytes = library.flow2onnx_native_abi()
    except (OSError, AttributeError) as error:
        raise UnsupportedError(
            f"the native library {path} cannot be opened: {error}", hint=remedy
        ) from error
    if built.decode(errors="replace") != digest():
        raise UnsupportedError(
            f"the native library {path} was built from other sources than this flow2onnx-native "
            f"has: its table of programs is {built!r}, not {digest()!r}", hint=remedy,
        )  # fmt: skip
    return library


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
    return None if answer is None else f"{path}: {answer.decode(errors='replace')}"
