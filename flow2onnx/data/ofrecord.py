"""OFRecord files: records of named features, each behind its length as a 64-bit integer.

A record is the protobuf message ``map<string, Feature> feature = 1``; a feature is one list of
bytes, float, double, int32 or int64. There is no checksum: what can be checked is the structure.
"""

import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.typing import NDArray

from flow2onnx.data.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    WireError,
    fields,
    message,
    packed_varints,
    varint,
    varints,
)
from flow2onnx.errors import ArgumentError, DataError

__all__ = ["KINDS", "MAX_RECORD", "Feature", "OFRecordWriter", "Record", "encode_record",
           "read_records", "write_records"]  # fmt: skip

KINDS = {1: "bytes", 2: "float", 3: "double", 4: "int32", 5: "int64"}
_NUMBERS = {kind: number for number, kind in KINDS.items()}
_DTYPES: dict[str, "np.dtype[Any]"] = {"float": np.dtype("<f4"), "double": np.dtype("<f8"),
           "int32": np.dtype(np.int32), "int64": np.dtype(np.int64)}  # fmt: skip
_HEADER = struct.Struct("<q")
MAX_RECORD = 1 << 28  # bytes; larger lengths are taken for damage

Path_ = str | os.PathLike[str]
Values = bytes | str | Sequence[Any] | NDArray[Any]


