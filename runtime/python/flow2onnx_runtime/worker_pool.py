"""Threads that fulfil futures, which no interrupt of the caller leaves stuck.

What the caller does is one call into C at a time, as in `StepQueue`, for the same reason.
"""

import os
import threading
import time
import weakref
from _thread import start_new_thread  # `Thread.start` waits for a condition
from collections import deque
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from flow2onnx_runtime.step_queue import StepFuture

__all__ = ["WorkerPool"]


@dataclass(frozen=True)
class _Shared:
    """The state that threads share with a pool, which they do not hold: a dropped one ends."""

    workers: int
    given: SimpleQueue[StepFuture[Any] | None] = field(default_factory=SimpleQueue)  # None: end
    unfinished: deque[None] = field(default_factory=deque)  # one for each future
    threads: deque[tuple[int, Any]] = field(default_factory=deque)  # a lock that each holds
    process: int = field(default_factory=os.getpid)


class WorkerPool:
    """Up to so many threads that do what futures are of, begun as they are needed."""

    def __init__(self, workers: int) -> None:
        self._shared = _Shared(workers)
        self._end = weakref.finalize(self, _end, self._shared)  # also at the end of the process

    def submit(self, future: StepFuture[Any]) -> None:
        """Let a thread fulfil a future."""
        shared = self._shared
        shared.unfinished.append(None)
        shared.given.put(future)  # from here on it will be done
        if len(shared.threads) < min(shared.workers, len(shared.unfinished)):
            start_new_thread(_work, (shared,))

    def close(self) -> None:
        """Wait until all is done, and let the threads end; nothing may be submitted after."""
        self._end()


def _work(shared: _Shared) -> None:
    mine = threading.Lock()
    with mine:
        shared.threads.append((threading.get_ident(), mine))
        if len(shared.threads) > shared.workers:  # begun twice, as the first was not there yet
            shared.threads.remove((threading.get_ident(), mine))
            return
        while (future := shared.given.get()) is not None:
            future.perform()
            shared.unfinished.popleft()
            future.end()
            future.tell()
            del future  # its arrays need not outlive it while the thread waits
        shared.given.put(None)  # for the next thread


def _end(shared: _Shared) -> None:
    """Wait for what was given, and let the threads end: the pool is dropped, or the process."""
    if shared.process != os.getpid():
        return
    if shared.unfinished and not shared.threads:  # `submit` was interrupted, or just now
        start_new_thread(_work, (shared,))
        while shared.unfinished and not shared.threads:
            time.sleep(0.001)
    shared.given.put(None)
    for identity, ended in shared.threads.copy():
        if identity != threading.get_ident():  # one that drops the pool itself
            ended.acquire()
            ended.release()
