"""Checkpoints on disk: saved, loaded, listed.

>>> import tempfile
>>> import numpy as np
>>> with tempfile.TemporaryDirectory() as root:
...     save(f"{root}/snapshot", {"w": np.ones((2, 3), np.float32)})
...     float(load(f"{root}/snapshot")["w"].numpy().sum())
6.0
"""

import contextlib
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import FlowError
from flow2onnx_runtime.files import remove_abandoned, replace_folder
from flow2onnx_runtime.safetensors import load_safetensors, read_header, save_safetensors

from flow2onnx.checkpoint.meta import meta_text, parse_meta
from flow2onnx.dtypes import DType, by_name, by_numpy
from flow2onnx.errors import CheckpointError, DTypeError

__all__ = [
    "SavedVariable",
    "latest",
    "list_checkpoints",
    "load",
    "new_snapshot_name",
    "save",
]

PathLike: TypeAlias = str | os.PathLike[str]

_VALUE, _META, _DONE = "out", "meta", "snapshot_done"
_WORTH_MAPPING = 1 << 20  # bytes
_META_LIMIT = 1 << 16  # bytes; far above any shape
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{12}\.tmp")  # as flow2onnx_runtime.files names them


@dataclass(frozen=True)
class SavedVariable:
    """A value in a checkpoint; one in a directory is read whenever it is asked for.

    `shape` and `dtype` are None where there is no `meta` (OneFlow before 0.3): `numpy_as` gives
    the value then.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: DType | None
    file_path: str
    held: Array | None = field(default=None, repr=False, compare=False)

    def numpy(self) -> Array:
        """The value, as an array of the caller's own."""
        if self.shape is None or self.dtype is None:
            raise CheckpointError(
                f"{self.file_path} has no {_META} beside it: its shape and dtype are not known",
                hint="call numpy_as(shape, dtype), or load it into the variables of a job",
            )
        return self.numpy_as(self.shape, self.dtype)

    def numpy_as(self, shape: Sequence[int], dtype: DType) -> Array:
        """The value with this shape and dtype, which must be the saved ones where those are known.

        An error shows what is asked for first, and then what the checkpoint holds.
        """
        return np.array(self.view_as(shape, dtype))

    def view_as(self, shape: Sequence[int], dtype: DType) -> Array:
        """The same for reading: a large value in a directory is the file's own memory."""
        for wanted, saved in ((tuple(shape), self.shape), (dtype, self.dtype)):
            if saved is not None and saved != wanted:
                raise CheckpointError(
                    f"{self.file_path}: {wanted} vs {saved}",
                    hint="the variable was saved by another model",
                )
        if self.held is not None:
            return self.held
        with _checkpoint_errors(self.file_path, "read"):
            return _value(self.file_path, tuple(shape), dtype)


def save(path: PathLike, values: Mapping[str, Array]) -> None:
    """Write a checkpoint: one file if `path` ends in ``.safetensors``, else a directory.

    A file is replaced; a directory must be missing or empty. A process killed at any moment
    leaves the old state or the new one.
    """
    arrays = {name: _storable(name, value) for name, value in values.items()}
    if os.fspath(path).endswith(".safetensors"):
        _write(path, lambda target: save_safetensors(target, arrays))
        return
    for name in arrays:
        _check_is_file_name(name)
    _check_is_free(path)
    _write(path, lambda target: replace_folder(target, lambda folder: _fill(folder, arrays)))


def load(path: PathLike) -> dict[str, SavedVariable] | SavedVariable:
    """The variables of a checkpoint by name; a single one if `path` is a variable's directory."""
    with _checkpoint_errors(path, "read"):
        if os.fspath(path).endswith(".safetensors"):
            return _load_file(os.fspath(path))
        if not os.path.isdir(path):
            raise CheckpointError(
                f"Directory {path} doesn't exist!",
                hint="a checkpoint is a directory, or a file whose name ends in .safetensors",
            )
        if os.path.isfile(Path(path, _VALUE)):
            return _variable(Path(path), Path(path))
        return _load_folder(Path(path))


def list_checkpoints(root: PathLike, prefix: str = "snapshot_") -> list[str]:
    """The sorted names of the finished checkpoint directories in `root`."""
    if not os.path.isdir(root):
        return []
    with _checkpoint_errors(root, "read"):
        return sorted(
            name
            for name in os.listdir(root)
            # what a killed save leaves is hidden
            if name.startswith(prefix) and not name.startswith(".") and _is_done(Path(root, name))
        )


def latest(root: PathLike, prefix: str = "snapshot_") -> str | None:
    """The last of `list_checkpoints`, or None."""
    return max(list_checkpoints(root, prefix), default=None)


def new_snapshot_name(prefix: str, now: datetime) -> str:
    """A name that sorts by time: ``snapshot_20200615_081530_123456``."""
    return f"{prefix}{now:%Y%m%d_%H%M%S_%f}"


def _is_done(folder: Path) -> bool:
    return os.path.isfile(folder / _DONE)


@contextlib.contextmanager
def _checkpoint_errors(path: PathLike, done: str) -> Iterator[None]:
    """Turn what the system and the file formats refuse into a CheckpointError."""
    try:
        yield
    except CheckpointError:
        raise
    except FlowError as error:
        place = "" if os.fspath(path) in error.message else f"{path}: "
        raise CheckpointError(place + error.message, hint=error.hint) from error
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise CheckpointError(
            f"{path} could not be {done}: {error}",
            hint="check the name, the permissions and the free space",
        ) from error


# Saving


