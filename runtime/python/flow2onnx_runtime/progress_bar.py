"""A bar on the terminal that says how far an epoch is, and how fast."""

import math
import shutil
import sys
import time
from typing import TextIO

__all__ = ["ProgressBar"]

_PAUSE = 0.1  # seconds between two drawings
_WIDTH = 24


class ProgressBar:
    """A line on `stream` that is drawn over, at most ten times a second.

    Where the stream is no terminal, only what `end` says is written, a line for each epoch, and
    what `show` says each `pause` seconds, if that is given.
    """

    def __init__(self, stream: TextIO | None = None, pause: float | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._line_pause = pause
        self._is_terminal = self._stream.isatty()
        self._drawn, self._began, self._first = 0.0, time.monotonic(), 0
        self._title = ""
        self._total: int | None = None

    def begin(self, title: str, done: int, total: int | None) -> None:
        """Begin an epoch of `total` batches, if that is known, of which some are `done`."""
        self._title, self._total, self._first = title, total, done
        self._began, self._drawn = time.monotonic(), 0.0

    def show(self, done: int, text: str) -> None:
        """Draw how many batches are done, and a text of numbers."""
        now = time.monotonic()
        pause = _PAUSE if self._is_terminal else self._line_pause
        first = 0.0 if self._is_terminal else self._began
        if pause is None or now - (self._drawn or first) < pause:
            return
        self._drawn = now
        line = f"{self._title} {self._bar(done)}  {self._speed(done, now)}  {text}"
        self._write(line if self._is_terminal else f"{line}\n")

    def end(self, text: str) -> None:
        """Write the last line of an epoch."""
        self._write(f"{self._title}  {text}")
        self._stream.write("\n")
        self._stream.flush()

    def close(self) -> None:
        """End a line that is not ended, as after an error."""
        if self._is_terminal and self._drawn:
            self._stream.write("\n")
            self._stream.flush()

    def _bar(self, done: int) -> str:
        if not self._total:
            return f"{done}"
        filled = min(_WIDTH * done // self._total, _WIDTH)
        return f"[{'=' * filled}{' ' * (_WIDTH - filled)}] {done}/{self._total}"

    def _speed(self, done: int, now: float) -> str:
        passed, count = now - self._began, done - self._first
        if not count or passed <= 0:
            return ""
        rate = count / passed
        shown = f"{rate:.1f}/s" if rate >= 1 else f"{1 / rate:.1f} s each"
        if not self._total:
            return shown
        left = math.ceil((self._total - done) / rate)
        return f"{shown}, {left // 60}:{left % 60:02d} left"

    def _write(self, line: str) -> None:
        if self._is_terminal:
            width = shutil.get_terminal_size().columns
            self._stream.write(f"\r\x1b[K{line[: max(width - 1, 1)]}")
            self._stream.flush()
        else:
            self._stream.write(line)
