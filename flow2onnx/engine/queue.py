"""The queue of calls: runs and callbacks, one after another in the order they were asked for."""

import atexit
import contextvars
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from flow2onnx.errors import ContextError

__all__ = ["CallQueue"]

_log = logging.getLogger("flow2onnx.calls")
T = TypeVar("T")

# How long an idle worker thread waits for more before it ends.
_LINGER_SECONDS = 1.0


@dataclass(kw_only=True, eq=False)
class _Item:
    """Work for the worker thread. A run is skipped behind a failed run; a callback is not."""

    work: Callable[[], Any]
    number: int
    is_run: bool
    is_awaited: bool  # its caller waits, and so learns of a failure at once
    future: "Future[Any]"
    context: contextvars.Context


class CallQueue:
    """Runs work one after another: in the caller while nothing waits, else on one worker thread.

    When a run fails on the worker, the runs behind it are skipped and fail alike, until the error
    has been raised in the user's program: by the next call, by `sync`, or by `wait`.
    """

    def __init__(self) -> None:
        self._turn = threading.RLock()  # held by whoever runs
        self._owner: int | None = None  # the thread that holds it
        self._changed = threading.Condition()  # guards what follows
        self._items: deque[_Item] = deque()
        self._last_number = 0
        self._unfinished = 0
        self._unfinished_runs = 0
        self._worker: threading.Thread | None = None
        self._is_closed = False
        self._failure: BaseException | None = None  # not raised anywhere yet
        self._stop: BaseException | None = None
        self._stopped_through: float = -1  # runs up to this number are skipped because of it

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` in its turn and wait for it.

        A watch handler or a callback that gets here already has its turn.
        """
        if self._is_mine():
            return work()
        self.raise_failure()
        if self._unfinished:
            queued: Future[T] = self._put(work, is_run=True, is_awaited=True)
            return self.wait(queued)
        with self._hold_turn():
            return work()

    def submit(self, work: Callable[[], T], width: float = math.inf) -> "Future[T]":
        """Queue a run; waits first while `width` runs are unfinished."""
        if not self._is_mine():
            self.raise_failure()
            with self._changed:
                self._changed.wait_for(lambda: self._unfinished_runs < width)
        return self._put(work, is_run=True)

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
            with self._changed:
                self._changed.wait_for(lambda: not self._unfinished)
        self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the failure of a queued run that was not raised anywhere yet."""
        failure = self._failure
        if failure is not None:
            self._forget_failure(failure)
            raise failure

    def close(self) -> None:
        """`sync`, then let the worker thread end."""
        try:
            self.sync()
        finally:
            atexit.unregister(self._finish)
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()

    def _is_mine(self) -> bool:
        return self._owner == threading.get_ident()

    @contextmanager
    def _hold_turn(self) -> Iterator[None]:
        with self._turn:
            before, self._owner = self._owner, threading.get_ident()
            try:
                yield
            finally:
                self._owner = before

    def _put(
        self, work: Callable[[], Any], *, is_run: bool = False, is_awaited: bool = False
    ) -> "Future[Any]":
        future: Future[Any] = Future()
        context = contextvars.copy_context()  # callbacks see the session of their caller
        with self._changed:
            self._last_number += 1
            item = _Item(
                work=work,
                number=self._last_number,
                is_run=is_run,
                is_awaited=is_awaited,
                future=future,
                context=context,
            )
            self._items.append(item)
            self._unfinished += 1
            self._unfinished_runs += is_run
            self._changed.notify_all()
            if self._worker is None:
                self._start_worker()
        return future

    def _start_worker(self) -> None:
        # A daemon, because atexit waits for it: joining at exit would come before atexit, when
        # callbacks could no longer queue anything.
        self._worker = threading.Thread(target=self._work_off, name="flow2onnx", daemon=True)
        self._worker.start()
        atexit.unregister(self._finish)
        atexit.register(self._finish)

    def _work_off(self) -> None:
        while True:
            with self._changed:
                if not self._has_more():
                    self._worker = None
                    return
                item = self._items.popleft()
                is_skipped = item.is_run and item.number <= self._stopped_through
            self._do(item, self._stop if is_skipped else None)
            with self._changed:
                self._unfinished -= 1
                self._unfinished_runs -= item.is_run
                self._changed.notify_all()
            del item  # its arrays need not outlive it while the thread waits

    def _has_more(self) -> bool:
        self._changed.wait_for(lambda: self._items or self._is_closed, _LINGER_SECONDS)
        return bool(self._items)

    def _do(self, item: _Item, stop: BaseException | None) -> None:
        if stop is not None:
            item.future.set_exception(stop)
            return
        try:
            with self._hold_turn():
                result = item.context.run(item.work)
        except BaseException as error:  # whatever it is, it belongs to whoever waits
            if item.is_run and not item.is_awaited:
                self._keep_failure(error)
            item.future.set_exception(error)
        else:
            item.future.set_result(result)

    def _keep_failure(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._stop = error
            self._stopped_through = math.inf

    def _forget_failure(self, error: BaseException) -> None:
        """The user has seen `error`: skip what was queued until now, run what comes."""
        with self._changed:
            if self._failure is error:
                self._failure = None
                self._stopped_through = self._last_number

    def _finish(self) -> None:
        try:
            self.sync()
        except BaseException as error:
            _log.error("a call failed: %s", error)
