"""Where a model says that its tensors lie in other files, and whether it may.

Older versions of the runtime read whatever file a model names. The model is read here as far as its
tensors, in protobuf's wire format, and nothing of it is copied: values are stepped over, and so is
every small part that does not hold the word that such an entry begins with.
"""

import mmap
import os
import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath

from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import open_file
from flow2onnx_runtime.wire import fields

__all__ = ["check_external_data", "external_locations"]

_KEY = b"location"  # the key of such an entry: a part without these bytes has none
_SMALL = (
    1 << 16
)  # bytes of a part that is searched for the key; of a larger one the fields are read
_ORT_FORMAT = b"ORTM"  # at byte 4; that format has no external data

# The fields through which tensors are reached, by message: field number -> message. Functions,
# subgraphs of attributes and training information hold tensors as well as the graph itself.
_INSIDE: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 20: "Training", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Function": {7: "Node", 11: "Attribute"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Training": {1: "Graph", 2: "Graph"},
    "Tensor": {13: "Entry"},
}

Content = bytes | mmap.mmap


def check_external_data(
    model: bytes | str | os.PathLike[str], folder: str | None = None, load_format: str = ""
) -> bool:
    """True if tensors of a model lie in other files, all of which it may name.

    These are regular files inside the model's folder, links resolved, by a relative path without
    "..". Bytes have no folder but the one given. `load_format` is the runtime's entry of that name.
    Raises `BundleError` for a location that is none of these.
    """
    if isinstance(model, bytes):
        is_ort = model[4:8] == _ORT_FORMAT or load_format == "ORT"
        return not is_ort and _check(model, "the model", [folder] if folder else [])
    if load_format == "ORT" or (os.fspath(model).endswith(".ort") and load_format != "ONNX"):
        return False
    # Of a model that is a link, its data may lie beside either end.
    folders = [os.path.dirname(path) or "." for path in (os.fspath(model), os.path.realpath(model))]
    with open_file(model) as file:
        if not os.fstat(file.fileno()).st_size:
            return False
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return _check(content, os.fspath(model), folders)


def external_locations(content: Content) -> Iterator[str]:
    """Every location that a tensor of a model names; `ValueError` for what is no model."""
    todo = [("Model", 0, len(content))]
    while todo:
        message, at, end = todo.pop()
        if end - at <= _SMALL and content.find(_KEY, at, end) < 0:
            continue
        inside = _INSIDE[message]
        for number, start, stop in fields(content, at, end):
            if not stop or (kind := inside.get(number)) is None:
                continue
            if kind != "Entry":
                todo.append((kind, start, stop))
            elif (location := _location(content, start, stop)) is not None:
                yield location


def _check(content: Content, what: str, folders: list[str]) -> bool:
    seen: set[str] = set()
    try:
        for location in external_locations(content):
            if location not in seen:  # most models name one file for all tensors
                _check_location(what, location, folders)
                seen.add(location)
    except (ValueError, IndexError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{what} is no ONNX model: {error}", hint="it is damaged") from error
    return bool(seen)


def _check_location(what: str, location: str, folders: list[str]) -> None:
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


def _location(content: Content, at: int, end: int) -> str | None:
    """The location that an entry of external data holds; None if it holds something else."""
    texts = {1: b"", 2: b""}
    for number, start, stop in fields(content, at, end):
        if stop and number in texts:
            texts[number] = content[start:stop]
    return texts[2].decode() if texts[1] == _KEY else None
