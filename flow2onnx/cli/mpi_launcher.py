"""mpirun as a child: what it says is passed on, and the rank that a signal ended is named.

MPICH tells the number of a process; which rank that was, the ranks have noted.
"""

import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flow2onnx_runtime.world import NOTES, deadline, launched_world

__all__ = ["note_process", "run_mpi", "tell_signal"]

_SIGNALLED = 128  # what a shell adds to the number of a signal that ended a program
_TAIL = 16384  # bytes of what mpirun says last
_CHUNK = 65536
# MPICH: "PID 12 RUNNING AT host", then "EXIT STRING: Killed (signal 9)"
_PROCESS = re.compile(rb"PID (\d+) RUNNING AT")
_SIGNAL = re.compile(rb"EXIT STRING: [^\n]*\(signal (\d+)\)")
# Open MPI: "process rank 1 with PID 12 on node host exited on signal 9 (Killed)", in two lines
_RANK_AND_SIGNAL = re.compile(
    rb"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)"
)


def note_process() -> None:
    """Note for the launcher of this rank which process it is."""
    folder = os.environ.get(NOTES)
    if folder is not None:
        (Path(folder) / str(os.getpid())).write_text(str(launched_world().rank))


def run_mpi(command: Sequence[str], before: Callable[[], object]) -> int:
    """Run mpirun and return its exit status, 1 for one that a signal ended.

    `before` is called in its process first. A signal that asks this process to end is passed on,
    and the status is then that of `tell_signal`.
    """
    with tempfile.TemporaryDirectory(prefix="flow2onnx-ranks-") as folder:
        process = subprocess.Popen(
            command, env={**os.environ, NOTES: folder},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            preexec_fn=before,  # there is one thread
        )  # fmt: skip
        with _forward_signals(process) as asked:
            told = _forward_output(process)
            status = process.wait()
        cause = _cause(told, Path(folder))
    if asked:
        return tell_signal(asked[0])
    if cause is not None:
        print(f"flow2onnx: error: {cause}; every other rank was ended", file=sys.stderr)
    return status if status >= 0 else 1


def tell_signal(number: int) -> int:
    """Say that a signal ended a launch; the exit status that a shell reports for it."""
    print(f"flow2onnx: {signal.Signals(number).name}: every rank was ended", file=sys.stderr)
    return _SIGNALLED + number


@contextmanager
def _forward_signals(process: "subprocess.Popen[bytes]") -> Iterator[list[int]]:
    """Inside, signals that ask this process to end go to another; gives those that came."""
    asked: list[int] = []

    def forward(number: int, _: object) -> None:
        asked.append(number)
        process.send_signal(number)

    before = {n: signal.signal(n, forward) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _forward_output(process: "subprocess.Popen[bytes]") -> bytes:
    """Write here at once what a process writes, and return the end of it."""
    told = b""
    with selectors.DefaultSelector() as open_pipes:
        open_pipes.register(process.stdout, selectors.EVENT_READ, 1)  # type: ignore[arg-type]  # is
        open_pipes.register(process.stderr, selectors.EVENT_READ, 2)  # type: ignore[arg-type]  # so
        while open_pipes.get_map():
            for key, _ in open_pipes.select():
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    open_pipes.unregister(key.fileobj)
                _write(key.data, chunk)
                told = (told + chunk)[-_TAIL:]
    return told


def _write(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _cause(told: bytes, notes: Path) -> str | None:
    """The rank that a signal ended and which signal; None where nobody says so."""
    known = _RANK_AND_SIGNAL.search(told)
    if known:
        return _describe_kill(f"rank {int(known[1])}", int(known[2]), notes)
    process, number = _PROCESS.search(told), _SIGNAL.search(told)
    if not process or not number:
        return None
    note = notes / process[1].decode()
    who = f"rank {note.read_text()}" if note.exists() else "a rank that had not begun"
    return _describe_kill(who, int(number[1]), notes)


def _describe_kill(who: str, number: int, notes: Path) -> str:
    where = f"on {socket.gethostname()}"
    if number != signal.SIGALRM:
        return f"{who} {where} was killed by {signal.Signals(number).name}"
    ranks = {note.read_text() for note in notes.iterdir() if note.name.isdigit()}
    absent = [f"rank {r} {where}" for r in sorted(ranks) if not (notes / f"joins-{r}").exists()]
    return (
        f"{who} {where} waited {deadline():g} seconds for the others, and "
        f"{', '.join(absent) or 'one of them'} did not come"
    )
