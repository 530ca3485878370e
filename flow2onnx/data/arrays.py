"""Arrays of .npy and .npz files, which may be damaged."""

import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np
from flow2onnx_runtime.dtypes import Array

__all__ = ["UNREADABLE", "read_arrays"]

# What numpy raises of files that it cannot read.
UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    NotImplementedError,  # a compression this Python was built without
    RuntimeError,  # an encrypted member
    SyntaxError,
    tokenize.TokenError,  # the header of an array
    MemoryError,  # a header that claims a size beyond any file
    zipfile.BadZipFile,
    zlib.error,
)


def read_arrays(path: Path, keys: Collection[str] | None = None) -> dict[str, Array]:
    """The arrays of a file by name, or those of `keys`; a single one has the file's name.

    Raises one of `UNREADABLE`.
    """
    with path.open("rb") as file, warnings.catch_warnings():
        # numpy reads headers that Python 2 wrote, more slowly, and says so
        warnings.simplefilter("ignore", UserWarning)
        loaded = np.load(file, allow_pickle=False)  # it leaves open what it cannot read
        if isinstance(loaded, np.ndarray):
            loaded = {path.stem: loaded}
        names = list(loaded if keys is None else keys)
        missing = [name for name in names if name not in loaded]
        if missing:
            held = ", ".join(loaded) or "nothing"
            raise ValueError(f"it has no array {', '.join(missing)}, only {held}")
        if isinstance(loaded, dict):
            return loaded
        return {name: _read_member(loaded.zip, name) for name in names}


def _read_member(archive: zipfile.ZipFile, name: str) -> Array:
    """An array of an .npz file, read to its end: only there is its checksum compared."""
    member = f"{name}.npy"
    with archive.open(member if member in archive.namelist() else name) as file:
        array: Array = np.lib.format.read_array(file, allow_pickle=False)
        if file.read(1):
            raise ValueError(f"{name} is longer than its header says")
    return array
