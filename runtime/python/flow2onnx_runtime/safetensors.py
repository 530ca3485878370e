"""Safetensors files, read with distrust and written whole."""

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.digest import NO_DIGEST, check_digest, sign
from flow2onnx_runtime.dtypes import (
    ELEMENTS,
    Element,
    as_bits,
    element_named,
    element_of,
    find_element,
)
from flow2onnx_runtime.errors import BundleError
from flow2onnx_runtime.files import open_file, replace_file
from flow2onnx_runtime.json_reader import MOST, Fields, parse_object

__all__ = [
    "Header",
    "StoredTensor",
    "load_safetensors",
    "load_signed",
    "read_header",
    "read_tensors",
    "replace_tensors",
    "save_safetensors",
]

_HEADER_LIMIT = 100_000_000  # the format's own
_RANK_LIMIT = 64  # numpy's
T = TypeVar("T")
_METADATA = "__metadata__"
_DIGEST_KEY = b'{"__metadata__":{"digest":"'
_BY_STORED = {element.safetensors: element for element in ELEMENTS}


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies in a file: bytes `start` to `end`, counted from the file's beginning."""

    element: str
    shape: tuple[int, ...]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """The header of a safetensors file, checked against its size."""

    tensors: Mapping[str, StoredTensor]
    metadata: Mapping[str, str]


def save_safetensors(
    path: str | os.PathLike[str],
    tensors: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, str] | None = None,
    elements: Mapping[str, str] | None = None,
    *,
    first: Collection[str] = (),
    signs: bool = False,
) -> None:
    """Write tensors to a file, which appears whole or not at all; equal content, equal bytes.

    `elements` names the element type of arrays whose dtype does not say it: bfloat16 as uint16.
    Those named by `first` lie before the others. With `signs`, the metadata begin with a `digest`,
    which `load_signed` compares with the file.
    """
    entries = [
        _entry(str(path), name, array, (elements or {}).get(name))
        for name, array in tensors.items()
    ]
    # Widest elements first: then every tensor is aligned to its element, or every one of `first`.
    entries.sort(key=lambda entry: (entry[0] not in first, -entry[1].size, entry[0]))
    parts = [array.reshape(-1).view(np.uint8).data for _, _, array in entries]
    if signs:
        others = {key: text for key, text in (metadata or {}).items() if key != "digest"}
        header = _header_bytes(entries, {"digest": NO_DIGEST, **others})
        header = sign(header, 8 + len(_DIGEST_KEY), parts)
    else:
        header = _header_bytes(entries, metadata or {})

    def write(file: BinaryIO) -> None:
        file.write(header)
        for part in parts:
            file.write(part)

    replace_file(path, write)


def replace_tensors(
    source: Path, target: Path, values: Mapping[str, NDArray[Any]], names: Collection[str]
) -> None:
    """Write the tensors `names` of new values to the places that they have in `source`.

    The file holds whatever lies before the last of them too, and nothing behind; its header is
    filled up to the length of the old one.
    """
    header = read_header(source)
    end = max(header.tensors[name].end for name in names)
    places = {n: t for n, t in header.tensors.items() if t.end <= end}
    order = sorted(places, key=lambda name: (places[name].start, places[name].end))
    entries = [_entry(str(target), n, values[n], places[n].element) for n in order]
    text = _header_bytes(entries, header.metadata)[8:]
    size = min(t.start for t in header.tensors.values()) - 8
    assert len(text) <= size, "fewer tensors have a shorter header"

    def write(file: BinaryIO) -> None:
        file.write(size.to_bytes(8, "little") + text.ljust(size))
        for _, _, array in entries:
            file.write(array.reshape(-1).view(np.uint8).data)

    replace_file(target, write)


def load_safetensors(
    path: str | os.PathLike[str],
) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """The tensors and the metadata of a file; bfloat16 comes as uint16 bits (see `read_header`).

    Raises `BundleError` for whatever the format does not allow, before any tensor is read.
    """
    with open_file(path) as file:
        header = _header(file, str(path))
        tensors = {name: _read(file, str(path), t) for name, t in header.tensors.items()}
    return tensors, dict(header.metadata)


def read_tensors(
    path: str | os.PathLike[str],
    names: Iterable[str],
    check: Callable[[Mapping[str, StoredTensor]], None],
) -> Iterator[tuple[str, NDArray[Any]]]:
    """The tensors of a file by name, each read when it is asked for, so that one is held at a time.

    `check` sees all that the file has before any is read. The file is opened once.
    """
    with open_file(path) as file:
        tensors = _header(file, str(path)).tensors
        check(tensors)
        for name in names:
            yield name, _read(file, str(path), tensors[name])


def load_signed(
    path: str | os.PathLike[str], check: Callable[[Mapping[str, str]], T]
) -> tuple[dict[str, NDArray[Any]], T]:
    """The tensors of a file that `save_safetensors` signed, and what `check` says of its metadata.

    The file is opened once, so a save that replaces it meanwhile changes nothing. Raises
    `BundleError` also where the digest is wrong.
    """
    with open_file(path) as file:
        header = _header(file, str(path))
        checked = check(header.metadata)
        file.seek(8)  # behind the header's length, which the places of the tensors give too
        check_digest(file, _DIGEST_KEY, str(path))
        return {name: _read(file, str(path), t) for name, t in header.tensors.items()}, checked


