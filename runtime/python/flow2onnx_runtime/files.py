"""Regular files opened; files and folders replaced whole or not at all, killed or not.

Any number of threads and processes may write to one path at once: each write succeeds, and the last
one stays. A writer keeps a lock on its temporary, which the system drops when the process dies,
however. So a temporary that can be locked is a leftover, or one so new that its writer has not
locked it yet: that writer sees that it is gone and makes another.
"""

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from io import DEFAULT_BUFFER_SIZE, BufferedReader, FileIO
from pathlib import Path
from typing import Any, BinaryIO

from flow2onnx_runtime.errors import BundleError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]  # its absence is tested where it is used

__all__ = ["lock_folder", "open_file", "open_regular", "remove_abandoned", "replace_bytes",
           "replace_file", "replace_folder", "temporary_folder"]  # fmt: skip

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2  # Linux: swap two paths in one step
_RENAME_SWAP = 2  # macOS: the same
_BINARY = getattr(os, "O_BINARY", 0)  # Windows would translate line ends

_NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # a pipe would wait for somebody who writes to it


def open_file(path: str | os.PathLike[str], hint: str | None = None) -> BufferedReader:
    """A file opened for reading; raises `BundleError` for what is missing or no regular file."""
    try:
        return open_regular(path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}", hint=hint) from error


def open_regular(
    path: str | os.PathLike[str], buffering: int = DEFAULT_BUFFER_SIZE
) -> BufferedReader:
    """A file opened for reading; raises `OSError` at once for what is no regular file.

    `buffering`: bytes that are read at a time.
    """
    # closed by whoever asked for it
    file: BufferedReader = BufferedReader(FileIO(path, "rb", opener=_open), buffering)
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return file


def _open(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_WAITING)


