"""The queue of calls: runs and callbacks, one after another in the order they were asked for.

What the caller does here is one call into C at a time, and what belongs together is assigned at
once: an interrupt, which Python raises between any two instructions of the main thread, leaves no
lock held and no count wrong.
"""

import atexit
import contextvars
import functools
import logging
import math
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from flow2onnx_runtime.step_queue import StepFuture, StepQueue

from flow2onnx.errors import ContextError

__all__ = ["CallQueue"]

_log = logging.getLogger("flow2onnx.calls")
T = TypeVar("T")


@dataclass(frozen=True)
class _Stop:
    """A failed run, because of which the runs up to a number are skipped."""

    error: BaseException
    through: float
    is_raised: bool  # in the user's program


class CallQueue:
    """Runs work one after another: in the caller while nothing waits, else on one worker thread.

    When a run fails on the worker, the runs behind it are skipped and fail alike, until the error
    has been raised in the user's program: by the next call, by `sync`, or by `wait`. A callback is
    not skipped.
    """

    def __init__(self) -> None:
        self._turn: Any = threading.RLock()  # held by whoever runs; its type is not public
        self._work = StepQueue("a session with calls in the background", is_chained=False)
        self._runs: deque[StepFuture[Any]] = deque()  # those that were submitted, done ones too
        self._numbers = count()
        self._stop: _Stop | None = None

    def run(self, work: Callable[..., T], *arguments: Any) -> T:
        """Do `work` in its turn and wait for it.

        A watch handler or a callback that gets here already has its turn.
        """
        if self._is_mine():
            return work(*arguments)
        self.raise_failure()
        if not self._work.is_idle:
            later = functools.partial(work, *arguments)
            return self.wait(self._put(later, is_run=True, is_awaited=True))
        with self._turn:
            return work(*arguments)

    def submit(self, work: Callable[[], T], width: float = math.inf) -> "Future[T]":
        """Queue a run; waits first while `width` runs are unfinished."""
        if not self._is_mine():
            self.raise_failure()
            while self._unfinished_runs() >= width:
                self._runs[0].wait()
        future = self._put(work, is_run=True)
        self._runs.append(future)
        return future

    def later(self, work: Callable[[], T]) -> "Future[T]":
        """Queue something else behind the runs so far."""
        return self._put(work)

    def wait(self, future: "Future[T]") -> T:
        """The result of what was queued; a failure counts as raised."""
        if self._is_mine() and not future.done():
            raise ContextError(
                "a watch handler or callback cannot wait for a later call: that call waits for it",
                hint="give the later call a callback of its own",
            )
        try:
            return future.result()
        except BaseException as error:
            self._forget_failure(error)
            raise

    def sync(self) -> None:
        """Wait for everything queued; raise a failure that nobody has seen."""
        if not self._is_mine():
            while not self._work.is_idle:  # callbacks may queue more
                self._work.settle()
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the failure of a queued run that was not raised anywhere yet."""
        stop = self._stop
        if stop is not None and not stop.is_raised:
            self._forget_failure(stop.error)
            raise stop.error

    def close(self) -> None:
        """`sync`, for the last time."""
        try:
            self.sync()
        finally:
            atexit.unregister(self._finish)

    def _is_mine(self) -> bool:
        return bool(self._turn._is_owned())  # which `threading.Condition` asks too

    def _unfinished_runs(self) -> int:
        while self._runs and self._runs[0].done():
            self._runs.popleft()
        return len(self._runs)

    def _put(
        self, work: Callable[[], T], *, is_run: bool = False, is_awaited: bool = False
    ) -> "StepFuture[T]":
        number, context = next(self._numbers), contextvars.copy_context()
        # callbacks see the session of their caller

        def turn() -> T:
            stop = self._stop
            if is_run and stop is not None and number <= stop.through:
                raise stop.error
            try:
                with self._turn:
                    return context.run(work)
            except BaseException as error:  # whatever it is, it belongs to whoever waits
                if is_run and not is_awaited:
                    self._stop = _Stop(error, math.inf, is_raised=False)
                raise

        atexit.unregister(self._finish)
        atexit.register(self._finish)
        return self._work.submit(lambda: turn)

    def _forget_failure(self, error: BaseException) -> None:
        """The user has seen `error`: skip what was queued until now, run what comes."""
        stop = self._stop
        if stop is not None and stop.error is error and not stop.is_raised:
            self._stop = _Stop(error, next(self._numbers), is_raised=True)

    def _finish(self) -> None:
        try:
            self.sync()
        except BaseException as error:
            _log.error("a call failed: %s", error)
