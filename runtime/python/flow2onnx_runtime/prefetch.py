"""Background work ahead of its use: queued steps, prefetched batches."""

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

__all__ = ["WorkQueue", "prefetch_items"]

T = TypeVar("T")


class WorkQueue:
    """Does work in order on one thread, of which so many pieces may be unfinished.

    When one fails, those behind it are not begun and fail alike; `settle`, or the first piece
    given after all are over, makes a new start.
    """

    def __init__(self, most: int) -> None:
        self._room, self._lock = threading.Semaphore(most), threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._worker: int | None = None
        self._last: Future[Any] | None = None
        self._failure: BaseException | None = None

    @contextmanager
    def room(self) -> Iterator[None]:
        """Wait until one more piece may be given, which is done inside, once, by `submit`."""
        self._room.acquire()
        try:
            yield
        except BaseException:
            self._room.release()
            raise

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Queue a piece of work, for which there is `room`."""
        with self._lock:  # so that the last one is the last one
            if self._last is None or self._last.done():
                self._failure = None
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, "flow2onnx-steps")
            self._last = future = self._pool.submit(self._do, work)
        future.add_done_callback(lambda _: self._room.release())
        return future

    def settle(self) -> None:
        """Wait until everything queued is over; errors stay with the futures."""
        last = self._last
        if last is None or threading.get_ident() == self._worker:
            return
        wait([last])
        with self._lock:
            if self._last is last:
                self._last = self._failure = None

    def _do(self, work: Callable[[], T]) -> T:
        self._worker = threading.get_ident()
        if self._failure is not None:
            raise self._failure
        try:
            return work()
        except BaseException as error:
            self._failure = error
            raise


class _End(Generic[T]):
    """The last thing in a queue: what the source failed with, if it did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch_items(
    source: Iterable[Any], most: int, prepare: Callable[[Any], T] = lambda item: item
) -> Iterator[T]:
    """The items of `source`, each prepared, made on a thread that is up to `most` ahead.

    What the source raises is raised here, behind the items before it. A caller that stops early
    closes the iterator, which ends the thread once the source has given its next item.
    """
    ready: queue.Queue[T | _End[T]] = queue.Queue(most)
    over = threading.Event()

    def put(item: T | _End[T]) -> None:
        while not over.is_set():
            try:
                return ready.put(item, timeout=0.1)
            except queue.Full:
                continue

    def make() -> None:
        end = _End[T]()
        try:
            for item in source:
                if over.is_set():
                    return
                put(prepare(item))
        except BaseException as error:
            end.error = error
        put(end)

    threading.Thread(target=make, name="flow2onnx-batches", daemon=True).start()
    try:
        while not isinstance(item := ready.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        over.set()
