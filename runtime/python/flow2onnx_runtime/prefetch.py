"""Batches made on a thread of their own, ahead of their use."""

import queue
import threading
from collections.abc import Callable, Generator, Iterable
from typing import Any, Generic, TypeVar

__all__ = ["prefetch_items"]

T = TypeVar("T")


class _End(Generic[T]):
    """The last thing in a queue: what the source failed with, if it did."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def prefetch_items(
    source: Iterable[Any], most: int, prepare: Callable[[Any], T] = lambda item: item
) -> Generator[T, None, None]:
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
