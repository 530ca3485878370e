"""Bytes of memory that a process can still allocate: on the host or in its container, on a GPU."""

from collections.abc import Iterator
from pathlib import Path

from flow2onnx_runtime.cuda_runtime import free_device_bytes

__all__ = ["free_bytes"]


def free_bytes(place: tuple[str, int] = ("cpu", 0), root: Path = Path("/")) -> int | None:
    """The bytes that a process can still take at a place, or None where the system does not tell.

    On the host that is what the system can free up, or less where a control group has a limit; on
    ``("cuda", n)`` what CUDA has on its device n, as CUDA_VISIBLE_DEVICES counts them. `root` is
    where the system's files lie.
    """
    if place[0] != "cpu":
        return free_device_bytes(place[1])
    known = [n for n in (_of_system(root), *_of_groups(root)) if n is not None]
    return min(known, default=None)


def _of_system(root: Path) -> int | None:
    for line in _text(root / "proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _of_groups(root: Path) -> Iterator[int | None]:
    """Bytes that each control group of the process leaves, of both versions, innermost first."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        names = ("memory.max", "memory.current") if not controllers else _OLD
        base = root / "sys/fs/cgroup" / ("" if not controllers else "memory")
        if controllers and "memory" not in controllers.split(","):
            continue
        folder = base / path.lstrip("/")
        for place in (folder, *folder.parents):
            if place == base.parent or base not in (place, *place.parents):
                break
            yield _left(place, *names)


_OLD = ("memory.limit_in_bytes", "memory.usage_in_bytes")


def _left(folder: Path, limit: str, used: str) -> int | None:
    most, taken = _text(folder / limit).strip(), _text(folder / used).strip()
    if not (most.isdigit() and taken.isdigit()):
        return None  # "max", or no such file
    # pages of files count as used, and are given back before anything is refused
    files = dict(
        line.split() for line in _text(folder / "memory.stat").splitlines() if line.count(" ") == 1
    )
    return max(int(most) - int(taken) + int(files.get("inactive_file", 0)), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
