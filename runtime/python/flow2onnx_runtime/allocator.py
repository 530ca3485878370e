"""The allocator of this process: memory that is free, given back to the system."""

import contextlib
import ctypes
import gc
import sys
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["map_large_blocks", "prepare_allocator", "release_free_blocks", "trim_memory"]

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # mallopt's numbers
_LARGE = 1 << 20  # bytes of a block
# Where glibc's own thresholds end: they grow with the blocks that are freed, until one is set.
_MOST_LARGE, _MOST_FREE = 32 << 20, 64 << 20

_lock = threading.Lock()
_users = [0]  # how many have large blocks mapped now


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
    _count_users(1)


@contextlib.contextmanager
def map_large_blocks() -> Iterator[None]:
    """Map large blocks meanwhile, so that each goes back when it is freed.

    A mapped block costs more than one of the heap, 0.1 s for 100 MB. What is allocated later, at
    each step, comes from the heap again.
    """
    _count_users(1)
    try:
        yield
    finally:
        _count_users(-1)


def _count_users(change: int) -> None:
    if (library := _libc()) is not None:
        with _lock:
            _users[0] += change
            library.mallopt(_MMAP_THRESHOLD, _LARGE if _users[0] else _MOST_LARGE)
            if not _users[0]:
                library.mallopt(_TRIM_THRESHOLD, _MOST_FREE)


def trim_memory() -> None:
    """Collect garbage, and give freed memory back."""
    gc.collect()
    release_free_blocks()


def release_free_blocks() -> None:
    """Give freed memory back: some milliseconds."""
    if (library := _libc()) is not None:
        library.malloc_trim(0)
