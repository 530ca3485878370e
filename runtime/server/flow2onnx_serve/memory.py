"""The limit of memory for a process."""

import re
from pathlib import Path

__all__ = ["limit_memory"]


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
