"""Counts of the stand-in for the CUDA libraries, and the size of its memory."""

import ctypes
import functools
import json
import os
from pathlib import Path
from typing import Any

__all__ = [
    "folder",
    "is_loaded",
    "refuse_captures",
    "refuse_work",
    "repair",
    "report",
    "reset",
    "resize",
    "stop",
]

_USUAL_SIZE = 139 << 30
ILLEGAL_ADDRESS = 700  # cudaErrorIllegalAddress


@functools.cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libcudart.so.13")
    library.standin_report.restype = ctypes.c_char_p
    library.standin_resize.argtypes = [ctypes.c_size_t]
    return library


def is_loaded() -> bool:
    """True if the CUDA runtime that the loader finds is the stand-in."""
    try:
        return hasattr(_library(), "standin_report")
    except (OSError, AttributeError):
        return False


def folder() -> Path:
    """Where its libraries lie, those for TensorRT in the folder `tensorrt` of it."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return next(Path(f).resolve() for f in folders if f and Path(f, "tensorrt").is_dir())


def reset() -> None:
    """Begin to count anew."""
    _library().standin_reset()


def report() -> dict[str, Any]:
    """Counts since the reset: kernels, graph launches, captures, waits, allocations, copies.

    ``graph_kernels`` are those of the graphs launched. ``to_device``, ``to_host`` and ``on_device``
    have the `count` and `bytes` of copies, and how many bytes were `pinned` on the host, or on a
    stream `beside` those that launch kernels; ``launched`` and ``violations`` count by name;
    ``used`` and ``peak`` are bytes of device memory.
    """
    counts: dict[str, Any] = json.loads(_library().standin_report())
    return counts


def resize(size: int) -> None:
    """Give the device that many bytes of memory."""
    _library().standin_resize(size)


def refuse_captures(refuses: bool) -> None:
    """Let no stream begin to record a graph, or let it again."""
    _library().standin_refuse_captures(refuses)


def refuse_work(library: str) -> None:
    """Let the work of a library, such as cudnn, fail as what it does not have; of none if empty."""
    _library().standin_refuse_work(library.encode())


def stop(error: int = ILLEGAL_ADDRESS) -> None:
    """Let the device answer every call with an error of CUDA, as after a wrong address."""
    _library().standin_stop(error)


def repair() -> None:
    """Let the device work again, at its usual size."""
    _library().standin_stop(0)
    refuse_captures(False)
    refuse_work("")
    resize(_USUAL_SIZE)
