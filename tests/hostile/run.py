"""Open hostile models, each in a process of its own, and tell how each ended.

``python -m tests.hostile.run [--count 500] [--seed 0] [--family loop] [--json FILE]``; ends with 1
where a model crashed, hung, raised what is no error of flow2onnx, or took more than the limits.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime import Options, Predictor

from flow2onnx.errors import FlowError
from flow2onnx.export import describe, verify_model
from flow2onnx.imported import grad, make_trainable
from tests.hostile.models import FAMILIES, case

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
    context.set_forkserver_preload(["tests.hostile.run"])
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


def _outcomes(count: int, seed: int, family: str, actions: list[str]) -> Iterator[Outcome]:
    families = list(FAMILIES)
    for number in range(count):
        if families[number % len(families)].startswith(family):
            name, content = case(number, seed)
            for action in actions:
                yield attempt(name, content, action)


def _print_table(outcomes: list[Outcome]) -> None:
    by_family: dict[tuple[str, str], list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_family[one.model.rpartition("-")[0], one.action].append(one)
    print(f"{'family':26} {'action':14} models accepted refused worst-s worst-MB failed")
    for (family, action), group in sorted(by_family.items()):
        kinds = Counter("failed" if not o.ok else "refused" if o.error else "accepted"
                        for o in group)  # fmt: skip
        print(
            f"{family:26} {action:14} {len(group):6} {kinds['accepted']:8} {kinds['refused']:7} "
            f"{max(o.seconds for o in group):7.2f} {max(o.megabytes for o in group):8.0f} "
            f"{kinds['failed']:6}"
        )


def main() -> int:
    """Run the corpus and print the table and what failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--family", default="", help="only models whose names begin so")
    parser.add_argument("--action", choices=list(ACTIONS), action="append")
    parser.add_argument("--json", type=Path, help="where every outcome is written")
    asked = parser.parse_args()
    begin = time.monotonic()
    outcomes = []
    for o in _outcomes(asked.count, asked.seed, asked.family, asked.action or [*ACTIONS]):
        outcomes.append(o)
        if not o.ok:
            cost = f"{o.seconds:.2f} s, {o.megabytes:.0f} MB"
            print(f"FAILED {o.model} {o.action}: {cost}: {o.error[:300]}", flush=True)
    _print_table(outcomes)
    failed = [o for o in outcomes if not o.ok]
    print(f"{len({o.model for o in outcomes})} models, {len(outcomes)} attempts, {len(failed)} "
          f"failed, {time.monotonic() - begin:.0f} s")  # fmt: skip
    if asked.json:
        asked.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=0))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
