"""Micro-batching: requests that wait at the same time are computed together."""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import onnxruntime as ort
from flow2onnx_runtime import FlowError, RunError
from numpy.typing import NDArray

from flow2onnx_serve.errors import RequestError

__all__ = ["Batcher", "Limits", "Observer", "Run"]

Arrays = Sequence[NDArray[Any]]
# Its second argument, onnxruntime's RunOptions, is what stops a run that is under way; a third are
# the values of an adapter, where one is asked for.
Run = Callable[..., list[NDArray[Any]]]
Slots = Mapping[str, Any] | None


class Observer(Protocol):
    """Counts what a batcher does."""

    def ran(self, rows: int, waited: Sequence[float], seconds: float) -> None:
        """A run of so many rows ended, for requests that had waited so long."""

    def queued(self, change: int) -> None:
        """The queue became longer or shorter."""


@dataclass(frozen=True)
class Limits:
    """How many rows a run takes (1: no batching), how long requests wait for more of them.

    `instances` runs may be under way at once; `queue` requests may wait. Runs of up to `inline`
    rows are so quick that the event loop itself makes them: handing them to a thread costs more.
    """

    rows: int
    delay: float
    queue: int
    instances: int = 1
    inline: int = 0


class _Item:
    """A request that waits, or is being computed."""

    __slots__ = ("arrays", "deadline", "future", "rows", "shapes", "since", "slots")

    def __init__(
        self,
        arrays: Arrays,
        is_batched: bool,
        future: "asyncio.Future[Any]",
        timeout: float,
        slots: Slots,
    ) -> None:
        self.arrays, self.future, self.slots = arrays, future, slots
        self.rows = arrays[0].shape[0] if is_batched else 1
        self.shapes = [array.shape[1:] for array in arrays] if is_batched else []
        self.since = perf_counter()
        self.deadline = self.since + timeout

    def joins(self, other: "_Item") -> bool:
        """True if both can be computed together."""
        return self.shapes == other.shapes and self.slots is other.slots


class _Batch:
    """Requests that are computed together; `options` stop the run once nobody waits for it."""

    __slots__ = ("began", "items", "options", "slots")

    def __init__(self, items: list[_Item]) -> None:
        self.items, self.began = items, perf_counter()
        self.slots = items[0].slots  # the same for all
        self.options: Any = None  # set where another thread runs

    @property
    def is_stopped(self) -> bool:
        """True once the run was told to stop."""
        return self.options is not None and bool(self.options.terminate)

    def stop_if_alone(self) -> None:
        """Tell the runtime to stop if nobody waits any more."""
        if all(item.future.done() for item in self.items):
            self.options.terminate = True


