"""More files in archives that others wrote: no clock, no owner, no order of a disk in them."""

import os
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from time import gmtime

from wheel.wheelfile import WheelFile

from runtime.bindings.archives import write_tar

__all__ = ["add_to_tar", "add_to_wheel"]


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
    write_tar(path, contents, time)
