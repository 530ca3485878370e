"""Python's search for unreachable cycles, paused where much is made and little is dropped."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]

_MANY = 10_000  # objects; to look through fewer takes less than to ask whether some are frozen


class _Pauses:
    """How many are under way, in all threads: the first begins one, the last ends it."""

    def __init__(self) -> None:
        self._lock, self._count, self._was_on = threading.Lock(), 0, False

    def begin(self) -> None:
        with self._lock:
            if self._count == 0:
                self._was_on = gc.isenabled()
                gc.disable()
            self._count += 1

    def end(self) -> None:
        with self._lock:
            self._count -= 1
            if self._count == 0 and self._was_on:
                made, _, _ = gc.get_count()
                if made > _MANY and not gc.get_freeze_count():  # the program's own stay as they are
                    gc.freeze()
                    gc.unfreeze()
                gc.enable()


_PAUSES = _Pauses()


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep the collector from running; a graph of some thousand nodes takes a quarter less time.

    What is dropped meanwhile goes as usual when nothing refers to it, cycles at a later collection.
    What was made and is still there, if it is much, is of the oldest generation then: to look
    through all of it as the youngest, and once more as the middle one, would find next to nothing.
    """
    _PAUSES.begin()
    try:
        yield
    finally:
        _PAUSES.end()
