"""Where a model says that its tensors lie in other files, and whether it may.

Older versions of the runtime read whatever file a model names. Of a tensor nothing is copied: its
values are stepped over, and so is a whole small one without the word that such an entry begins
with.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PureWindowsPath

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.wire import Buffer, fields

__all__ = ["check_locations", "tensor_locations"]

_KEY = b"location"  # the key of such an entry: a tensor without these bytes has none
_SMALL = 1 << 16  # bytes of a tensor that is searched for the key; of a larger one fields are read
_ENTRY = 13  # the field of a tensor in onnx.proto


def tensor_locations(
    content: Buffer, start: int, end: int, count: Callable[[], object]
) -> Iterator[str]:
    """Every location that the tensor in `content[start:end]` names.

    `count` is called for each field that is looked at. Raises `ValueError` for what is no tensor.
    """
    if end - start <= _SMALL and content.find(_KEY, start, end) < 0:
        return
    for one in fields(content, start, end, count):
        if one.number == _ENTRY and one.end:
            location = _location(content, one.start, one.end, count)
            if location is not None:
                yield location


def check_locations(what: str, locations: Iterable[str], folders: Sequence[str]) -> None:
    """Raise `BundleError` for a location that the model `what` may not name.

    It may name regular files inside one of its folders, links resolved, by a relative path without
    "..".
    """
    for location in locations:
        _check_location(what, location, folders)


def _check_location(what: str, location: str, folders: Sequence[str]) -> None:
    place = f"{what} has values in another file, {location!r}"
    if not folders:
        raise BundleError(
            f"{place}, and no folder: it was given as bytes",
            hint="give the model's path",
        )
    windows = PureWindowsPath(location)
    if not location or "\0" in location or windows.anchor or ".." in re.split(r"[/\\]", location):
        raise BundleError(
            f"{place}, which is no path inside its folder",
            hint="copy the file beside the model, and name it so there",
        )
    if not any(_is_inside(Path(folder), location) for folder in folders):
        raise BundleError(
            f"{place}, which is no regular file inside its folder",
            hint="copy the file itself, not a link to it, beside the model",
        )


def _is_inside(folder: Path, location: str) -> bool:
    real = os.path.realpath(folder / location)
    return Path(real).is_relative_to(os.path.realpath(folder)) and os.path.isfile(real)


def _location(content: Buffer, at: int, end: int, count: Callable[[], object]) -> str | None:
    """The location that an entry of external data holds; None if it holds something else."""
    texts = {1: b"", 2: b""}
    for number, start, stop in fields(content, at, end, count):
        if stop and number in texts:
            texts[number] = content[start:stop]
    return texts[2].decode() if texts[1] == _KEY else None