@dataclass(frozen=True)
class Feature:
    """A named list of a record: its kind, and its values, an array or a tuple of bytes."""

    kind: str
    values: NDArray[Any] | tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Record:
    """The bytes of one record with the place they come from; features are read when asked for."""

    data: bytes = field(repr=False)
    file: str
    number: int
    offset: int

    @property
    def where(self) -> str:
        """The place as messages name it."""
        return f"{self.file}, record {self.number} at byte {self.offset}"

    def names(self) -> tuple[str, ...]:
        """The names of the features."""
        return tuple(self._places)

    def features(self) -> dict[str, Feature]:
        """All features by name."""
        return {name: self._read(place) for name, place in self._places.items()}

    def feature(self, name: str) -> Feature:
        """The feature of that name."""
        places = self._places
        if name not in places:
            raise DataError(
                f"there is no feature {name!r}",
                place=self.where,
                hint=f"the record has {', '.join(map(repr, places)) or 'none'}",
            )
        return self._read(places[name])

    def error(self, text: str, position: int = 0) -> DataError:
        """An error about what lies `position` bytes behind the record's length."""
        return DataError(
            text,
            place=f"{self.file}, record {self.number}, byte "
            f"{self.offset + _HEADER.size + position}",
            hint="the file is damaged or no OFRecord file; `flow2onnx data check` looks at all",
        )

    @contextmanager
    def _checked(self) -> Iterator[None]:
        try:
            yield
        except WireError as error:
            raise self.error(str(error), error.position) from None

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """Where each feature lies; of two of one name the later counts, as in protobuf."""
        data, found = self.data, dict[str, tuple[int, int]]()
        with self._checked():
            for number, kind, start, end in fields(data, 0, len(data)):
                if number == 1 and kind == BYTES:
                    name, place = self._entry(start, end)
                    found[name] = place
        return found

    def _entry(self, start: int, end: int) -> tuple[str, tuple[int, int]]:
        name, place = b"", (end, end)
        for number, kind, first, last in fields(self.data, start, end):
            if kind == BYTES and number == 1:
                name = self.data[first:last]
            elif kind == BYTES and number == 2:
                place = first, last
        try:
            return name.decode(), place
        except UnicodeDecodeError:
            raise WireError("the name of a feature is not UTF-8", start) from None

    def _read(self, place: tuple[int, int]) -> Feature:
        kind, lists = "bytes", list[tuple[int, int]]()
        with self._checked():
            for number, wire, start, end in fields(self.data, *place):
                if number not in KINDS or wire != BYTES:
                    continue
                if KINDS[number] != kind:  # the last member of a oneof counts
                    kind, lists = KINDS[number], []
                lists.append((start, end))
            parts = [part for span in lists for part in self._values(kind, *span)]
        if kind == "bytes":
            return Feature(kind, tuple(parts))
        dtype = _DTYPES[kind]
        values = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, dtype), *parts])
        return Feature(kind, values)

    def _values(self, kind: str, start: int, end: int) -> Iterator[Any]:
        """The values of a list, in pieces."""
        for number, wire, first, last in fields(self.data, start, end):
            if number != 1:
                continue
            if kind == "bytes":
                _expect(wire == BYTES, kind, first)
                yield self.data[first:last]
            elif kind in ("float", "double"):
                _expect(wire in (BYTES, FIXED32 if kind == "float" else FIXED64), kind, first)
                yield self._floats(_DTYPES[kind], first, last)
            else:
                _expect(wire in (BYTES, VARINT), kind, first)
                yield self._integers(kind, wire, first, last)

    def _floats(self, dtype: "np.dtype[Any]", start: int, end: int) -> NDArray[Any]:
        if (end - start) % dtype.itemsize:
            raise WireError(f"{end - start} bytes are no list of {dtype.name}", start)
        return np.frombuffer(self.data, dtype, (end - start) // dtype.itemsize, start)

    def _integers(self, kind: str, wire: int, start: int, end: int) -> NDArray[Any]:
        if wire == VARINT:
            raw = np.array([varint(self.data, start, end)[0]], np.uint64)
        elif start == end:
            raw = np.empty(0, np.uint64)
        else:
            raw = packed_varints(self.data, start, end)
        return raw.view(np.int64).astype(_DTYPES[kind])


def _expect(holds: bool, kind: str, position: int) -> None:
    if not holds:
        raise WireError(f"a value of a list of {kind} has another wire type", position)


def read_records(path: Path_, limit: int = MAX_RECORD) -> Iterator[Record]:
    """The records of a file, one in memory at a time.

    Raises `DataError` with file, record and byte for a length that is not positive, over `limit`
    or over the rest of the file, before anything of that size is allocated.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb", buffering=1 << 20) as file:
            yield from _read(file, name, limit)
    except OSError as error:
        raise DataError(
            str(error.strerror or error),
            place=name,
            hint="is the folder right, and how the parts are named?",
        ) from error


def _read(file: BinaryIO, name: str, limit: int) -> Iterator[Record]:
    size, offset, number = os.fstat(file.fileno()).st_size, 0, 0
    while header := file.read(_HEADER.size):
        here = Record(b"", name, number, offset)
        if len(header) < _HEADER.size:
            raise here.error("the length of a record is cut off", -_HEADER.size)
        (length,) = _HEADER.unpack(header)
        rest = size - offset - _HEADER.size
        if length <= 0:
            raise here.error(f"a record of {length} bytes", -_HEADER.size)
        if length > limit:
            text = f"a record of {length} bytes, over the limit of {limit}"
            raise here.error(text, -_HEADER.size)
        if length > rest:
            raise here.error(f"a record of {length} bytes, but {rest} are left", -_HEADER.size)
        data = file.read(length)
        if len(data) < length:
            raise here.error("the file became shorter while it was read")
        yield Record(data, name, number, offset)
        offset, number = offset + _HEADER.size + length, number + 1


def encode_record(features: Mapping[str, Values]) -> bytes:
    """A record as its file holds it, its length before it.

    Bytes, text and lists of them become a list of bytes; float32, float64, int32 and int64 arrays
    a list of that kind; other integers the smallest list that holds them; Python numbers likewise.
    """
    entries = (message(1, name.encode()) + message(2, _feature(name, v))
               for name, v in features.items())  # fmt: skip
    body = b"".join(message(1, entry) for entry in entries)
    if not body:
        raise ArgumentError("a record without features", hint="give at least one")
    return _HEADER.pack(len(body)) + body


def _feature(name: str, values: Values) -> bytes:
    kind, content = _listed(name, values)
    if kind == "bytes":
        return message(1, b"".join(message(1, part) for part in content))
    body = varints(content) if kind in ("int32", "int64") else content.astype(_DTYPES[kind])
    return message(_NUMBERS[kind], message(1, bytes(body)))


def _listed(name: str, values: Values) -> tuple[str, Any]:
    if isinstance(values, bytes | str):
        values = [values]
    if isinstance(values, list | tuple) and values and isinstance(values[0], bytes | str):
        if all(isinstance(v, bytes | str) for v in values):
            return "bytes", [v.encode() if isinstance(v, str) else v for v in values]
        raise ArgumentError(f"feature {name!r} mixes bytes and numbers")
    array = np.atleast_1d(np.asarray(values)).ravel()
    exact = {"float32": "float", "float64": "double", "int32": "int32", "int64": "int64"}
    if isinstance(values, np.ndarray | np.generic) and array.dtype.name in exact:
        return exact[array.dtype.name], array
    if array.dtype.kind == "f":
        return "float", array.astype(np.float32)
    if array.dtype.kind in "iub":
        return _integers(name, array)
    raise ArgumentError(
        f"feature {name!r} holds {array.dtype}", hint="give bytes, text, integers or reals"
    )


def _integers(name: str, array: NDArray[Any]) -> tuple[str, NDArray[Any]]:
    for kind in ("int32", "int64"):
        bounds = np.iinfo(kind)
        if not array.size or (int(array.min()) >= bounds.min and int(array.max()) <= bounds.max):
            return kind, array.astype(kind)
    raise ArgumentError(f"feature {name!r} holds integers of more than 64 bits")


class OFRecordWriter:
    """Writes one part file, whole or not at all: it appears under its name when it is closed.

    >>> with OFRecordWriter("part-0") as writer:  # doctest: +SKIP
    ...     writer.write({"class/label": 3, "encoded": open("cat.jpg", "rb").read()})
    """

    def __init__(self, path: Path_) -> None:
        self.path, self.count = Path(path), 0
        self._partial = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
        self._file = self._partial.open("wb")

    def write(self, features: Mapping[str, Values]) -> None:
        """Append a record."""
        self._file.write(encode_record(features))
        self.count += 1

    def close(self) -> None:
        """Give the file its name."""
        self._file.close()
        self._partial.replace(self.path)

    def discard(self) -> None:
        """Leave nothing behind."""
        self._file.close()
        self._partial.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end: Callable[[], None] = self.close if error is None else self.discard
        end()


def write_records(path: Path_, records: Iterable[Mapping[str, Values]]) -> int:
    """Write one part file; returns the number of records."""
    with OFRecordWriter(path) as writer:
        for features in records:
            writer.write(features)
    return writer.count
