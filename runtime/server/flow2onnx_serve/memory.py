"""Memory: of models that have retired, given back to the system, and its limit for a process."""

import ctypes
import gc
import re
import sys
from pathlib import Path
from typing import Any

__all__ = ["limit_memory", "prepare_allocator", "trim_memory"]

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


def limit_memory(size: int) -> None:
    """Let this process allocate no more than `size` bytes beyond what it has: then MemoryError.

    Only Linux can be told so.
    """
    status = Path("/proc/self/status")
    found = (
        re.search(r"^VmData:\s+(\d+) kB$", status.read_text(), re.M) if status.exists() else None
    )
    if found is None:
        return
    import resource  # Windows has none

    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, ((int(found[1]) << 10) + size, most))
