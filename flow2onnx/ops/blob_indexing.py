"""``x[...]`` on a blob: numbers, slices, new axes, and one list of positions, as in numpy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.dtypes import int8
from flow2onnx.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import bounds_of, dtype_of, rank_of, sizes_of
from flow2onnx.ops.indexing import as_index
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import op
from flow2onnx.trace.registry import register_method

_LAST = 2**31  # beyond every axis, whose size a call decides
_KINDS = "numbers, slices, ..., None, and one list, array or blob of whole numbers"
_BY_TRUTH = (
    "flow.where(condition, x, 0) keeps the shape; "
    "flow.gather_nd(x, flow.argwhere(condition)) takes the elements"
)


@dataclass(frozen=True)
class _Place:
    """An entry of an index: what it does with an axis of the value, or None for a new axis."""

    axis: int | None
    entry: Any

    @property
    def is_number(self) -> bool:
        """True for one position, whose axis goes."""
        return isinstance(self.entry, int)

    @property
    def is_list(self) -> bool:
        """True for positions that a tensor holds."""
        return isinstance(self.entry, np.ndarray | Value)


@op("blob.getitem", is_public=False)
def getitem(b: Builder, x: Value, index: Any, name: str | None = None) -> Value:
    """The part of `x` that an index names."""
    places = _places(x, index)
    listed = [p for p in places if p.is_list]
    _check_lists(places, listed)
    part = _slice(b, x, [p for p in places if p.axis is not None and not p.is_list])
    for place in listed:
        part = b.Gather(part, _positions(b, x, place), axis=place.axis)
    return _with_axes(b, part, places)


def _places(x: Value, index: Any) -> list[_Place]:
    """The entries of an index with their axes; what it does not name is taken whole."""
    entries = list(index) if isinstance(index, tuple) else [index]
    dots = [i for i, entry in enumerate(entries) if entry is Ellipsis]
    named = sum(entry is not None and entry is not Ellipsis for entry in entries)
    rest = rank_of(x) - named
    if len(dots) > 1:
        raise ArgumentError("an index has one '...' at most")
    if rest < 0:
        raise IndexRangeError(
            f"{named} positions in an index of shape {bounds_of(x)}",
            hint=f"give {rank_of(x)} at most",
        )
    at = dots[0] if dots else len(entries)
    full = [*entries[:at], *[slice(None)] * rest, *entries[at + 1 :]]
    axes = iter(range(rank_of(x)))
    return [_place(x, None if e is None else next(axes), e) for e in full]


def _place(x: Value, axis: int | None, entry: Any) -> _Place:
    if axis is None or isinstance(entry, Value):
        return _Place(axis, entry)
    if isinstance(entry, slice):
        return _Place(axis, _checked_slice(x, axis, entry))
    if isinstance(entry, list | np.ndarray):
        return _Place(axis, _array(x, axis, entry))
    if isinstance(entry, int | np.integer) and not isinstance(entry, bool):
        return _Place(axis, _check_position(x, axis, int(entry)))
    raise DTypeError(f"an index is made of {_KINDS}, got {entry!r}")


def _check_position(x: Value, axis: int, position: int) -> int:
    size = sizes_of(x)[axis]
    if isinstance(size, int) and not -size <= position < size:
        raise IndexRangeError(
            f"position {position} is outside axis {axis} of {bounds_of(x)}",
            hint=f"it is in -{size} … {size - 1}",
        )
    return position


def _checked_slice(x: Value, axis: int, part: slice) -> slice:
    for end in (part.start, part.stop, part.step):
        if isinstance(end, Blob):
            raise DTypeError(
                "the ends of a slice are numbers, got a blob",
                hint="flow.gather(x, positions, axis=...) takes computed positions",
            )
        if end is not None and not hasattr(end, "__index__"):
            raise DTypeError(f"the ends of a slice are whole numbers, got {end!r}")
    if part.step == 0:
        raise ArgumentError("a slice step of 0 goes nowhere")
    size = sizes_of(x)[axis]
    if isinstance(size, int) and not len(range(size)[part]):
        raise ShapeError(
            f"slice {part.start}:{part.stop}:{part.step} of axis {axis} of {bounds_of(x)} is empty",
            hint="a blob has one element at least on each axis",
        )
    return part


def _array(x: Value, axis: int, entry: Any) -> "np.ndarray[Any, Any]":
    """Positions on an axis as an array; those of truths are where they are true."""
    if any(isinstance(e, Value) for e in entry):
        raise DTypeError("a list of blobs is no index", hint="flow.stack makes one blob of them")
    try:
        array = np.asarray(entry)
    except ValueError:
        raise ArgumentError(f"{entry!r} is no index: its rows differ in length") from None
    if array.dtype == np.bool_:
        if array.shape != (sizes_of(x)[axis],):
            raise ShapeError(
                f"truths of shape {array.shape} do not choose on axis {axis} of {bounds_of(x)}",
                hint=_BY_TRUTH,
            )
        array = np.flatnonzero(array)
    if array.dtype.kind not in "iu" or not array.size:
        raise DTypeError(f"positions are whole numbers, at least one, got {entry!r}")
    for position in (array.min(), array.max()):
        _check_position(x, axis, int(position))
    return array.astype(np.int64)


def _check_lists(places: Sequence[_Place], listed: Sequence[_Place]) -> None:
    """Raise where numpy would pair positions up, or move the axis of a list to the front."""
    if len(listed) > 1:
        raise ArgumentError(
            "an index with several lists of positions", hint="flow.gather_nd takes pairs of them"
        )
    chosen = [i for i, p in enumerate(places) if p.is_list or p.is_number]
    if listed and chosen[-1] - chosen[0] >= len(chosen):
        raise ArgumentError(
            "an index with a list of positions and a number that are not side by side",
            hint="index twice: x[0][:, positions]",
        )


def _slice(b: Builder, x: Value, places: Sequence[_Place]) -> Value:
    """`x` cut on the axes of which not all is taken; those of one position keep a size of 1."""
    cuts = [(p.axis, *_range(p.entry, sizes_of(x)[p.axis or 0])) for p in places]
    cuts = [c for c, p in zip(cuts, places, strict=True) if p.entry != slice(None)]
    if not cuts:
        return x
    axes, starts, ends, steps = (list(column) for column in zip(*cuts, strict=True))
    return b.Slice(x, starts, ends, axes, steps)


def _range(entry: int | slice, size: int | str) -> tuple[int, int, int]:
    """Start, end and step as ONNX takes them."""
    if isinstance(entry, int):
        return entry, _LAST if entry == -1 else entry + 1, 1
    if isinstance(size, int):
        start, end, step = entry.indices(size)
        return start, end if end >= 0 else -_LAST, step
    step = 1 if entry.step is None else int(entry.step)
    first, last = (0, _LAST) if step > 0 else (_LAST, -_LAST)
    start, stop = (first if entry.start is None else entry.start), entry.stop
    return int(start), last if stop is None else int(stop), step


def _positions(b: Builder, x: Value, place: _Place) -> Value:
    if not isinstance(place.entry, Value):
        return b.const(place.entry)
    if dtype_of(place.entry) == int8:  # what comparisons give
        raise DTypeError("an int8 blob as index could be truths or positions",
                         hint=f"{_BY_TRUTH}; flow.cast makes positions of it")  # fmt: skip
    return as_index(b, place.entry)


def _with_axes(b: Builder, part: Value, places: Sequence[_Place]) -> Value:
    """`part` without the axes of single positions and with the new ones; never of rank 0."""
    gone, new = [], []
    for kind, at_part, at_result in _walk(places, part):
        if kind == "gone":
            gone.append(at_part)
        elif kind == "new":
            new.append(at_result)
    if len(gone) == rank_of(part) and not new:
        return b.Reshape(part, [1])
    part = b.Squeeze(part, gone) if gone else part
    return b.Unsqueeze(part, new) if new else part


def _walk(places: Sequence[_Place], part: Value) -> Iterator[tuple[str, int, int]]:
    """For each entry what becomes of its axis, with the places in the part and the result."""
    spread = rank_of(part) - sum(p.axis is not None for p in places) + 1  # axes of a list
    at_part = at_result = 0
    for place in places:
        kind = "new" if place.axis is None else "gone" if place.is_number else "kept"
        yield kind, at_part, at_result
        width = spread if place.is_list else 1
        at_part += 0 if kind == "new" else width
        at_result += 0 if kind == "gone" else width


register_method("getitem", getitem)
