"""The fields of a protobuf message, read from its bytes without a copy of them.

Where models of gigabytes are looked into before anyone parses them, only lengths are read. A list
of numbers that are a field each, as the attributes of trees have them, is stepped over as one.
"""

import functools
import mmap
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Buffer", "Field", "GroupError", "WireError", "fields", "varint"]

Buffer = bytes | mmap.mmap

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class WireError(ValueError):
    """Bytes that are no protobuf message, or a damaged one, which no parser takes either."""


class GroupError(ValueError):
    """A group of fields, as messages had them once, or a tag that parsers cut to 32 bits."""


class Field(NamedTuple):
    """A field by its number, and where its content lies; `end` is 0 where that is a number."""

    number: int
    start: int
    end: int


_field = functools.partial(tuple.__new__, Field)  # half the time of a call of the class


def fields(
    content: Buffer, start: int, end: int, count: Callable[[], object] | None = None
) -> Iterator[Field]:
    """The fields of the message in `content[start:end]`; raises WireError for a damaged one.

    Numbers of one field that follow each other come once. `count` is called for each that comes.
    """
    at = start
    while at < end:
        if count is not None:
            count()
        tag = content[at]
        at += 1
        if tag > 127:
            tag, at = _varint(content, at - 1)
            if tag >= 1 << 32:
                raise GroupError("a field without number: parsers take the lower half of its tag")
        elif tag < 8:
            raise _damage()  # there is no field 0
        kind = tag & 7
        if kind == _BYTES:
            if at >= end:
                raise _damage()
            size = content[at]
            at += 1
            if size > 127:
                size, at = _varint(content, at - 1)
            found = _field((tag >> 3, at, at + size))
            at += size
        elif kind == _VARINT:
            found = _field((tag >> 3, at, 0))
            at = _varint(content, at)[1]
            if at < end and content[at] == tag < 128:
                at = _end_of_numbers(content, at, end, tag)
        elif kind in (_FIXED32, _FIXED64):
            at += 4 if kind == _FIXED32 else 8
            found = _field((tag >> 3, at, 0))
            if at < end and content[at] == tag < 128:
                at = _end_of_numbers(content, at, end, tag)
        else:
            raise GroupError("a group, which parsers skip and ONNX has none of")
        if at > end:
            raise _damage()
        yield found


def varint(content: Buffer, field: Field) -> int:
    """The number that a field of that kind holds, the first of a list."""
    return _varint(content, field.start)[0]


def _end_of_numbers(content: Buffer, at: int, end: int, tag: int) -> int:
    """The end of the whole fields of numbers with that tag which begin at `at`."""
    found = _numbers(tag).match(content, at, end)
    return at if found is None else found.end()


@functools.cache
def _numbers(tag: int) -> re.Pattern[bytes]:
    """Fields of numbers with that tag of one byte."""
    number = {_VARINT: rb"[\x80-\xff]{0,9}[\x00-\x7f]", _FIXED32: rb".{4}", _FIXED64: rb".{8}"}
    return re.compile(b"(?:" + re.escape(bytes([tag])) + number[tag & 7] + b")++", re.DOTALL)


def _varint(content: Buffer, at: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = 0
    for place, byte in enumerate(content[at : at + _LONGEST_VARINT]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value, at + place + 1
    raise _damage()


def _damage() -> WireError:
    return WireError("no protobuf message, or a damaged one")
