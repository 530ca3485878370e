"""Ctrl-C between what is done whole: it waits for a step, or for state that is replaced."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["BrokenOffError", "Interrupts", "uninterrupted"]


class BrokenOffError(KeyboardInterrupt):
    """An interrupt that came into what should have been done whole: it may be half done."""


class Interrupts:
    """While it is entered, an interrupt inside `held` is raised at the end of that.

    A second one is raised at once, as `BrokenOffError`. Elsewhere than in the main thread, or where
    the program handles the signal itself, it does nothing.
    """

    def __init__(self) -> None:
        self._is_held = self._is_asked = False
        self._earlier: Any = None

    def __enter__(self) -> "Interrupts":
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._earlier = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._earlier is not None:
            signal.signal(signal.SIGINT, self._earlier)
            self._earlier = None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._is_held:
            raise KeyboardInterrupt
        if self._is_asked:
            raise BrokenOffError
        self._is_asked = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Do whole whatever is done in here: an interrupt comes behind it."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
            is_asked, self._is_asked = self._is_asked, False
        if is_asked:
            raise KeyboardInterrupt


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Do whole what is short: every interrupt, whoever handles it, comes behind it.

    Elsewhere than in the main thread, to which alone interrupts come, it does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or not callable(signal.getsignal(signal.SIGINT)):
        yield
        return
    asked: list[int] = []
    earlier = signal.signal(signal.SIGINT, lambda number, _: asked.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
        for number in asked:
            signal.raise_signal(number)
