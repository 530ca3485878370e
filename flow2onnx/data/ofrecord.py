"""OFRecord files: records of named features, each behind its length as a 64-bit integer.

A record is the protobuf message `OFRecord`; a feature is one list of bytes, float, double, int32 or
int64. There is no checksum: what can be checked is the structure.
"""

import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.files import open_regular
from flow2onnx_runtime.messages import parse_bytes

from flow2onnx.errors import ArgumentError, DataError
from flow2onnx.proto.record import OFRecord

__all__ = ["MAX_RECORD", "Feature", "OFRecordWriter", "Record", "encode_record", "read_records",
           "write_records"]  # fmt: skip

_DTYPES: dict[str, "np.dtype[Any]"] = {"float": np.dtype("<f4"), "double": np.dtype("<f8"),
           "int32": np.dtype(np.int32), "int64": np.dtype(np.int64)}  # fmt: skip
_HEADER = struct.Struct("<q")
MAX_RECORD = 1 << 28  # bytes; larger lengths are taken for damage

Path_ = str | os.PathLike[str]
Values = bytes | str | Sequence[Any] | Array


@dataclass(frozen=True)
class Feature:
    """A named list of a record: its kind, and its values, an array or a tuple of bytes."""

    kind: str
    values: Array | tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.values)


@dataclass(frozen=True)
class Record:
    """The bytes of one record with the place they come from; parsed when a feature is asked for."""

    data: bytes = field(repr=False)
    file: str
    number: int
    offset: int

    @property
    def where(self) -> str:
        """The place as messages name it."""
        return f"{self.file}, record {self.number} at byte {self.offset}"

    def names(self) -> tuple[str, ...]:
        """The names of the features, in alphabetical order."""
        return tuple(self._lists)

    def features(self) -> dict[str, Feature]:
        """All features by name."""
        return {name: _feature_of(listed) for name, listed in self._lists.items()}

    def feature(self, name: str) -> Feature:
        """The feature of that name."""
        if name not in self._lists:
            raise DataError(
                f"there is no feature {name!r}",
                place=self.where,
                hint=f"the record has {', '.join(map(repr, self._lists)) or 'none'}",
            )
        return _feature_of(self._lists[name])

    def error(self, text: str, position: int = _HEADER.size) -> DataError:
        """An error about what lies `position` bytes behind the begin of the record's length."""
        return DataError(
            text,
            place=f"{self.file}, record {self.number}, byte {self.offset + position}",
            hint="the file is damaged or no OFRecord file; `flow2onnx data check` looks at all",
        )

    @cached_property
    def _lists(self) -> dict[str, Any]:  # protobuf's classes have no static type
        """The messages of the features by name; of two of one name the later counts."""
        try:
            features = parse_bytes(self.data, OFRecord).feature
            return {name: features[name] for name in sorted(features)}
        except ValueError as error:
            raise self.error(f"the bytes are no OFRecord: {error}") from None


def _feature_of(message: Any) -> Feature:
    chosen = message.WhichOneof("kind")
    if chosen is None:
        return Feature("bytes", ())
    kind, listed = chosen.removesuffix("_list"), getattr(message, chosen)
    if kind == "bytes":
        return Feature(kind, tuple(listed.value))
    dtype, count = _DTYPES[kind], len(listed.value)
    if kind in ("int32", "int64"):
        return Feature(kind, np.fromiter(listed.value, dtype, count))
    # protobuf hands its numbers out one by one only; what it writes of them ends with all of them
    listed.DiscardUnknownFields()
    data = listed.SerializeToString()
    return Feature(kind, np.frombuffer(data, dtype, count, len(data) - count * dtype.itemsize))


def read_records(path: Path_, limit: int = MAX_RECORD) -> Iterator[Record]:
    """The records of a file, one in memory at a time.

    Raises `DataError` with file, record and byte for a length that is not positive, over `limit`
    or over the rest of the file, before anything of that size is allocated.
    """
    name = os.fspath(path)
    try:
        with open_regular(name, buffering=1 << 20) as file:
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
            raise here.error("the length of a record is cut off", 0)
        (length,) = _HEADER.unpack(header)
        rest = size - offset - _HEADER.size
        if length <= 0:
            raise here.error(f"a record of {length} bytes", 0)
        if length > limit:
            raise here.error(f"a record of {length} bytes, over the limit of {limit}", 0)
        if length > rest:
            raise here.error(f"a record of {length} bytes, but {rest} are left", 0)
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
    if not features:
        raise ArgumentError("a record without features", hint="give at least one")
    record = OFRecord()
    for name, values in features.items():
        kind, content = _list_of(name, values)
        listed = getattr(record.feature[name], f"{kind}_list")
        listed.SetInParent()  # there, though it be empty
        listed.value.extend(content)
    body: bytes = record.SerializeToString(deterministic=True)
    return _HEADER.pack(len(body)) + body


def _list_of(name: str, values: Values) -> tuple[str, Any]:
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


def _integers(name: str, array: Array) -> tuple[str, Array]:
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
        if error is None:
            self.close()
        else:
            self.discard()


def write_records(path: Path_, records: Iterable[Mapping[str, Values]]) -> int:
    """Write one part file; returns the number of records."""
    with OFRecordWriter(path) as writer:
        for features in records:
            writer.write(features)
    return writer.count