class Batcher:
    """Runs requests of one model on threads, several at once as one batch of rows.

    Everything but the runs happens on the event loop. Requests start in the order they came;
    those of equal shapes, apart from the rows, and of one adapter are concatenated up to the limit.
    """

    def __init__(self, run: Run, executor: Executor, limits: Limits, observer: Observer) -> None:
        self._run, self._executor, self.limits = run, executor, limits
        self._observer = observer
        self._queue: deque[_Item] = deque()
        self._rows = 0  # that wait
        self._running: set[_Batch] = set()
        self._is_pumping = False
        self._timer: asyncio.TimerHandle | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._next = inf  # when the clock rings
        self._release: Callable[[], None] | None = None

    @property
    def is_idle(self) -> bool:
        """True while nothing waits and nothing runs."""
        return not self._queue and not self._running

    async def submit(
        self, arrays: Arrays, timeout: float, slots: Slots = None
    ) -> list[NDArray[Any]]:
        """The results for one request, whose arrays fit the model; `slots` are of its adapter.

        Raises `RequestError` if the queue is full or the time is over, `RunError`.
        """
        if len(self._queue) >= self.limits.queue:
            raise RequestError(
                f"{len(self._queue)} requests wait already", 503,
                hint="try again later", retry_after=1,
            )  # fmt: skip
        loop = asyncio.get_running_loop()
        item = _Item(arrays, self.limits.rows > 1, loop.create_future(), timeout, slots)
        self._queue.append(item)
        self._rows += item.rows
        self._observer.queued(1)
        if item.deadline < self._next:
            self._set_clock(item.deadline)
        if not self._is_pumping:
            # the next turn of the loop: whatever else has arrived by then joins the batch
            self._is_pumping = True
            loop.call_soon(self._pump)
        try:
            found: list[NDArray[Any]] = await item.future
            return found
        except asyncio.CancelledError:
            self._forget(item)
            raise

    def retire(self, release: Callable[[], None]) -> None:
        """Keep nothing alive once what waits and runs is finished; late requests are served.

        `release` is called whenever there is nothing left to do.
        """
        self._release = release
        self._rest()

    def _rest(self) -> None:
        """A retired batcher without work lets go of its clock, which holds it and the model."""
        if self._release is None or not self.is_idle:
            return
        if self._clock is not None:
            self._clock.cancel()
            self._clock, self._next = None, inf
        self._release()

    def _set_clock(self, deadline: float) -> None:
        """One clock for all requests rings at the earliest deadline: most end long before."""
        if self._clock is not None:
            self._clock.cancel()
        self._next = deadline
        seconds = max(0.0, deadline - perf_counter())
        self._clock = asyncio.get_running_loop().call_later(seconds, self._expire)

    def _expire(self) -> None:
        self._clock, self._next = None, inf
        now = perf_counter()
        pending = [item for batch in self._running for item in batch.items]
        for item in (*self._queue, *pending):
            if item.deadline <= now and not item.future.done():
                item.future.set_exception(RequestError("the request's time is over", 504))
                self._forget(item)
        left = [i.deadline for i in (*self._queue, *pending) if not i.future.done()]
        if left:
            self._set_clock(min(left))

    def _forget(self, item: _Item) -> None:
        """Take a request out of the queue, or out of the run that computes it."""
        try:
            self._queue.remove(item)
        except ValueError:
            for batch in self._running:
                if item in batch.items:
                    batch.stop_if_alone()
            return
        self._rows -= item.rows
        self._observer.queued(-1)

    def _pump(self) -> None:
        self._is_pumping = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._queue and len(self._running) < self.limits.instances:
            wait = self._queue[0].since + self.limits.delay - perf_counter()
            if wait > 0 and self._rows < self.limits.rows:
                self._timer = asyncio.get_running_loop().call_later(wait, self._pump)
                return
            batch = _Batch(self._take())
            # with an adapter a run takes longer than what was measured
            is_long = batch.slots is not None
            if is_long or sum(item.rows for item in batch.items) > self.limits.inline:
                self._start(batch)
                continue
            self._finish(batch, self._compute(batch))
            if self._queue:  # not all at once: the loop has others to serve
                self._is_pumping = True
                asyncio.get_running_loop().call_soon(self._pump)
                return

    def _take(self) -> list[_Item]:
        """The first request, and those behind it that can be computed with it."""
        items = [self._queue.popleft()]
        rows = items[0].rows
        while self._queue and self._queue[0].joins(items[0]):
            rows += self._queue[0].rows
            if rows > self.limits.rows:
                break
            items.append(self._queue.popleft())
        self._rows -= sum(item.rows for item in items)
        self._observer.queued(-len(items))
        return items

    def _start(self, batch: _Batch) -> None:
        self._running.add(batch)
        batch.options = ort.RunOptions()
        loop = asyncio.get_running_loop()

        def done(future: Future[list[Any]]) -> None:
            # the loop is gone if the server was killed in the middle of a run
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._end, batch, future)

        self._executor.submit(self._compute, batch).add_done_callback(done)

    def _end(self, batch: _Batch, future: Future[list[Any]]) -> None:
        self._running.discard(batch)
        if self._queue and not self._is_pumping:
            self._pump()
        error = future.exception()
        self._finish(batch, future.result() if error is None else [error] * len(batch.items))

    def _compute(self, batch: _Batch) -> list[Any]:
        """For each request its results, or the error that it gets."""
        items = batch.items
        if len(items) == 1:
            return [_attempt(self._run, items[0].arrays, batch)]
        columns = zip(*(item.arrays for item in items), strict=True)
        whole = _attempt(self._run, [np.concatenate(column) for column in columns], batch)
        ends = list(accumulate(item.rows for item in items))
        if isinstance(whole, Exception) or any(len(a) != ends[-1] for a in whole):
            # one request's values may be what failed: the others shall not suffer
            return [_attempt(self._run, item.arrays, batch) for item in items]
        return [
            [array[end - item.rows : end] for array in whole]
            for item, end in zip(items, ends, strict=True)
        ]

    def _finish(self, batch: _Batch, outcomes: list[Any]) -> None:
        items = batch.items
        for item, outcome in zip(items, outcomes, strict=True):
            if item.future.done():  # too late, or nobody waits any more
                continue
            if isinstance(outcome, BaseException):
                item.future.set_exception(outcome)
            else:
                item.future.set_result(outcome)
        waited = [batch.began - item.since for item in items]
        self._observer.ran(sum(i.rows for i in items), waited, perf_counter() - batch.began)
        self._rest()


def _attempt(run: Run, arrays: Arrays, batch: _Batch) -> list[NDArray[Any]] | Exception:
    if batch.is_stopped:
        return RunError("the run was stopped: nobody waits for it")
    try:
        more = () if batch.slots is None else (batch.slots,)
        return run(arrays, batch.options, *more)
    except FlowError as error:
        return error
    except Exception as error:  # a fault of ours must not leave a request without an answer
        return RunError(f"the run failed: {type(error).__name__}: {error}")