def _storable(name: str, value: Array) -> Array:
    """The value in the element type and byte order that goes to disk."""
    if not isinstance(name, str) or not _is_unicode(name):
        raise CheckpointError(f"variable name {name!r} is no text", hint="rename the variable")
    array = np.asarray(value)
    try:
        dtype = by_numpy(array.dtype.newbyteorder("="))
    except DTypeError as error:
        raise CheckpointError(f"variable {name!r}: {error.message}", hint=error.hint) from None
    return np.asarray(array, dtype=dtype.numpy.newbyteorder("<"), order="C")


def _is_unicode(name: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in name)


def _check_is_file_name(name: str) -> None:
    """The name becomes a directory inside the checkpoint and must not lead anywhere else."""
    if name in ("", _DONE) or name.startswith(".") or any(c in name for c in "/\\\0"):
        raise CheckpointError(
            f"variable name {name!r} cannot be the name of a directory",
            hint="avoid separators and a leading dot, or save to a .safetensors file",
        )


def _check_is_free(path: PathLike) -> None:
    with _checkpoint_errors(path, "written"):
        if not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path)):
            return
    raise CheckpointError(
        f"{path} is a file or non-empty directory! A checkpoint is never saved over another",
        hint="save to a new directory, or to a .safetensors file, which is replaced",
    )


def _write(path: PathLike, write: Callable[[Path], None]) -> None:
    with _checkpoint_errors(path, "written"):
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target.parent)
        write(target)


def _fill(folder: Path, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        home = folder / name
        home.mkdir()  # fails for names that the file system takes for the same, such as W and w
        array.tofile(home / _VALUE)
        text = meta_text(array.shape, by_numpy(array.dtype.newbyteorder("=")))
        (home / _META).write_text(text, encoding="utf-8", newline="\n")
    (folder / _DONE).touch()


def _remove_leftovers(root: Path) -> None:
    """Delete the folders that killed saves left in `root`, whatever they were to be called.

    `replace_folder` removes those of its own target only, and each snapshot has its own name.
    """
    for path in root.glob(".*.tmp"):
        if _LEFTOVER.fullmatch(path.name):
            remove_abandoned(path)


# Loading


def _load_file(path: str) -> dict[str, SavedVariable]:
    header, (tensors, _) = read_header(path), load_safetensors(path)
    while header != (now := read_header(path)):  # a save replaced the file in between
        header, (tensors, _) = now, load_safetensors(path)
    return {
        name: _loaded_variable(name, array, by_name(header.tensors[name].element), path)
        for name, array in sorted(tensors.items())
    }


def _loaded_variable(name: str, array: Array, dtype: DType, path: str) -> SavedVariable:
    # bfloat16 comes as the bits of its values
    return SavedVariable(name, array.shape, dtype, path, array.view(dtype.numpy))


def _load_folder(path: Path) -> dict[str, SavedVariable]:
    if not _is_done(path):
        raise _not_done(path)
    homes = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    return {home.name: _variable(home, path) for home in homes}


def _not_done(path: Path) -> CheckpointError:
    """The error of a folder without the file that is written last."""
    names = sorted(p.name for p in path.iterdir())
    places = (path, *(path / name for name in names))
    if any((place / file).is_file() for place in places for file in (_VALUE, _META)):
        return CheckpointError(
            f"{path} has no {_DONE}: it was only half written",
            hint="load an earlier checkpoint; a half-written one can be deleted",
        )
    held = f"holds {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}"
    return CheckpointError(
        f"{path} is no checkpoint: it {held if names else 'is an empty folder'}",
        hint="give a folder that flow.checkpoint.save wrote, or a .safetensors file",
    )


def _variable(home: Path, root: Path) -> SavedVariable:
    """The variable in directory `home` of the checkpoint `root`."""
    value, meta = home / _VALUE, home / _META
    name = os.path.basename(os.path.abspath(home))
    if not _is_there(value, root):
        raise CheckpointError(
            f"{home} has no file {_VALUE!r}: the checkpoint is incomplete",
            hint="copy it again, or load an earlier one",
        )
    if not _is_there(meta, root):
        return SavedVariable(name, None, None, str(value))
    with meta.open("rb") as file:
        shape, dtype = parse_meta(file.read(_META_LIMIT), str(meta))
    _check_size(str(value), value.stat().st_size, shape, dtype)
    return SavedVariable(name, shape, dtype, str(value))


def _is_there(part: Path, root: Path) -> bool:
    """True if `part` is there; an error if it is something else than a file inside `root`."""
    inside = Path(os.path.realpath(part)).is_relative_to(os.path.realpath(root))
    if os.path.lexists(part) and not (inside and os.path.isfile(part)):
        raise CheckpointError(
            f"{part} is no file inside the checkpoint {root}",
            hint="copy the checkpoint with its links followed, such as with cp -rL",
        )
    return os.path.lexists(part)


def _value(path: str, shape: tuple[int, ...], dtype: DType) -> Array:
    _check_size(path, os.path.getsize(path), shape, dtype)
    stored, count = dtype.numpy.newbyteorder("<"), math.prod(shape)
    if count * stored.itemsize < _WORTH_MAPPING:
        array = np.fromfile(path, stored, count)
    else:
        array = np.asarray(np.memmap(path, stored, "r", shape=count))
    return array.astype(dtype.numpy, copy=False).reshape(shape)


def _check_size(path: str, size: int, shape: tuple[int, ...], dtype: DType) -> None:
    wanted = math.prod(shape) * dtype.numpy.itemsize
    if size != wanted:
        raise CheckpointError(
            f"{path} has {size} bytes, {dtype.name} values of shape {shape} take {wanted}",
            hint="it is damaged or of another model: load an earlier checkpoint",
        )