def replace_file(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> None:
    """Make `path` a file of what `write` writes, or leave it as it is.

    Whatever happens - `write` raises, the disk is full, the process is killed, the power fails -
    `path` is the complete old file or the complete new one. It is the new one, on the disk, when
    this returns. A killed process leaves a hidden ``.NAME.*.tmp`` beside it, which the next call
    for the same path removes.
    """
    target = Path(os.path.realpath(path))
    temporary, descriptor = _create_temporary(target, _create_file)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(descriptor)
            _rename(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def replace_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Make `path` a file of `content`, or leave it as it is, as `replace_file` does."""

    def write(file: BinaryIO) -> None:
        file.write(content)

    replace_file(path, write)


def replace_folder(
    path: str | os.PathLike[str], fill: Callable[[Path], None], *, overwrite: bool = False
) -> None:
    """Make `path` a folder of what `fill` puts into the folder it is given, or leave it as it is.

    `path` may be missing or an empty folder; a folder with content is replaced only with
    `overwrite`, by one system call that swaps old and new (Linux, macOS). So at any moment,
    a kill or power failure included, `path` is the complete old folder or the complete new one.
    Where the file system cannot swap, a `BundleError` says so and nothing has changed.
    """
    target = Path(os.path.realpath(path))
    _check_target(target, overwrite)
    with temporary_folder(target) as temporary:
        fill(temporary)
        _sync_tree(temporary)
        _put(temporary, target, overwrite)  # then this is the old one, or nothing
    _sync_folder(target.parent)


@contextlib.contextmanager
def temporary_folder(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new hidden folder beside `path`, which is removed at the end.

    That of a killed process is removed by the next call for the same path.
    """
    temporary, descriptor = _create_temporary(Path(os.path.realpath(path)), _create_folder)
    try:
        yield temporary
    finally:
        _close(descriptor)
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Wait until nobody else is in here for the same folder; for moves of more than one file.

    A temporary of `replace_folder` is its writer's alone, who holds its lock already.
    """
    if _TEMPORARY.fullmatch(folder.name):
        yield
        return
    descriptor = _open_folder(folder)
    try:
        _lock(descriptor)
        yield
    finally:
        _close(descriptor)


def remove_abandoned(temporary: Path) -> None:
    """Delete the file or folder of a writer that is dead; leave that of a live one."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(temporary, os.O_RDONLY | _NO_WAITING)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if temporary.is_dir():
                shutil.rmtree(temporary)
            else:
                temporary.unlink()
        finally:
            os.close(descriptor)


def _create_temporary(target: Path, create: Callable[[Path], int]) -> tuple[Path, int]:
    """A new temporary for `target`, locked by the descriptor that is returned with it."""
    if not target.parent.is_dir():
        raise BundleError(
            f"{target} cannot be written: there is no folder {target.parent}",
            hint="create the folder first",
        )
    _remove_stale(target)
    while True:
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        with contextlib.suppress(_TakenError):
            return temporary, create(temporary)


class _TakenError(Exception):
    """Another writer took a temporary for a leftover, before it was locked."""


def _create_file(path: Path) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o666)
    return _keep(path, descriptor)


def _create_folder(path: Path) -> int:
    path.mkdir()
    try:
        return _keep(path, _open_folder(path))
    except FileNotFoundError:
        raise _TakenError from None


def _keep(path: Path, descriptor: int) -> int:
    """The descriptor, once it has the lock and the path still names what it opens."""
    _lock(descriptor)
    try:
        is_there = descriptor == _NONE or os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        is_there = False
    if is_there:
        return descriptor
    _close(descriptor)
    raise _TakenError


def _check_target(target: Path, overwrite: bool) -> None:
    if not target.exists():
        return
    if not target.is_dir():
        raise BundleError(f"{target} is a file, not a folder", hint="choose another path")
    if any(target.iterdir()) and not overwrite:
        raise BundleError(
            f"{target} is a folder with content", hint="pass overwrite=True or choose another path"
        )


def _put(temporary: Path, target: Path, overwrite: bool) -> None:
    if target.is_dir() and any(target.iterdir()):
        _check_target(target, overwrite)
        _swap(temporary, target)
        return
    if os.name == "nt" and target.is_dir():
        target.rmdir()  # an empty folder; Windows does not rename onto one
    try:
        os.rename(temporary, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        _put(temporary, target, overwrite)  # another writer was first


def _swap(a: Path, b: Path) -> None:
    """Exchange what two paths name, in one step that nobody can see half of."""
    reason = _swap_error(os.fsencode(a), os.fsencode(b)) if os.name == "posix" else "no call for it"
    if reason:
        raise BundleError(
            f"{b} cannot be replaced in one step on this system: {reason}",
            hint="write to a new path, or remove the old folder first",
        )


def _swap_error(a: bytes, b: bytes) -> str | None:
    """None when the system has swapped the paths, else why it could not."""
    libc: Any = ctypes.CDLL(None, use_errno=True)  # its functions are whatever the system has
    if hasattr(libc, "renameat2"):
        failed = libc.renameat2(_AT_FDCWD, a, _AT_FDCWD, b, _RENAME_EXCHANGE)
    elif hasattr(libc, "renamex_np"):
        failed = libc.renamex_np(a, b, _RENAME_SWAP)
    else:
        return "no call for it"
    return os.strerror(ctypes.get_errno()) if failed else None


def _rename(temporary: Path, target: Path) -> None:
    if target.is_dir():
        raise BundleError(f"{target} is a folder, not a file", hint="choose another path")
    os.replace(temporary, target)


_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")
_NONE = -1  # no descriptor: Windows opens no folders


def _open_folder(path: Path) -> int:
    return os.open(path, os.O_RDONLY) if fcntl is not None else _NONE


def _close(descriptor: int) -> None:
    if descriptor != _NONE:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Wait for the lock, which others hold for a moment only."""
    if fcntl is not None:
        with contextlib.suppress(OSError):  # file systems without locks keep their leftovers
            fcntl.flock(descriptor, fcntl.LOCK_EX)


def _remove_stale(target: Path) -> None:
    for path in target.parent.glob(f".{_escape(target.name)}.{'[0-9a-f]' * 12}.tmp"):
        remove_abandoned(path)


def _escape(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def _sync_tree(folder: Path) -> None:
    for root, _, names in os.walk(folder):
        for name in names:
            _sync(Path(root) / name, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        _sync_folder(Path(root))


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        _sync(folder, os.O_RDONLY)


def _sync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
