"""One action on one model in a process of its own, and how it ended."""

import contextlib
import multiprocessing
import os
import resource
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime import Options, Predictor

from flow2onnx.errors import FlowError
from flow2onnx.export import describe, verify_model
from flow2onnx.imported import grad, make_trainable

__all__ = ["ACTIONS", "MEGABYTES", "SECONDS", "Outcome", "attempt"]

SECONDS = 2.0  # of the processor, as other work on the machine is not the model's fault
MEGABYTES = 512.0
_KILL_SECONDS = 30
_KILL_BYTES = 3 << 30  # of address space


@dataclass(frozen=True)
class Outcome:
    """How one action on one model ended: what it cost beyond what is imported, and in which error.

    `error` is empty where the model was accepted.
    """

    model: str
    action: str
    seconds: float
    megabytes: float
    error: str
    is_refusal: bool = True

    @property
    def ok(self) -> bool:
        """True if it was accepted or refused in words, within the limits."""
        return self.is_refusal and self.seconds <= SECONDS and self.megabytes <= MEGABYTES


def _make_trainable(path: Path) -> None:
    # The mean of an output is a loss for every model.
    make_trainable(path, "y", "sgd")


def _predict(path: Path) -> None:
    Predictor(path, Options(log_level="fatal"))


ACTIONS: dict[str, Callable[[Path], object]] = {
    "make_trainable": _make_trainable,
    "grad": grad,
    "info": describe,
    "verify": verify_model,
    "runtime": _predict,
}


def attempt(name: str, content: bytes, action: str) -> Outcome:
    """The outcome of an action on a model in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content)
        here, there = multiprocessing.Pipe(duplex=False)
        process = _server().Process(target=_act, args=(path, action, there))
        process.start()
        there.close()
        found = here.recv() if here.poll(_KILL_SECONDS * 10) else None
        process.kill()
        process.join()
    if found is None:
        return Outcome(name, action, float(_KILL_SECONDS), 0.0, "hung", is_refusal=False)
    return Outcome(name, action, **found)


def _server() -> Any:
    """Starts processes that have imported all, by forking one that has no threads.

    A fork of this process could wait for ever for a lock that one of its threads had.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.hostile.attempt"])
    return context


def _act(path: Path, action: str, connection: Any) -> None:
    """The child: acts, and sends what that cost."""
    watched = os.fork()
    if not watched:
        _limit()
        os._exit(_run(path, action))
    _, status, usage = os.wait4(watched, 0)
    text = path.with_name("error")
    error = text.read_text(errors="replace") if text.is_file() else ""
    if os.WIFSIGNALED(status):
        error = f"ended by signal {os.WTERMSIG(status)}"
    connection.send({
        "seconds": usage.ru_utime + usage.ru_stime,
        "megabytes": max(0, usage.ru_maxrss - _resident()) / 1024,
        "error": error,
        "is_refusal": os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0,
    })  # fmt: skip


def _resident() -> int:
    """Kilobytes of memory of this process: the baseline of the one that it watches."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


def _limit() -> None:
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + _KILL_BYTES, size + _KILL_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (_KILL_SECONDS, _KILL_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _run(path: Path, action: str) -> int:
    """0 where the model is accepted or refused in words, else 1; the error is left in a file."""
    error = path.with_name("error")
    with Path(os.devnull).open("w") as null:
        os.dup2(null.fileno(), 1)
        os.dup2(null.fileno(), 2)
        warnings.simplefilter("ignore")
        try:
            ACTIONS[action](path)
        except FlowError as refusal:
            _write(error, refusal)
            return 0
        except BaseException as failure:  # whatever it is, it is what is looked for
            with contextlib.suppress(BaseException):
                _write(error, failure)
            return 1
    return 0


def _write(path: Path, error: BaseException) -> None:
    path.write_text(f"{type(error).__name__}: {error}"[:2000], errors="replace")
