"""Archives whose bytes depend on their content alone: no clock, no owner, no order of a disk."""

import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from time import gmtime

from wheel.wheelfile import WheelFile

__all__ = ["add_to_tar", "add_to_wheel", "write_whole"]


def add_to_wheel(path: Path, added: Mapping[str, bytes], time: int) -> None:
    """Write a wheel anew: its files in order, all of one time, with more in its `.dist-info`.

    `added`: paths below `.dist-info` with bytes. RECORD is written anew.
    """
    with zipfile.ZipFile(path) as opened:
        entries = [(item, opened.read(item)) for item in opened.infolist() if not item.is_dir()]
    (home,) = {i.filename.split("/")[0] for i, _ in entries if ".dist-info/" in i.filename}
    contents = {item.filename: (item.external_attr, data) for item, data in entries}
    contents |= {f"{home}/{name}": (0o100644 << 16, data) for name, data in added.items()}
    temporary = path.with_name(f".{os.getpid()}") / path.name  # its name must be a wheel's
    temporary.parent.mkdir()
    try:
        with WheelFile(str(temporary), "w") as made:
            for name in sorted(contents, key=lambda name: (name.startswith(f"{home}/"), name)):
                if name != f"{home}/RECORD":
                    attributes, data = contents[name]
                    item = zipfile.ZipInfo(name, gmtime(time)[:6])
                    item.external_attr = attributes
                    item.compress_type = zipfile.ZIP_DEFLATED
                    made.writestr(item, data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
        temporary.parent.rmdir()


def add_to_tar(path: Path, added: Mapping[str, bytes], time: int) -> None:
    """Write a source distribution anew: in order, all of one time, with more in its one folder."""
    contents: dict[str, tuple[int, bytes]] = {}
    with tarfile.open(path) as opened:
        for member in opened:
            content = opened.extractfile(member)  # None of a folder
            if content is not None:
                mode = 0o755 if member.mode & 0o100 else 0o644
                contents[member.name] = mode, content.read()
    (home,) = {name.split("/")[0] for name in contents}
    contents |= {f"{home}/{name}": (0o644, data) for name, data in added.items()}
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
