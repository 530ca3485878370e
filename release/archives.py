"""More files in archives that others wrote: no clock, no owner, no order of a disk in them."""

import base64
import csv
import hashlib
import io
import os
import tarfile
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from time import gmtime

from runtime.bindings.archives import write_tar

__all__ = ["add_to_tar", "add_to_wheel"]

_PLAIN = 0o100644 << 16  # a file's mode, as a zip file has it


def add_to_wheel(path: Path, added: Mapping[str, bytes], time: int) -> None:
    """Write a wheel anew: its files in order, all of one time, with more in its `.dist-info`.

    `added`: paths below `.dist-info` with bytes. RECORD is written anew.
    """
    with zipfile.ZipFile(path) as opened:
        entries = [(item, opened.read(item)) for item in opened.infolist() if not item.is_dir()]
    (home,) = {i.filename.split("/")[0] for i, _ in entries if ".dist-info/" in i.filename}
    contents = {item.filename: (item.external_attr, data) for item, data in entries}
    contents |= {f"{home}/{name}": (_PLAIN, data) for name, data in added.items()}
    record = f"{home}/RECORD"
    contents.pop(record, None)
    names = sorted(contents, key=lambda name: (name.startswith(f"{home}/"), name))
    rows = [[name, *_digest_and_size(contents[name][1])] for name in names]
    contents[record] = _PLAIN, _table([*rows, [record, "", ""]])
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        with zipfile.ZipFile(temporary, "w") as made:
            for name in (*names, record):
                item = zipfile.ZipInfo(name, gmtime(time)[:6])
                item.external_attr, data = contents[name]
                item.compress_type = zipfile.ZIP_DEFLATED
                made.writestr(item, data)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _digest_and_size(data: bytes) -> tuple[str, str]:
    """What RECORD says of a file: "Recording installed projects" of the packaging guide."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}", str(len(data))


def _table(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


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