def read_header(path: str | os.PathLike[str]) -> Header:
    """The header of a safetensors file; the tensors are not read."""
    with open_file(path) as file:
        return _header(file, str(path))


def _header(file: BinaryIO, what: str) -> Header:
    size = os.fstat(file.fileno()).st_size
    text = _header_text(file, what, size)
    value = parse_object(text, f"{what}: header")
    metadata = _metadata(what, value.pop(_METADATA, {}))
    tensors = {name: _read_entry(what, name, entry) for name, entry in value.items()}
    _check_layout(what, tensors, size - 8 - len(text))
    return Header({name: _shift(t, 8 + len(text)) for name, t in tensors.items()}, metadata)


def _entry(
    what: str, name: str, array: NDArray[Any], element: str | None
) -> tuple[str, Element, NDArray[Any]]:
    array = np.asarray(array)
    kind = (
        find_element(element)
        if element
        else element_of(array.dtype, BundleError, f"{what}: {name}")
    )
    if kind is None or not kind.takes(array.dtype):
        raise BundleError(f"{what}: {name}: {array.dtype} values cannot be {element} elements")
    if name == _METADATA:
        raise BundleError(f"{what}: no tensor can be named {name}")
    bits = as_bits(array, kind)
    return name, kind, np.asarray(bits, bits.dtype.newbyteorder("<"), order="C")


def _header_bytes(
    entries: list[tuple[str, Element, NDArray[Any]]], metadata: Mapping[str, str]
) -> bytes:
    header: dict[str, object] = {_METADATA: dict(metadata)} if metadata else {}
    start = 0
    for name, element, array in entries:
        end = start + array.nbytes
        header[name] = {
            "dtype": element.safetensors,
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
        start = end
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read(file: BinaryIO, what: str, tensor: StoredTensor) -> NDArray[Any]:
    element = element_named(tensor.element)
    file.seek(tensor.start)
    stored = np.fromfile(file, np.uint8, tensor.end - tensor.start)
    if stored.nbytes != tensor.end - tensor.start:
        raise BundleError(f"{what}: became shorter while it was read")
    if element.name == "bool" and stored.size and stored.max() > 1:
        raise BundleError(f"{what}: a bool tensor holds bytes other than 0 and 1")
    array = stored.view(element.numpy.newbyteorder("<")).astype(element.numpy, copy=False)
    try:
        return array.reshape(tensor.shape)
    except ValueError as error:  # an empty tensor with a dimension beyond numpy's limit
        raise BundleError(f"{what}: no array can have shape {list(tensor.shape)}") from error


def _header_text(file: BinaryIO, what: str, size: int) -> bytes:
    if size < 8:
        raise BundleError(f"{what}: {size} bytes are no safetensors file", hint="it is cut off")
    length = int.from_bytes(file.read(8), "little")
    if length > _HEADER_LIMIT or length > size - 8:
        raise BundleError(
            f"{what}: the header should be {length} bytes long, the file has {size}",
            hint="it is cut off, or no safetensors file",
        )
    text = file.read(length)
    if not text.startswith(b"{"):
        raise BundleError(f"{what}: the header does not begin with an object")
    return text


def _metadata(what: str, value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(v, str) for v in value.values()):
        raise BundleError(f"{what}: {_METADATA} is not an object of texts")
    return value


def _read_entry(what: str, name: str, value: object) -> StoredTensor:
    fields = Fields(f"{what}: tensor {name!r}", value)
    stored = fields.text("dtype")
    if stored not in _BY_STORED:
        raise fields.error("dtype", f"is {stored}; known are {', '.join(_BY_STORED)}")
    shape = tuple(_whole(fields, "shape", size) for size in fields.items("shape"))
    offsets = [_whole(fields, "data_offsets", o) for o in fields.items("data_offsets")]
    if len(shape) > _RANK_LIMIT or len(offsets) != 2:
        raise fields.error("shape", f"has {len(shape)} sizes and data_offsets {len(offsets)}")
    element = _BY_STORED[stored]
    if offsets[1] - offsets[0] != prod(shape) * element.size:
        raise fields.error(
            "data_offsets", f"is {offsets}: not the size of {element.name} {list(shape)}"
        )
    return StoredTensor(element.name, shape, offsets[0], offsets[1])


def _whole(fields: Fields, key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST:
        raise fields.error(key, f"holds {value!r}, not a size")
    return value


def _check_layout(what: str, tensors: Mapping[str, StoredTensor], size: int) -> None:
    """Tensors lie one behind the other and fill the file: no gap, no overlap, nothing behind."""
    position = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end)):
        if tensor.start != position:
            raise BundleError(
                f"{what}: tensor {name!r} starts at byte {tensor.start}, expected {position}"
            )
        position = tensor.end
    if position != size:
        raise BundleError(
            f"{what}: the tensors take {position} bytes, the file holds {size}",
            hint="it is cut off, or something was appended",
        )


def _shift(tensor: StoredTensor, by: int) -> StoredTensor:
    return StoredTensor(tensor.element, tensor.shape, tensor.start + by, tensor.end + by)
