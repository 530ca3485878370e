"""The inputs of an imported model: their shapes, which may be overridden, and the batch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flow2onnx.dtypes import DType, float32
from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.onnx_io.append import input_dtype, input_shape
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.trace.call_text import known_names
from flow2onnx.typing import PlaceholderSpec

__all__ = ["BATCH", "Feed", "Feeds", "read_feeds"]

BATCH = "batch"
Size = int | str | None


@dataclass(frozen=True)
class Feed:
    """An input: shape with text or None for a free size, and element type."""

    name: str
    shape: tuple[Size, ...]
    dtype: DType


@dataclass(frozen=True)
class Feeds:
    """The model's inputs, those that only the loss reads, and what the batch is called.

    `symbols` are the names that stand for the batch; there are none if it is fixed.
    """

    model: tuple[Feed, ...]
    extra: tuple[Feed, ...]
    symbols: frozenset[Size]

    @property
    def is_free(self) -> bool:
        """True if the batch may have any size."""
        return bool(self.symbols)

    def sizes(self) -> set[int]:
        """All sizes that are known."""
        return {d for f in (*self.model, *self.extra) for d in f.shape if isinstance(d, int)}

    @property
    def has_free_axes(self) -> bool:
        """True if axes other than the batch may have any size."""
        sizes = (d for f in (*self.model, *self.extra) for d in f.shape)
        return any(not isinstance(d, int) and d not in self.symbols for d in sizes)

    def shape(self, feed: Feed, batch: int | None) -> tuple[int | str, ...]:
        """The shape of an input at a batch size; without one, with a name for every free size."""
        return self.free_shape(feed) if batch is None else self.example(feed, batch)

    def example(self, feed: Feed, batch: int, size: int = 0) -> tuple[int, ...]:
        """The shape of an input at a batch size and with one `size` for all other free axes."""
        return tuple(
            batch if d in self.symbols else d if isinstance(d, int) else size for d in feed.shape
        )

    def free_shape(self, feed: Feed) -> tuple[int | str, ...]:
        """The shape of an input with a name for every free size, the same where they are equal."""
        batch = next(iter(sorted(str(s) for s in self.symbols if s not in (BATCH, None))), BATCH)
        names = (batch if d in self.symbols else d or f"{feed.name}_{i}"
                 for i, d in enumerate(feed.shape))  # fmt: skip
        return tuple(d if isinstance(d, int) else str(d) for d in names)


def read_feeds(
    foreign: ForeignModel, inputs: Mapping[str, Any] | None, *, any_axis: bool = False
) -> Feeds:
    """The inputs of a model under what the user says of them.

    `inputs` has, by input, a shape, a pair of shape and element type, or a placeholder; by name of
    a free dimension, its size. Names that the model does not have are inputs for the loss. The
    batch is the first axis of the first input that has a free one; other axes may be free too with
    `any_axis`.
    """
    given = dict(inputs or {})
    fixed = {k: v for k, v in given.items() if type(v) is int}
    shapes = {k: _declared(k, v) for k, v in given.items() if k not in fixed}
    known = {str(v.name) for v in foreign.inputs}
    model = []
    for value in foreign.inputs:
        name = str(value.name)
        override = {name: shapes[name].shape} if name in shapes else {}
        shape = tuple(fixed.get(str(d), d) for d in input_shape(value, override))
        dtype = input_dtype(value)
        if name in shapes:
            _check_dtype(name, dtype, given[name])
        model.append(Feed(name, shape, dtype))
    _check_dimensions(fixed, foreign)
    extra = [
        Feed(n, tuple(fixed.get(str(d), d) for d in f.shape), f.dtype)
        for n, f in shapes.items()
        if n not in known
    ]
    feeds = Feeds(tuple(model), tuple(extra), _batch_symbols(model))
    _check_sizes(feeds)
    return feeds if any_axis else _check_batch(feeds)


def _batch_symbols(model: Sequence[Feed]) -> frozenset[Size]:
    free = [f.shape[0] for f in model if f.shape and not isinstance(f.shape[0], int)]
    return frozenset({free[0], BATCH}) if free else frozenset()


def _check_sizes(feeds: Feeds) -> None:
    for feed in (*feeds.model, *feeds.extra):
        if any(isinstance(size, int) and size < 1 for size in feed.shape):
            raise ShapeError(f"input {feed.name} has the shape {feed.shape}")


def _check_batch(feeds: Feeds) -> Feeds:
    for feed in (*feeds.model, *feeds.extra):
        for axis, size in enumerate(feed.shape):
            if isinstance(size, int) or size in feeds.symbols:
                continue
            hint = (
                f"give its size: inputs={{{size!r}: 16}}"
                if size
                else f"give its shape: inputs={{{feed.name!r}: (…)}}"
            )
            raise ShapeError(
                f"axis {axis} of input {feed.name} is free ({size or '?'}); only the batch can be",
                hint=hint,
            )
    return feeds


def _declared(name: str, given: Any) -> Feed:
    if isinstance(given, PlaceholderSpec):
        return Feed(name, given.shape, given.dtype)
    if isinstance(given, tuple | list):
        is_pair = len(given) == 2 and isinstance(given[0], tuple | list)
        shape, dtype = given if is_pair else (given, float32)
        is_shape = all(d is None or isinstance(d, str) or type(d) is int for d in shape)
        if is_shape and isinstance(dtype, DType):
            return Feed(name, tuple(shape), dtype)
    raise ArgumentError(
        f"inputs: {name} is {given!r}",
        hint="give a shape, (shape, element type), or a placeholder of flow.typing",
    )


def _check_dtype(name: str, dtype: DType, given: Any) -> None:
    said = given.dtype if isinstance(given, PlaceholderSpec) else None
    if isinstance(given, tuple | list) and len(given) == 2 and isinstance(given[1], DType):
        said = given[1]
    if said is not None and said != dtype:
        raise ArgumentError(
            f"inputs: {name} is {said.name}, the model takes {dtype.name}", hint="leave it out"
        )


def _check_dimensions(fixed: Mapping[str, int], foreign: ForeignModel) -> None:
    known = {str(d) for v in foreign.inputs for d in (v.shape or ()) if not isinstance(d, int)}
    for name in fixed:
        if name not in known:
            raise ArgumentError(
                f"inputs: no input has a dimension {name!r}", hint=known_names(name, sorted(known))
            )
