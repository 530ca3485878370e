"""Sub-steps of a call: a blob that has one value after another, in OneFlow's time dimension.

Operators that read such a blob are emitted once for each of its values.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from flow2onnx.dtypes import DType
from flow2onnx.errors import ShapeError, UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.trace.blob import Blob
from flow2onnx.typing.pytree import elements

__all__ = ["SubSteps", "at_each_step", "parts_of", "sub_steps"]


class SubSteps(Blob):
    """The values that a blob has one after another within a call."""

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Blob]) -> None:
        self.parts = tuple(parts)
        self._dynamic, self.distribute = False, None

    @property
    def value(self) -> Value:  # type: ignore[override]  # there is not one
        """There is not one value: an error."""
        raise UnsupportedError(
            f"{self!r} has {len(self.parts)} values, and this takes one",
            hint="flow.pack(x, n) puts them together, flow.acc(x, n) adds them up",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions of each value."""
        return self.parts[0].shape

    @property
    def dtype(self) -> DType:
        """The element type of the values."""
        return self.parts[0].dtype

    @property
    def is_dynamic(self) -> bool:
        """True if the shapes may be smaller at a call."""
        return any(part.is_dynamic for part in self.parts)

    def __repr__(self) -> str:
        return f"SubSteps({len(self.parts)} of shape {self.shape}, dtype={self.dtype.name})"


def sub_steps(arguments: Mapping[str, Any]) -> int | None:
    """The number of sub-steps that arguments have; None without any, ShapeError if they differ."""
    counts = {len(a.parts) for a in elements(dict(arguments)) if isinstance(a, SubSteps)}
    if len(counts) > 1:
        listed = " and ".join(map(str, sorted(counts)))
        raise ShapeError(
            f"the blobs have {listed} sub-steps", hint="flow.repeat(x, n) gives a blob n of them"
        )
    return next(iter(counts), None)


def at_each_step(count: int, arguments: Mapping[str, Any], emit: Callable[..., Any]) -> Any:
    """The results of `emit` for the arguments of each sub-step, put together again.

    A name that the user gave ends in the number of the sub-step.
    """
    results = [emit(_arguments_at(i, arguments)) for i in range(count)]
    first = results[0]
    if isinstance(first, list | tuple):
        return type(first)(_join(r) for r in zip(*results, strict=True))
    return _join(results)


def _join(results: Sequence[Any]) -> Any:
    return SubSteps(results) if isinstance(results[0], Blob) else results[0]


def _arguments_at(i: int, arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: _at(i, value) for name, value in arguments.items()}
    if isinstance(found.get("name"), str):
        found["name"] = f"{found['name']}-{i}"
    return found


def _at(i: int, argument: Any) -> Any:
    if isinstance(argument, SubSteps):
        return argument.parts[i]
    if isinstance(argument, list | tuple):
        return type(argument)(_at(i, a) for a in argument)
    return argument


def parts_of(blob: Blob) -> Iterator[Blob]:
    """The values of a blob one after another; of one without sub-steps, itself."""
    yield from blob.parts if isinstance(blob, SubSteps) else (blob,)
