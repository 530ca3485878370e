"""Steps done in order on a thread of their own, which no interrupt and no fork leaves stuck.

Python raises `KeyboardInterrupt` in the main thread between any two instructions, also where a
condition of the standard library has just taken its lock, which nobody would release then. So what
a caller does here is one call into C at a time (append to a deque, put into a `SimpleQueue`, wait
for a lock of its own), and whatever is counted is counted by the worker, which no interrupt
reaches. The half of a future that the standard library waits on is fulfilled by a second thread.
"""

import contextlib
import math
import os
import threading
import weakref
from _thread import start_new_thread  # `Thread.start` waits for a condition
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

from flow2onnx_runtime.errors import StateError
from flow2onnx_runtime.forks import check_process

__all__ = ["StepFuture", "StepQueue"]

T = TypeVar("T")
_SECONDS_TO_TELL = 5.0  # at the end of the process, those whom futures tell of their results


class StepFuture(Future[T]):
    """The result of a step, once it is done; waiting for it may be interrupted at any moment."""

    def __init__(self, work: Callable[[], T], before: "StepFuture[Any] | None" = None) -> None:
        super().__init__()
        self._work: Callable[[], T] | None = work
        self._before = before
        self._claim = threading.Lock()  # taken once: by who does the work, or by who cancels it
        self._waiting: deque[Any] = deque()  # one lock of each thread that waits
        self._is_over = self._is_cancelled = False
        self._value: T | None = None
        self._error: BaseException | None = None
        self.failure: BaseException | None = None  # what those behind it fail with

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is over; False if that took longer than `timeout` seconds."""
        if self._is_over:
            return True
        mine = threading.Lock()
        mine.acquire()
        self._waiting.append(mine)
        return self._is_over or mine.acquire(timeout=-1 if timeout is None else max(timeout, 0))

    def result(self, timeout: float | None = None) -> T:
        """The result, or the error raised."""
        if (error := self.exception(timeout)) is not None:
            raise error
        return self._value  # type: ignore[return-value]  # there is one, as there is no error

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The error that the step ended with, or None."""
        if self._is_cancelled:
            raise CancelledError
        if not self.wait(timeout):
            raise TimeoutError
        if self._is_cancelled:  # meanwhile
            raise CancelledError
        return self._error

    def done(self) -> bool:
        """True once it is over or cancelled."""
        return self._is_over or self._is_cancelled

    def cancelled(self) -> bool:
        """True if it was cancelled before it began."""
        return self._is_cancelled

    def running(self) -> bool:
        """True while it is done."""
        return self._claim.locked() and not self.done()

    def cancel(self) -> bool:
        """Do not begin it; False if it has begun."""
        if self._claim.acquire(blocking=False):
            self._is_cancelled = True
        return self._is_cancelled

    def perform(self) -> None:
        """Do the work, unless it is cancelled or a step before it has failed."""
        work, before = self._work, self._before
        self._work = self._before = None
        self.failure = before.failure if before is not None else None
        if work is None or not self._claim.acquire(blocking=False):
            return
        try:
            if self.failure is not None:
                raise self.failure
            self._value = work()
        except BaseException as error:
            self._error = self.failure = error

    def take(self, outcome: T | BaseException) -> None:
        """Have this outcome, in place of that of the work; nothing if it is cancelled."""
        self._work = self._before = None
        if self._claim.acquire(blocking=False):
            if isinstance(outcome, BaseException):
                self._error = self.failure = outcome
            else:
                self._value = outcome

    def end(self) -> None:
        """Wake those who wait."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        while True:
            try:
                self._waiting.popleft().release()
            except IndexError:
                return

    def tell(self) -> None:
        """Call the callbacks, and wake those who wait by means of the standard library."""
        if self._is_cancelled:
            super().cancel()
            self.set_running_or_notify_cancel()
        elif self._error is not None:
            self.set_exception(self._error)
        else:
            self.set_result(self._value)  # type: ignore[arg-type]  # as in `result`


@dataclass(frozen=True)
class _Work:
    """State that threads share with a queue, which they do not hold: a dropped one ends."""

    unfinished: deque[StepFuture[Any]] = field(default_factory=deque)
    untold: deque[StepFuture[Any]] = field(default_factory=deque)
    wake: SimpleQueue[bool] = field(default_factory=SimpleQueue)  # False: end
    threads: list[int] = field(default_factory=list)  # who works, who tells
    processes: list[int] = field(default_factory=list)  # the one where work was given

    def last(self) -> StepFuture[Any] | None:
        """The last that is not over."""
        try:
            return self.unfinished[-1]
        except IndexError:
            return None


class StepQueue:
    """Does work in order on one thread, of which at most `most` pieces may be unfinished.

    When one fails, those given before it was over are not begun and fail alike, if `is_chained`.
    Whoever holds `lock`, an RLock that the work takes, does not wait for the work. The process that
    has given work is the only one that may: in a process forked from it there is no thread that
    would do it. `what` has the queue, in that error.
    """

    def __init__(
        self,
        what: str,
        most: float = math.inf,
        lock: Any = None,  # an RLock has no public type
        *,
        is_chained: bool = True,
    ) -> None:
        self._what, self._most, self._is_chained = what, most, is_chained
        self._lock: Any = threading.RLock() if lock is None else lock
        self._giving = threading.Lock()  # held by the one thread that gives work
        self._shared = _Work()
        weakref.finalize(self, _end, self._shared)  # also at the end of the process

    def submit(self, prepare: Callable[[], Callable[[], T]]) -> "StepFuture[T]":
        """Wait for room, and queue the work that `prepare` returns then."""
        self._check_process()
        if self._lock._is_owned():  # which `threading.Condition` asks too
            raise StateError(
                "a step cannot be begun by who holds the state's lock: it would wait for itself",
                hint="call step(), or begin it outside of the lock",
            )
        shared = self._shared
        with self._giving:
            while not self._is_own() and len(shared.unfinished) >= self._most:
                _wait_for_first(shared)
            future = StepFuture(prepare(), shared.last() if self._is_chained else None)
            shared.processes[:] = [os.getpid()]
            shared.unfinished.append(future)  # from here on it will be done
            self._start()
        return future

    @property
    def is_idle(self) -> bool:
        """True if all that was given is over."""
        return not self._shared.unfinished

    def settle(self) -> None:
        """Wait until everything queued is over; errors stay with the futures."""
        self._check_process()
        last = self._shared.last()
        if last is not None and not self._is_own() and not self._lock._is_owned():
            self._start()  # for the case that `submit` was interrupted
            last.wait()

    def _start(self) -> None:
        if not self._shared.threads:
            start_new_thread(_do_all, (self._shared,))
        self._shared.wake.put(True)

    def _is_own(self) -> bool:
        """True on the thread that works, which would wait for itself."""
        return threading.get_ident() in self._shared.threads[:1]

    def _check_process(self) -> None:
        for process in self._shared.processes:
            check_process(process, self._what)


def _wait_for_first(shared: _Work) -> None:
    try:
        first = shared.unfinished[0]
    except IndexError:  # all is over meanwhile
        return
    first.wait()


def _do_all(shared: _Work) -> None:
    """Do what is given until told to end."""
    identity = threading.get_ident()
    shared.threads.append(identity)
    if shared.threads[0] != identity:  # `_start` was interrupted, and began another
        return
    told: SimpleQueue[bool] = SimpleQueue()
    start_new_thread(_tell_all, (shared, told))
    while shared.wake.get():
        while shared.unfinished:
            _do_first(shared)
            told.put(True)
    told.put(False)


def _do_first(shared: _Work) -> None:
    first = shared.unfinished[0]
    first.perform()
    shared.untold.append(first)
    shared.unfinished.popleft()
    first.end()


def _tell_all(shared: _Work, told: "SimpleQueue[bool]") -> None:
    shared.threads.append(threading.get_ident())
    while told.get():
        shared.untold[0].tell()
        shared.untold.popleft()


def _end(shared: _Work) -> None:
    """Wait for what was given, and let the threads end: the queue is dropped, or the process."""
    if shared.processes != [os.getpid()]:
        return
    if threading.get_ident() not in shared.threads and (shared.unfinished or shared.untold):
        last = StepFuture(lambda: None)
        shared.unfinished.append(last)
        shared.wake.put(True)
        last.wait()
        with contextlib.suppress(TimeoutError):
            Future.result(last, _SECONDS_TO_TELL)
    shared.wake.put(False)
