"""Batches for training, from whatever holds data: arrays, lists, generators, loaders, tables."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import FeedError, FlowError
from flow2onnx_runtime.program import TensorInfo

__all__ = [
    "Batching",
    "Iterables",
    "Rows",
    "Source",
    "arrays_of",
    "at_batch",
    "name_faults",
    "numbered",
    "open_source",
    "to_array",
]

_log = logging.getLogger("flow2onnx_runtime.fit")
T = TypeVar("T")
Feeds = Sequence[TensorInfo]
_USUAL_BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Batching:
    """How rows become batches, and which columns feed what.

    `size`: rows of a batch; None for the model's own or, if that is free, 32. `shuffles` by `seed`,
    otherwise in each epoch. `drops_last`: leave out rows at the end that fill no batch; None, where
    the model takes full batches alone. `steps`: batches of an epoch of an iterable. `columns`: the
    column for a feed that has another name.
    """

    size: int | None = None
    shuffles: bool = False
    seed: int = 0
    drops_last: bool | None = None
    steps: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


class Source:
    """Batches of data, epoch by epoch; `count` is how many an epoch has, if that is known."""

    count: int | None = None

    def epoch(self, number: int, start: int) -> Iterator[Any]:
        """The batches of an epoch, which count from 1, without the first `start` of it."""
        raise NotImplementedError

    def check_epochs(self, epochs: int) -> None:
        """Raise `FeedError` if there cannot be so many epochs."""

    def settings(self) -> dict[str, Any]:
        """The facts that a training which goes on from here must share."""
        return {}


class Rows(Source):
    """Rows that can be had in any order, `take` by their numbers."""

    def __init__(
        self, count: int, take: Callable[[Any], Any], size: int, batching: Batching, drops: bool
    ) -> None:
        self._rows, self._take, self._size, self._batching = count, take, size, batching
        self._used = count - count % size if drops else count
        self.count = -(-self._used // size)

    def epoch(self, number: int, start: int) -> Iterator[Any]:
        """Batches of rows in the order of the epoch, which seed and number decide."""
        order = None
        if self._batching.shuffles:
            order = np.random.default_rng([self._batching.seed, number]).permutation(self._rows)
        for first in range(start * self._size, self._used, self._size):
            last = min(first + self._size, self._used)
            yield self._take(slice(first, last) if order is None else order[first:last])

    def settings(self) -> dict[str, Any]:
        """The order of the rows."""
        batching = self._batching
        seed = batching.seed if batching.shuffles else None
        return {"rows": self._rows, "batch_size": self._size, "seed": seed}


class Iterables(Source):
    """The iterable of an epoch: a new one for each or, of an iterator, the one there is."""

    def __init__(self, data: Any, batching: Batching) -> None:
        self._data, self._steps = data, batching.steps
        self._once: Iterator[Any] | None = data if _is_iterator(data) else None
        self._given = 0  # batches of an iterator
        self.count = _length(data) if self._steps is None else self._steps

    def check_epochs(self, epochs: int) -> None:
        """Raise `FeedError` for an iterator that would be gone through several times."""
        if self._once is not None and self._steps is None and epochs > 1:
            raise FeedError(
                f"an iterator goes once, and {epochs} epochs are asked for",
                hint="give a list, or a function that returns a new iterator for each epoch; or "
                "say how many batches an epoch has: steps=",
            )

    def epoch(self, number: int, start: int) -> Iterator[Any]:
        """The batches of one pass; of an iterator the next `steps`."""
        if self._once is None:
            return self._pass(number, start)
        return self._next(number, start)

    def _pass(self, number: int, start: int) -> Iterator[Any]:
        if hasattr(self._data, "set_epoch"):
            self._data.set_epoch(number - 1)
        makes = callable(self._data) and not isinstance(self._data, Iterable)
        made = self._data() if makes else self._data
        if not isinstance(made, Iterable):
            raise FeedError(
                f"the function returned {type(made).__name__}, which holds no batches",
                hint="return a list or a generator",
            )
        yield from self._count(iter(made), number, start)

    def _next(self, number: int, start: int) -> Iterator[Any]:
        assert self._once is not None, "only iterators go on"
        # one that is resumed begins anew: what an earlier training took is passed over
        passed = (number - 1) * (self._steps or 0) + start - self._given
        for _ in itertools.islice(self._once, max(passed, 0)):
            self._given += 1
        for batch in self._count(self._once, number, 0, start):
            self._given += 1
            yield batch

    def _count(
        self, batches: Iterator[Any], number: int, skipped: int, done: int = 0
    ) -> Iterator[Any]:
        """The batches of an epoch; raises `FeedError` if there are fewer than it should have."""
        steps = self._steps
        stop = None if steps is None else steps - done
        found = done
        for index, batch in enumerate(itertools.islice(batches, stop)):
            found = done + index + 1
            if index >= skipped:
                yield batch
        if steps is not None and found < steps:
            raise FeedError(
                f"the batches ended after {found} of epoch {number}, which should have {steps}",
                hint="give more, or say fewer: steps=",
            )

    def settings(self) -> dict[str, Any]:
        """The length of an epoch."""
        return {"steps": self._steps}


def _is_iterator(data: Any) -> bool:
    return isinstance(data, Iterator)


def _length(data: Any) -> int | None:
    try:
        return len(data) if hasattr(data, "__len__") else None
    except TypeError:  # a loader of what has no length
        return None


def open_source(data: Any, feeds: Feeds, batching: Batching, *, trains: bool = True) -> Source:
    """The batches of data.

    An array, a tuple of arrays in the order of the feeds, a dict of arrays, or a table with columns
    (a data set of Hugging Face) are rows; anything else that can be gone through has batches:
    lists, generators, functions that return such, data loaders. A model of a fixed batch trains on
    full batches alone; the rows left are told of.
    """
    if isinstance(data, Mapping) and any(hasattr(v, "column_names") for v in data.values()):
        raise FeedError(
            f"the data set has the splits {', '.join(map(str, data))}", hint="give one of them"
        )
    if hasattr(data, "column_names"):
        return _table(data, feeds, batching, trains)
    if isinstance(data, np.ndarray | Mapping | tuple):
        return _rows_of_arrays(data, feeds, batching, trains)
    if not isinstance(data, Iterable) and not callable(data):
        raise FeedError(
            f"{type(data).__name__} holds no batches",
            hint="give arrays, a list of batches, a generator, a function that returns one, a "
            "DataLoader or a data set",
        )
    if _holds_examples(data):
        raise FeedError(
            f"{type(data).__name__} holds single examples, not batches",
            hint="put it into a loader: torch.utils.data.DataLoader(data, batch_size=32)",
        )
    if (
        isinstance(data, list)
        and len(feeds) > 1
        and data
        and all(type(a) is np.ndarray for a in data)
    ):
        raise FeedError(
            "a list holds batches, and each of its items is a single array",
            hint="arrays of all rows are a tuple, (x, labels), or a dict by name",
        )
    if batching.size is not None:
        raise FeedError(
            f"batch_size={batching.size} is for arrays and tables: {type(data).__name__} has "
            "batches already",
            hint="leave it out, or give the arrays: (x, labels), or a dict by name",
        )
    return Iterables(data, batching)


def _holds_examples(data: Any) -> bool:
    """True for a data set of torch, whose items are no batches."""
    is_indexed = hasattr(data, "__getitem__") and not isinstance(data, Sequence)
    return is_indexed and not hasattr(data, "batch_size") and not isinstance(data, Iterator)


def _rows_of_arrays(data: Any, feeds: Feeds, batching: Batching, trains: bool) -> Source:
    columns = [
        _whole_array(v, f) for v, f in zip(_by_feed(data, feeds, batching), feeds, strict=True)
    ]
    lengths = {f.name: len(c) if c.ndim else 0 for c, f in zip(columns, feeds, strict=True)}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {n}" for name, n in lengths.items())
        raise FeedError(f"the arrays have different numbers of rows: {shown}")
    count = next(iter(lengths.values()), 0)
    size, drops = _sizes(count, feeds, batching, trains)
    return Rows(count, lambda rows: [c[rows] for c in columns], size, batching, drops)


def _whole_array(value: Any, feed: TensorInfo) -> Array:
    array = to_array(value, feed)
    if not array.ndim:
        raise FeedError(f"{feed.name} is a single number", hint="give an array with a row for each")
    return array


def _by_feed(data: Any, feeds: Feeds, batching: Batching) -> list[Any]:
    if isinstance(data, Mapping):
        return arrays_of(data, feeds, batching.columns)
    given = list(data) if isinstance(data, tuple) else [data]
    if len(given) != len(feeds):
        names = ", ".join(f.name for f in feeds)
        raise FeedError(
            f"{len(given)} arrays for {len(feeds)} inputs ({names})",
            hint="give one array for each input, in this order or by name; several batches are a "
            "list, not a tuple",
        )
    return given


def _table(data: Any, feeds: Feeds, batching: Batching, trains: bool) -> Source:
    names = data.column_names
    if names is not None:
        _check_columns(names, feeds, batching.columns)
    if not hasattr(data, "__len__"):
        fixed = _fixed_batch(feeds)
        size = batching.size or fixed or _USUAL_BATCH
        drops = batching.drops_last or (batching.drops_last is None and fixed is not None)
        return Iterables(_Streamed(data, size, drops and trains), batching)

    def take(rows: Any) -> dict[str, Any]:
        found = data[rows.tolist() if isinstance(rows, np.ndarray) else rows]
        return {c: found[c] for c in (batching.columns.get(f.name, f.name) for f in feeds)}

    size, drops = _sizes(len(data), feeds, batching, trains)
    return Rows(len(data), take, size, batching, drops)


@dataclass(frozen=True)
class _Streamed:
    """A table that can only be gone through, in batches."""

    data: Any
    size: int
    drops: bool

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data.iter(batch_size=self.size, drop_last_batch=self.drops))

    def set_epoch(self, number: int) -> None:
        """Let a table that shuffles itself do it otherwise."""
        self.data.set_epoch(number)


def _check_columns(names: Sequence[str], feeds: Feeds, columns: Mapping[str, str]) -> None:
    wanted = {f.name: columns.get(f.name, f.name) for f in feeds}
    missing = [feed for feed, column in wanted.items() if column not in names]
    if missing:
        raise FeedError(
            f"the data have no column {wanted[missing[0]]!r} for the input {missing[0]}",
            hint=f"there are {', '.join(names)}: say which with columns={{{missing[0]!r}: …}}",
        )


def _fixed_batch(feeds: Feeds) -> int | None:
    """The batch that a model takes, where it takes no other."""
    sizes = [f.shape[0] for f in feeds if f.shape]
    return next((s for s in sizes if isinstance(s, int)), None)


def _sizes(count: int, feeds: Feeds, batching: Batching, trains: bool) -> tuple[int, bool]:
    """The rows of a batch, and whether those are left out that fill none."""
    fixed = _fixed_batch(feeds)
    size = batching.size or fixed or _USUAL_BATCH
    if fixed is not None and size != fixed:
        raise FeedError(
            f"batch_size={size}: the model takes batches of {fixed}",
            hint="leave batch_size out, or make the model for a free batch",
        )
    drops = batching.drops_last
    if drops is None:
        drops = trains and fixed is not None
        if drops and count % size:
            _log.warning(
                "the last %d of %d rows of each epoch are left out: the model takes batches of %d",
                count % size, count, size,
            )  # fmt: skip
    return size, drops


def name_faults(missing: Sequence[str], surplus: Sequence[str]) -> str:
    """The end of a sentence on arrays by name that lack some, or have some too many."""
    parts = [f"has no {', '.join(missing)}"] * bool(missing)
    parts += [f"has {', '.join(surplus)}, which the model does not take"] * bool(surplus)
    return " and ".join(parts)


def arrays_of(batch: Any, feeds: Feeds, columns: Mapping[str, str] = {}) -> list[Array]:
    """The arrays of a batch in the order of the feeds.

    A batch is an array, a list or tuple of arrays, or a mapping by name; each may also be a tensor
    of another library on the host, or a list of numbers. Raises `FeedError` for what is no such
    thing; whether shapes and types fit is not looked at.
    """
    names = [f.name for f in feeds]
    if isinstance(batch, Mapping):
        wanted = [columns.get(n, n) for n in names]
        missing = [w for w in wanted if w not in batch]
        surplus = [str(k) for k in batch if k not in wanted] if not columns else []
        if missing or surplus:
            raise FeedError(
                f"the batch {name_faults(missing, surplus)}",
                hint=f"the inputs are {', '.join(names)}; columns={{{(missing or names)[0]!r}: …}} "
                "says what a column is called, and then others are left out",
            )
        values = [batch[w] for w in wanted]
    else:
        values = list(batch) if isinstance(batch, list | tuple) else [batch]
        if len(values) != len(names):
            raise FeedError(
                f"the batch has {len(values)} arrays, the model takes {len(names)}",
                hint=f"its inputs are {', '.join(names) or 'none'}",
            )
    return [to_array(v, f) for v, f in zip(values, feeds, strict=True)]


def to_array(value: Any, feed: TensorInfo) -> Array:
    """A value as an array; numbers without a type, as in lists, take the type of the feed."""
    if isinstance(value, np.ndarray):
        return value
    try:
        if hasattr(value, "detach"):  # a tensor of torch, perhaps with a gradient or elsewhere
            value = value.detach().cpu()
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise FeedError(
            f"{feed.name} is no array: {error}",
            hint="rows of different lengths are to be padded; tensors of types that numpy lacks "
            "are to be converted",
        ) from error
    if hasattr(value, "dtype") or array.dtype == feed.dtype:
        return array
    if array.dtype.kind not in "iufb":
        raise FeedError(
            f"{feed.name} is no array of numbers but {type(value).__name__} of {array.dtype}",
            hint="rows of different lengths are to be padded, texts to be encoded",
        )
    is_kept = array.dtype.kind in "iub" or feed.dtype.kind == "f"
    return array.astype(feed.dtype) if is_kept and _fits(array, feed) else array


def _fits(array: Array, feed: TensorInfo) -> bool:
    if feed.dtype.kind not in "iu" or not array.size:
        return True
    limits = np.iinfo(feed.dtype)
    return bool(limits.min <= array.min() and array.max() <= limits.max)


def numbered(
    batches: Iterator[Any], epoch: int, start: int, prepare: Callable[[Any], T]
) -> Iterator[T]:
    """Each batch prepared; what fails is told of with the number of the batch."""
    for number in itertools.count(start + 1):
        where = f"batch {number} of epoch {epoch}"
        try:
            batch = next(batches)
        except StopIteration:
            return
        except FlowError:
            raise
        except Exception as error:
            error.add_note(f"raised where {where} was made")
            raise
        try:
            yield prepare(batch)
        except FlowError as error:
            raise at_batch(error, where) from error.__cause__


def at_batch(error: FlowError, where: str) -> FlowError:
    """The error, saying which batch it is of."""
    error.message = f"{where}: {error.message}"
    error.args = (error.message,)
    return error
