"""A copy of what is tracked, with the version in all places, in which a release is built."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from release.versions import ReleaseError, stamp

__all__ = ["DISTRIBUTIONS", "commit_time", "copy_tree"]

# Each distribution for Python with its folder.
DISTRIBUTIONS = {
    "flow2onnx-runtime": "runtime/python",
    "flow2onnx": ".",
    "flow2onnx-serve": "runtime/server",
    "flow2onnx-native": "runtime/native",
}
# Of a tree without git, what tools have made there.
_MADE = {".git", ".venv", "build", "dist", "node_modules", "target", "__pycache__", "log",
         ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis"}  # fmt: skip
_OLDEST_TIME = 315532800  # 1980, the first that a zip file can state


def copy_tree(root: Path, folder: Path, version: Version) -> Path:
    """Copy the tracked files, as they are now, to a new folder, and stamp the version there.

    Each distribution gets the licence, which Apache asks for in every copy. Untracked files never
    get into a release: raises `ReleaseError` where a file that git knows is gone.
    """
    for path in _tracked(root):
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not (root / path).exists():
            raise ReleaseError(f"{path} is tracked and is not there: restore it, or git rm it")
        shutil.copy2(root / path, target, follow_symlinks=False)
    stamp(folder, version)
    for place in (*DISTRIBUTIONS.values(), "runtime/js"):
        if place != ".":
            shutil.copyfile(root / "LICENSE", folder / place / "LICENSE")
    return folder


def commit_time(root: Path) -> int:
    """The seconds of the last commit, or of 1980 where there is no git: SOURCE_DATE_EPOCH."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    done = subprocess.run(
        ["git", "-C", str(root), "log", "-1", "--format=%ct"], capture_output=True, text=True
    )
    return int(done.stdout) if done.returncode == 0 and done.stdout.strip() else _OLDEST_TIME


def _tracked(root: Path) -> Iterator[str]:
    """The files of a release, by path from the root."""
    if (root / ".git").exists():
        done = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z"], capture_output=True, text=True, check=True
        )
        yield from sorted(filter(None, done.stdout.split("\0")))
        return
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if n not in _MADE and not n.endswith(".egg-info"))
        for name in sorted(files):
            yield (Path(folder) / name).relative_to(root).as_posix()
