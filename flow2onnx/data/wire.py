"""The protobuf wire format, as far as records need it: fields with their positions, and numbers.

Everything is bounds-checked, and nothing is allocated before the bytes that fill it are there.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "BYTES",
    "FIXED32",
    "FIXED64",
    "VARINT",
    "WireError",
    "fields",
    "message",
    "packed_varints",
    "varint",
    "varints",
]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_LONGEST = 10  # bytes of a varint of 64 bits
_MASK = (1 << 64) - 1
_SIZES = {FIXED64: 8, FIXED32: 4}

Field = tuple[int, int, int, int]  # number, wire type, start and end of the content


class WireError(ValueError):
    """Bytes that are no message; `position` counts from the start of the buffer."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


def varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """The number that begins at `position`, and where the next thing begins."""
    value = shift = 0
    start = position
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK, position
        shift += 7
        if position - start == _LONGEST:
            raise WireError("a number is longer than ten bytes", start)
    raise WireError("a number is cut off", start)


def fields(data: bytes, position: int, end: int) -> Iterator[Field]:
    """The fields of the message in ``data[position:end]``."""
    while position < end:
        start = position
        key, position = varint(data, position, end)
        kind = key & 7
        if not key >> 3:
            raise WireError("a field has the number 0", start)
        if kind == VARINT:
            first = position
            _, position = varint(data, position, end)
        elif kind == BYTES:
            size, first = varint(data, position, end)
            position = first + size
        elif kind in _SIZES:
            first = position
            position += _SIZES[kind]
        else:
            raise WireError(f"a field has the wire type {kind}", start)
        if position > end:
            raise WireError(f"a field of {position - first} bytes ends outside its message", start)
        yield key >> 3, kind, first, position


def packed_varints(data: bytes, start: int, end: int) -> NDArray[np.uint64]:
    """The numbers that fill ``data[start:end]``."""
    raw = np.frombuffer(data, np.uint8, end - start, start)
    is_last = raw < 0x80
    if is_last.all():
        return raw.astype(np.uint64)
    if not is_last[-1]:
        raise WireError("a number is cut off", start)
    lasts = np.flatnonzero(is_last)
    firsts = np.concatenate([[0], lasts[:-1] + 1])
    lengths = lasts - firsts + 1
    longest = int(lengths.max())
    if longest > _LONGEST:
        raise WireError("a number is longer than ten bytes", start)
    values = np.zeros(len(lasts), np.uint64)
    for i in range(longest):
        reaches = lengths > i
        part = raw[firsts[reaches] + i].astype(np.uint64) & np.uint64(0x7F)
        values[reaches] |= part << np.uint64(7 * i)
    return values


def varints(values: Sequence[int] | NDArray[Any]) -> bytes:
    """Numbers one behind the other; negative ones in the ten bytes of 64 bits."""
    array = np.asarray(values, np.int64).ravel().view(np.uint64)
    if (array < 0x80).all():
        return array.astype(np.uint8).tobytes()
    columns = [(array >> np.uint64(7 * i)).astype(np.uint8) & 0x7F for i in range(_LONGEST)]
    reaches = np.stack([array >> np.uint64(7 * i) > 0 for i in range(1, _LONGEST)])
    lengths = 1 + reaches.sum(axis=0)
    table = np.stack(columns, axis=1)
    places = np.arange(_LONGEST)
    table[places < lengths[:, None] - 1] |= 0x80
    return bytes(table[places < lengths[:, None]])


def message(number: int, content: bytes) -> bytes:
    """`content` as field `number` of a message around it."""
    return varints([number << 3 | BYTES, len(content)]) + content
