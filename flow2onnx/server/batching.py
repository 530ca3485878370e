"""Micro-batching: requests that wait at the same time are computed together."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from flow2onnx_runtime import FlowError, RunError
from numpy.typing import NDArray

from flow2onnx.server.problem import RequestError

__all__ = ["Batcher", "Limits", "Observer"]

Arrays = Sequence[NDArray[Any]]
Run = Callable[[Arrays], list[NDArray[Any]]]


class Observer(Protocol):
    """Who counts what a batcher does."""

    def ran(self, rows: int, waited: Sequence[float], seconds: float) -> None:
        """A run of so many rows ended, for requests that had waited so long."""

    def queued(self, change: int) -> None:
        """The queue became longer or shorter."""


@dataclass(frozen=True)
class Limits:
    """How many rows a run takes (1: no batching), how long requests wait for more of them.

    `instances` runs may be under way at once; `queue` requests may wait.
    """

    rows: int
    delay: float
    queue: int
    instances: int = 1


class _Item:
    """A request that waits, or is being computed."""

    __slots__ = ("arrays", "future", "rows", "shapes", "since")

    def __init__(self, arrays: Arrays, is_batched: bool, future: "asyncio.Future[Any]") -> None:
        self.arrays, self.future = arrays, future
        self.rows = arrays[0].shape[0] if is_batched else 1
        self.shapes = [array.shape[1:] for array in arrays] if is_batched else []
        self.since = perf_counter()


class Batcher:
    """Runs requests of one model on threads, several at once as one batch of rows.

    Everything but the runs happens on the event loop. Requests start in the order they came;
    those of equal shapes, apart from the rows, are concatenated up to the limit.
    """

    def __init__(self, run: Run, executor: Executor, limits: Limits, observer: Observer) -> None:
        self._run, self._executor, self.limits = run, executor, limits
        self._observer = observer
        self._queue: deque[_Item] = deque()
        self._rows = 0  # that wait
        self._running = 0
        self._is_pumping = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing runs."""
        return not self._queue and not self._running

    async def submit(self, arrays: Arrays, timeout: float) -> list[NDArray[Any]]:
        """The results for one request, whose arrays fit the model.

        Raises `RequestError` if the queue is full or the time is over, `RunError`.
        """
        if len(self._queue) >= self.limits.queue:
            raise RequestError(
                f"{len(self._queue)} requests wait already", 503,
                hint="try again later", retry_after=1,
            )  # fmt: skip
        loop = asyncio.get_running_loop()
        item = _Item(arrays, self.limits.rows > 1, loop.create_future())
        self._queue.append(item)
        self._rows += item.rows
        self._observer.queued(1)
        if not self._is_pumping:
            # the next turn of the loop: whatever else has arrived by then joins the batch
            self._is_pumping = True
            loop.call_soon(self._pump)
        timer = loop.call_later(timeout, self._expire, item)
        try:
            found: list[NDArray[Any]] = await item.future
            return found
        except asyncio.CancelledError:
            self._forget(item)
            raise
        finally:
            timer.cancel()

    def _expire(self, item: _Item) -> None:
        if not item.future.done():
            self._forget(item)
            item.future.set_exception(RequestError("the request's time is over", 504))

    def _forget(self, item: _Item) -> None:
        """Take a request out of the queue, unless it is being computed."""
        try:
            self._queue.remove(item)
        except ValueError:
            return
        self._rows -= item.rows
        self._observer.queued(-1)

    def _pump(self) -> None:
        self._is_pumping = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and self._running < self.limits.instances:
            wait = self._queue[0].since + self.limits.delay - perf_counter()
            if wait > 0 and self._rows < self.limits.rows:
                self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            self._start(self._take())

    def _take(self) -> list[_Item]:
        """The first request, and those behind it that can be computed with it."""
        items = [self._queue.popleft()]
        rows = items[0].rows
        while self._queue and self._queue[0].shapes == items[0].shapes:
            rows += self._queue[0].rows
            if rows > self.limits.rows:
                break
            items.append(self._queue.popleft())
        self._rows -= sum(item.rows for item in items)
        self._observer.queued(-len(items))
        return items

    def _start(self, items: list[_Item]) -> None:
        self._running += 1
        loop = asyncio.get_running_loop()
        began = perf_counter()

        def done(future: Future[list[Any]]) -> None:
            # the loop is gone if the server was killed in the middle of a run
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._finish, items, began, future)

        self._executor.submit(self._compute, items).add_done_callback(done)

    def _compute(self, items: list[_Item]) -> list[Any]:
        """For each request its results, or the error that it gets."""
        if len(items) == 1:
            return [_attempt(self._run, items[0].arrays)]
        columns = zip(*(item.arrays for item in items), strict=True)
        whole = _attempt(self._run, [np.concatenate(column) for column in columns])
        ends = np.cumsum([item.rows for item in items]).tolist()
        if isinstance(whole, Exception) or any(len(a) != ends[-1] for a in whole):
            # one request's values may be what failed: the others shall not suffer
            return [_attempt(self._run, item.arrays) for item in items]
        return [
            [array[end - item.rows : end] for array in whole]
            for item, end in zip(items, ends, strict=True)
        ]

    def _finish(self, items: list[_Item], began: float, future: Future[list[Any]]) -> None:
        self._running -= 1
        if self._queue:
            self._pump()
        error = future.exception()
        outcomes = future.result() if error is None else [error] * len(items)
        for item, outcome in zip(items, outcomes, strict=True):
            if item.future.done():  # too late, or nobody waits any more
                continue
            if isinstance(outcome, BaseException):
                item.future.set_exception(outcome)
            else:
                item.future.set_result(outcome)
        waited = [began - item.since for item in items]
        self._observer.ran(sum(i.rows for i in items), waited, perf_counter() - began)


def _attempt(run: Run, arrays: Arrays) -> list[NDArray[Any]] | Exception:
    try:
        return run(arrays)
    except FlowError as error:
        return error
    except Exception as error:  # a fault of ours must not leave a request without an answer
        return RunError(f"the run failed: {type(error).__name__}: {error}")
