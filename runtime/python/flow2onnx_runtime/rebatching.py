"""Rows of any number joined and split to the batches that a model takes."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.errors import FeedError
from flow2onnx_runtime.program import Program, TensorInfo

__all__ = ["Rebatcher", "row_count"]

_BATCH = 256  # rows at a time where the model takes any number

Arrays = Sequence[NDArray[Any]]


def row_count(name: str, arrays: Arrays) -> int:
    """The rows that the arrays of a model have in common; raises `FeedError` for none."""
    counts = {array.shape[0] if array.ndim else 0 for array in arrays}
    if len(counts) != 1 or 0 in counts:
        raise FeedError(
            f"{name}: arrays of {[a.shape for a in arrays]} have no common rows",
            hint="give arrays with the same number of rows, at least one, along the first axis",
        )
    return counts.pop()


class Rebatcher:
    """A model that takes chunks of any number of rows; it is run on batches of one size.

    `compute` runs it. The size is the model's, or where it leaves it open, `batch`.
    """

    def __init__(
        self, program: Program, compute: Callable[[Arrays], list[NDArray[Any]]], batch: int | None
    ) -> None:
        self._program, self._compute = program, compute
        fixed = _fixed_size(program, batch)
        self._size, self._is_fixed = fixed or batch or _BATCH, fixed is not None

    def stream(self, chunks: Iterable[Arrays]) -> Iterator[list[NDArray[Any]]]:
        """The results of each chunk, in order, as soon as all its rows are computed."""
        waiting, done, counts = _Queue(), _Queue(), deque[int]()
        for arrays in chunks:
            counts.append(row_count(self._program.name, arrays))
            waiting.put(arrays)
            while waiting.rows >= self._size:
                done.put(self._run(waiting.take(self._size)))
            yield from _pop_finished(done, counts)
        if waiting.rows:
            done.put(self._run(waiting.take(waiting.rows)))
        yield from _pop_finished(done, counts)

    def _run(self, arrays: Arrays) -> Arrays:
        rows = arrays[0].shape[0]
        size = self._size if self._is_fixed else rows
        if rows < size:
            chosen = np.minimum(np.arange(size), rows - 1)
            arrays = [array[chosen] for array in arrays]
        results = zip(self._program.results, self._compute(arrays), strict=True)
        return [self._check_rows(info, value, size)[:rows] for info, value in results]

    def _check_rows(self, info: TensorInfo, value: NDArray[Any], size: int) -> NDArray[Any]:
        if value.ndim == 0 or value.shape[0] != size:
            raise FeedError(
                f"{self._program.name}: the result {info.name} of shape {value.shape} for {size} "
                "rows is not one of rows",
                hint="call the predictor batch by batch",
            )
        return value


def _fixed_size(program: Program, batch: int | None) -> int | None:
    """The size of a batch if the model fixes it."""
    sizes = {feed.shape[0] for feed in program.feeds if feed.shape}
    fixed = {size for size in sizes if isinstance(size, int)}
    if len(fixed) > 1 or (batch is not None and (batch < 1 or fixed - {batch})):
        raise FeedError(
            f"{program.name} takes batches of {sorted(fixed) or 'any size'}, batch is {batch}",
            hint="leave batch out",
        )
    return fixed.pop() if fixed else None


def _pop_finished(done: "_Queue", counts: deque[int]) -> Iterator[list[NDArray[Any]]]:
    while counts and done.rows >= counts[0]:
        yield list(done.take(counts.popleft()))


class _Queue:
    """Rows in parts as they come, to be taken in any number; only parts that are joined copy."""

    def __init__(self) -> None:
        self.rows = 0
        self._parts: deque[Arrays] = deque()

    def put(self, part: Arrays) -> None:
        self._parts.append(part)
        self.rows += part[0].shape[0]

    def take(self, rows: int) -> Arrays:
        self.rows -= rows
        taken = []
        while rows:
            part = self._parts.popleft()
            have = part[0].shape[0]
            if have > rows:
                self._parts.appendleft([array[rows:] for array in part])
                part = [array[:rows] for array in part]
            taken.append(part)
            rows -= min(have, rows)
        if len(taken) == 1:
            return taken[0]
        return [np.concatenate(column) for column in zip(*taken, strict=True)]
