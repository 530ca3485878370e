"""The allocator of this process: memory that is free, given back to the system."""

import ctypes
import gc
import sys
from typing import Any

__all__ = ["prepare_allocator", "trim_memory"]

_MMAP_THRESHOLD, _LARGE = -3, 1 << 20  # mallopt's number; bytes


def _libc() -> Any:
    """glibc, whose allocator keeps what is freed; None elsewhere."""
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "malloc_trim") else None


def prepare_allocator() -> None:
    """Prepare for models that come and go: called once, before the first is loaded.

    Large blocks are to be mapped, so that each goes back when it is freed; what the process has
    imported until now is never looked through for garbage again.
    """
    gc.collect()
    gc.freeze()
    if (library := _libc()) is not None:
        library.mallopt(_MMAP_THRESHOLD, _LARGE)


def trim_memory() -> None:
    """Give freed memory back."""
    gc.collect()
    if (library := _libc()) is not None:
        library.malloc_trim(0)
