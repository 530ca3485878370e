"""Calibration data: batches of feeds to find ranges on, or to compare with float32 on."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from flow2onnx_runtime import TensorInfo
from flow2onnx_runtime.dtypes import Array, find_element
from flow2onnx_runtime.synthetic import random_array

from flow2onnx.errors import ArgumentError, DTypeError, ShapeError

__all__ = ["Batch", "random_batches", "read_batches"]

_MOST = 4096  # batches: a reader may go on for ever
_ROWS = 64  # at a time where the batch is free


@dataclass(frozen=True)
class Batch:
    """Feeds of one run; the first `rows` are meant, the others fill the batch up."""

    feeds: Mapping[str, Array]
    rows: int


def read_batches(what: str, given: object, feeds: Sequence[TensorInfo]) -> list[Batch]:
    """The user's arrays as batches that a model takes; `what` is their name in an error.

    An array (for the one input), a dict of arrays by input, or batches of these, one after the
    other; or a tuple in the order of the inputs in place of a dict.
    """
    parts = [
        _check_part(what, _by_name(what, part, feeds), feeds) for part in _parts(what, given, feeds)
    ]
    if not parts:
        raise ArgumentError(f"{what} is empty", hint="give at least one batch")
    if not all(_has_rows(feed, feeds[0]) for feed in feeds):
        return [Batch(part, len(part[feeds[0].name])) for part in parts]
    whole = {f.name: np.concatenate([part[f.name] for part in parts]) for f in feeds}
    return list(_split_batches(whole, feeds))


def random_batches(feeds: Sequence[TensorInfo], rows: int = 32) -> list[Batch]:
    """Feeds that any model takes: normal numbers, bytes, and indices 0 and 1."""
    draws = np.random.default_rng(0)
    count = next((f.shape[0] for f in feeds if f.shape and isinstance(f.shape[0], int)), rows)
    made = {f.name: _random_input(f, int(count), draws) for f in feeds}
    return [Batch(made, int(count))]


def _random_input(feed: TensorInfo, rows: int, draws: np.random.Generator) -> Array:
    shape = [s if isinstance(s, int) else rows for s in feed.shape]
    integers = (0, 256 if feed.dtype == np.uint8 else 2)
    return random_array(draws, shape, feed.dtype, integers=integers)


def _parts(what: str, given: object, feeds: Sequence[TensorInfo]) -> Iterator[object]:
    is_one = isinstance(given, np.ndarray | Mapping) or (
        isinstance(given, tuple)
        and len(given) == len(feeds)
        and all(isinstance(a, np.ndarray) for a in given)
    )
    if is_one:
        yield given
    elif isinstance(given, Iterable) and not isinstance(given, str | bytes):
        yield from islice(given, _MOST)
    else:
        raise ArgumentError(
            f"{what} is {given!r}", hint="give an array, a dict of arrays by input, or batches"
        )


def _by_name(what: str, part: object, feeds: Sequence[TensorInfo]) -> dict[str, Array]:
    names = [f.name for f in feeds]
    if isinstance(part, Mapping):
        wrong = sorted({str(n) for n in part} ^ set(names))
        if wrong:
            raise ArgumentError(
                f"{what} has {', '.join(map(str, part)) or 'nothing'}; the inputs are "
                f"{', '.join(names)}",
                hint=f"{wrong[0]!r} is {'missing' if wrong[0] in names else 'no input'}",
            )
        return {n: np.asarray(part[n]) for n in names}
    arrays = part if isinstance(part, tuple | list) else (part,)
    if len(arrays) != len(feeds):
        raise ArgumentError(
            f"{what} has {len(arrays)} arrays, the model {len(feeds)} inputs: {', '.join(names)}",
            hint="give a dict of arrays by input",
        )
    return {n: np.asarray(a) for n, a in zip(names, arrays, strict=True)}


def _check_part(
    what: str, part: Mapping[str, Array], feeds: Sequence[TensorInfo]
) -> dict[str, Array]:
    for feed in feeds:
        _check_array(what, part[feed.name], feed, _has_rows(feed, feeds[0]))
    rows = {n: len(a) for n, a in part.items() if a.ndim}
    aligned = {rows[f.name] for f in feeds if _has_rows(f, feeds[0])}
    if len(aligned) > 1:
        raise ShapeError(f"{what}: the inputs have different numbers of rows: {rows}",
                         hint="the same number along the first axis")  # fmt: skip
    return dict(part)


def _check_array(what: str, array: Array, feed: TensorInfo, has_rows: bool) -> None:
    element = find_element(feed.element)
    if element is None or not element.takes(array.dtype):
        raise DTypeError(f"{what}: {feed.name} is {feed.element}, got {array.dtype}",
                         hint=f"convert it: array.astype({feed.dtype.name!r})")  # fmt: skip
    wanted = (None, *feed.shape[1:]) if has_rows else feed.shape
    fits = len(array.shape) == len(wanted) and all(
        not isinstance(w, int) or w == s for w, s in zip(wanted, array.shape, strict=True)
    )
    if not fits:
        raise ShapeError(f"{what}: {feed.name} has shape {list(feed.shape)}, got "
                         f"{list(array.shape)}",
                         hint="rows along the first axis, the other sizes as declared")  # fmt: skip
    if not array.size:
        raise ArgumentError(f"{what}: {feed.name} is empty", hint="give at least one row")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise ArgumentError(f"{what}: {feed.name} holds NaN or infinity",
                            hint="leave such rows out: ranges cannot be found of them")  # fmt: skip


def _has_rows(feed: TensorInfo, first: TensorInfo) -> bool:
    """True if an input has the batch of the first along its first axis."""
    return bool(feed.shape) and bool(first.shape) and feed.shape[0] == first.shape[0]


def _split_batches(whole: Mapping[str, Array], feeds: Sequence[TensorInfo]) -> Iterator[Batch]:
    fixed = feeds[0].shape[0]
    rows = len(whole[feeds[0].name])
    size = fixed if isinstance(fixed, int) else min(_ROWS, rows)
    for start in range(0, rows, size):
        count = min(size, rows - start)
        # a fixed batch is filled up with its last row; a free one needs no filling
        chosen = np.minimum(np.arange(start, start + size), rows - 1)
        picked = chosen if isinstance(fixed, int) else chosen[:count]
        yield Batch({n: a[picked] for n, a in whole.items()}, count)
