"""The optional library of native operators: found where it is installed, checked, and opened."""

import ctypes
import functools
import importlib
import importlib.util
import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from flow2onnx.errors import UnsupportedError

__all__ = ["NativeLibrary", "Wish", "native_library", "threads_of"]

_log = logging.getLogger("flow2onnx.native")
_PACKAGE = "flow2onnx_native"
_VERSION = 4  # of operators and programs, which the library is asked for
_ALWAYS = (
    "Fused", "FusedChannels", "Rows", "AddRows", "PutRows", "CrossEntropy", "MaxPool",
    "MaxPoolGradient",
)  # fmt: skip
_WITH_ONEDNN = ("Conv", "ConvInputGradient", "ConvWeightGradient", "Product")

Wish = bool | Literal["auto"]


@dataclass(frozen=True)
class NativeLibrary:
    """A library of operators that the runtime can register, and what they are."""

    path: str
    operators: tuple[str, ...]


def native_library(wish: Wish) -> NativeLibrary | None:
    """The library, if it is wished for and there; "auto" does without one that is not installed.

    Raises `UnsupportedError` for one that is wished for and missing, and for one that is installed
    and cannot be used.
    """
    if wish is False:
        return None
    if importlib.util.find_spec(_PACKAGE) is None:
        if wish == "auto":
            return None
        raise UnsupportedError(
            "native operators are asked for, and the package flow2onnx-native is not installed",
            hint="pip install flow2onnx-native, or do not ask for them",
        )
    return _opened()


@functools.cache
def _opened() -> NativeLibrary:
    package = importlib.import_module(_PACKAGE)
    path = Path(package.library_path())
    library = _loaded(path)
    operators = list(_ALWAYS)
    onednn = package.onednn_path()
    why = _open_onednn(library, onednn) if onednn is not None else "it is not installed"
    if why is None:
        operators += _WITH_ONEDNN
    elif onednn is not None:
        _log.warning("%s cannot be used, convolutions and products run without: %s", onednn, why)
    return NativeLibrary(str(path), tuple(operators))


def _loaded(path: Path) -> ctypes.CDLL:
    remedy = "reinstall flow2onnx-native, or set config.runtime.native(False)"
    try:
        library = ctypes.CDLL(str(path))
        version = library.flow2onnx_native_version()
    except (OSError, AttributeError) as error:
        raise UnsupportedError(
            f"the native library {path} cannot be opened: {error}", hint=remedy
        ) from error
    if version != _VERSION:
        raise UnsupportedError(
            f"the native library {path} is of version {version}, and this flow2onnx needs "
            f"{_VERSION}", hint=remedy,
        )  # fmt: skip
    return library


def _open_onednn(library: ctypes.CDLL, path: str) -> str | None:
    """Let the library open oneDNN; returns why it cannot."""
    ask = library.flow2onnx_native_open_onednn
    ask.argtypes, ask.restype = [ctypes.c_char_p], ctypes.c_char_p
    answer: bytes | None = ask(str(path).encode())
    return None if answer is None else answer.decode(errors="replace")


def threads_of(asked: int | None) -> int:
    """How many threads a session has for one operator, if so many were asked for."""
    return asked or os.cpu_count() or 1
