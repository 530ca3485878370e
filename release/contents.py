"""Checks of what must be in the files of a release, and of what must not."""

import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from release.build import BILL
from release.sbom import fault
from release.versions import semantic

__all__ = ["findings", "names_of"]

# Parts of names that no release has: what tests, tools and machines leave behind.
_FOREIGN = ("__pycache__", ".pyc", "node_modules", ".git", ".DS_Store", ".venv", ".swp")
# Nor has what is installed, as a source distribution may.
_OF_SOURCES = ("/tests/", "/test/", "/benchmarks/")


def findings(folder: Path, version: Version) -> list[str]:
    """A line for each file that lacks its version, bill or licence, or has what is foreign."""
    found = []
    for path in sorted(folder.iterdir()):
        if path.name != "SHA256SUMS":
            found += [f"{path.name}: {line}" for line in _of_file(path, version)]
    return found


def names_of(path: Path) -> list[str]:
    """The paths in an archive."""
    return sorted(_contents(path))


def _of_file(path: Path, version: Version) -> Iterator[str]:
    if not any(text in path.name for text in (f"-{version}", f"-{semantic(version)}")):
        yield f"is not of version {version}"
    contents = _contents(path)
    bills = [name for name in contents if name.split("/")[-1] == BILL]
    if len(bills) != 1:
        yield f"has {len(bills)} bills of materials, not one"
    for name in bills:
        wrong = fault(contents[name])
        if wrong:
            yield f"{name}: {wrong}"
    if not any(name.split("/")[-1] == "LICENSE" for name in contents):
        yield "has no LICENSE"
    for name in contents:
        foreign = _FOREIGN if path.name.endswith(".tar.gz") else (*_FOREIGN, *_OF_SOURCES)
        if any(text in f"/{name}" for text in foreign):
            yield f"has {name}"


def _contents(path: Path) -> dict[str, bytes]:
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as opened:
            return {name: opened.read(name) for name in opened.namelist()}
    with tarfile.open(path) as unpacked:
        files = [member for member in unpacked if member.isfile()]
        return {m.name: read.read() for m in files if (read := unpacked.extractfile(m))}
