"""Calls with few rows each, from many threads, computed together."""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flow2onnx_runtime.closeable import Closeable
from flow2onnx_runtime.errors import FeedError, RunError
from flow2onnx_runtime.forks import check_process
from flow2onnx_runtime.program import Program
from flow2onnx_runtime.rebatching import row_count
from flow2onnx_runtime.run_future import Results, RunFuture

__all__ = ["Batched"]

Arrays = Sequence[NDArray[Any]]


@dataclass(frozen=True)
class _Call:
    """One call that waits: its rows, and when it has waited long enough."""

    pending: RunFuture
    arrays: Arrays
    rows: int
    until: float

    def goes_with(self, other: "_Call") -> bool:
        """True if the rows of both can be in one batch."""
        pairs = zip(self.arrays, other.arrays, strict=True)
        return all(one.shape[1:] == two.shape[1:] for one, two in pairs)


class Batched(Closeable):
    """A model whose calls, from any number of threads, are joined to batches; `close` it.

    Rows are along the first axis of every input and result, and must not influence each other. A
    call that fails in a batch is run alone, so that it fails the others not.
    """

    def __init__(
        self,
        program: Program,
        compute: Callable[[Arrays], list[NDArray[Any]]],
        max_batch: int,
        max_delay: float,
    ) -> None:
        _check(program, max_batch, max_delay)
        self._program, self._compute = program, compute
        self._max_batch, self._max_delay = max_batch, max_delay
        self._given: SimpleQueue[_Call | None] = SimpleQueue()  # None: it is closed
        self._next_call: _Call | None = None  # the first of the next batch, if it is known
        self._is_open, self._process = True, os.getpid()
        self._thread = threading.Thread(target=self._work, name=program.name, daemon=True)
        self._thread.start()

    def __call__(self, *arrays: Any, **named_arrays: Any) -> Results:
        """The results by name, once the batch with these rows is computed."""
        return self.submit(*arrays, **named_arrays).result()

    def submit(self, *arrays: Any, **named_arrays: Any) -> RunFuture:
        """A future of the results; arrays that do not fit raise at once."""
        check_process(self._process, "a predictor that joins calls")
        chosen = self._program.check_feeds(self._program.arrange(arrays, named_arrays))
        rows = row_count(self._program.name, chosen)
        pending = RunFuture(dict)  # whose results are handed over
        if not self._is_open:
            raise RunError(f"{self._program.name} is closed", hint="call before close()")
        # one call into C: an interrupt leaves no lock held
        self._given.put(_Call(pending, chosen, rows, monotonic() + self._max_delay))
        return pending

    async def asynchronous(self, *arrays: Any, **named_arrays: Any) -> Results:
        """`submit`, awaited."""
        import asyncio  # an event loop is running, so it is loaded

        return await asyncio.wrap_future(self.submit(*arrays, **named_arrays))

    def close(self) -> None:
        """Compute what waits; take no more."""
        self._is_open = False
        self._given.put(None)
        self._thread.join()

    def _work(self) -> None:
        while calls := self._next():
            self._answer([call for call in calls if not call.pending.cancelled()])
            for call in calls:
                if call.pending.cancelled():
                    call.pending.settle({})
            del calls  # their arrays need not outlive them while the thread waits

    def _next(self) -> list[_Call]:
        """The calls of the next batch; none if it is closed and all is done."""
        first = self._next_call or self._given.get()
        self._next_call = None
        if first is None:
            return []
        calls, rows = [first], first.rows
        while rows < self._max_batch and (call := self._wait_for_more(first)) is not None:
            if not call.goes_with(first) or rows + call.rows > self._max_batch:
                self._next_call = call
                break
            calls.append(call)
            rows += call.rows
        return calls

    def _wait_for_more(self, first: _Call) -> _Call | None:
        """The next call, as long as the first one may wait for it."""
        try:
            call = self._given.get(timeout=max(first.until - monotonic(), 0))
        except Empty:
            return None
        if call is None:  # closed: the next batch finds that too
            self._given.put(None)
        return call

    def _answer(self, calls: Sequence[_Call]) -> None:
        if len(calls) == 1:
            calls[0].pending.settle(self._alone(calls[0]))
            return
        try:
            results = self._together(calls)
        except Exception:  # whoever causes it will get it
            for call in calls:
                self._answer([call])
            return
        for call, found in zip(calls, results, strict=True):
            call.pending.settle(found)

    def _alone(self, call: _Call) -> Results | BaseException:
        try:
            return self._program.by_name(self._compute(call.arrays))
        except BaseException as error:  # whatever it is, it belongs to whoever waits
            return error

    def _together(self, calls: Sequence[_Call]) -> list[Results]:
        """The results of each call; raises `RunError` if they cannot be computed together."""
        if not calls:
            return []
        whole = [np.concatenate(c) for c in zip(*(call.arrays for call in calls), strict=True)]
        found, rows = self._compute(whole), sum(call.rows for call in calls)
        if any(value.ndim == 0 or value.shape[0] != rows for value in found):
            raise RunError(f"{self._program.name}: a result is not one of rows")
        parts, start = [], 0
        for call in calls:
            end = start + call.rows
            parts.append(self._program.by_name([value[start:end] for value in found]))
            start = end
        return parts


def _check(program: Program, max_batch: int, max_delay: float) -> None:
    if max_batch < 1 or max_delay < 0:
        raise FeedError(
            f"max_batch is {max_batch}, max_delay {max_delay}",
            hint="give at least one row, and a delay in seconds",
        )
    for info in (*program.feeds, *program.results):
        if not info.shape or isinstance(info.shape[0], int):
            raise FeedError(
                f"{program.name} cannot be batched: the first size of {info} is no free batch",
                hint="export it with dynamic_batch, or call the predictor itself",
            )
