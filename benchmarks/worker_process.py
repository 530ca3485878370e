"""A process that a benchmark asks by lines, and that answers each by a line."""

import json
import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.environments import ROOT

PATIENCE = 600.0  # seconds that a worker may take for an answer
_NO_WORDS = " *@"  # begin lines that say where an error was, or what a compiler thinks of it


class PeerError(Exception):
    """A peer ended, fell silent, or computed something else; the text says which."""


class WorkerProcess:
    """A worker at the root of the project; `name` begins the texts of its errors.

    Raises `PeerError` where the process cannot be started, has ended, says something else than it
    was asked for, or is silent for `patience` seconds.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        *,
        name: str = "",
        patience: float = PATIENCE,
    ) -> None:
        self._subject, self._patience = f"{name} " if name else "", patience
        self._unread = b""
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115  # see `close`
        try:
            self._process = subprocess.Popen(
                command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=self._errors, cwd=ROOT, env=environment,
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise PeerError(f"{self._subject}cannot be started: {error}") from None

    def tell(self, text: str) -> None:
        """Write a line to the process."""
        assert self._process.stdin is not None, "the worker was started with a pipe"
        try:
            self._process.stdin.write(text.encode() + b"\n")
        except BrokenPipeError:
            raise PeerError(self._last_words()) from None

    def line(self) -> str:
        """The next line that the process writes, without its end."""
        end = time.monotonic() + self._patience
        while b"\n" not in self._unread:
            self._unread += self._read(end)
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def record(self) -> dict[str, Any]:
        """The next line, which is an object of JSON."""
        line = self.line()
        try:
            found = json.loads(line)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise PeerError(f"{self._subject}wrote {line[:200]!r} in place of a record")
        return found

    def numbers(self, count: int) -> list[float]:
        """The next line, which is so many numbers with spaces between."""
        line = self.line()
        try:
            found = [float(word) for word in line.split()]
        except ValueError:
            found = []
        if len(found) != count:
            raise PeerError(f"{self._subject}wrote {line[:200]!r} in place of {count} numbers")
        return found

    def signal(self, name: str) -> None:
        """Send the signal of this name, where the system has it: Windows has few."""
        if hasattr(signal, name):
            self._process.send_signal(getattr(signal, name))

    def wait(self) -> None:
        """Wait for the process to end by itself: it may have something to write still."""
        try:
            self._process.wait(self._patience)
        except subprocess.TimeoutExpired:
            raise PeerError(f"{self._subject}did not end in {self._patience:g} s") from None

    def close(self) -> None:
        """End the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            assert pipe is not None, "the worker was started with pipes"
            pipe.close()

    def _read(self, end: float) -> bytes:
        """Some bytes that the process writes before `end`."""
        out = self._process.stdout
        assert out is not None, "the worker was started with a pipe"
        if not select.select([out], [], [], max(end - time.monotonic(), 0))[0]:
            raise PeerError(f"{self._subject}gave no answer in {self._patience:g} s")
        part = os.read(out.fileno(), 1 << 16)
        if not part:
            raise PeerError(self._last_words())
        return part

    def _last_words(self) -> str:
        self._errors.seek(0)
        lines = [x for x in self._errors.read().splitlines() if x.strip() and x[0] not in _NO_WORDS]
        return f"{self._subject}ended: {lines[-1][:200] if lines else 'without a word'}"
