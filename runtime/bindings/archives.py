"""Archives whose bytes depend on their content alone, written whole or not at all."""

import gzip
import io
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["unpack", "write_tar", "write_whole"]


def write_tar(path: Path, contents: Mapping[str, tuple[int, bytes]], time: int = 0) -> None:
    """Write a .tar.gz of files by their paths, each with its mode, in order and all of one time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made:
        for name, (mode, data) in sorted(contents.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), mode, time
            made.addfile(entry, io.BytesIO(data))
    write_whole(path, gzip.compress(packed.getvalue(), mtime=0))


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def unpack(archive: Path, folder: Path) -> None:
    """Write the files of a tar archive below a folder, and none outside it."""
    with tarfile.open(archive) as opened:
        opened.extraction_filter = getattr(tarfile, "data_filter", None)  # new in 3.11.4
        opened.extractall(folder)
