"""Threads that share a trainer: one begins steps, others save, predict, freeze, read and load.

Usage: python -m tests.reliability.shared_trainer [--runs N] [--steps N]

Prints how many runs ended, how many were stuck, and how often each method was called.
"""

import argparse
import faulthandler
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from flow2onnx_runtime import FlowError, Trainer

from tests.reliability.bundles import BUNDLE, one_batch, open_trainer

PATIENCE = 40.0  # seconds for a run, which takes one or two


def calls_of(trainer: Trainer, folder: Path) -> dict[str, Callable[[], object]]:
    """The work of other threads, by name."""
    batch, values = one_batch(trainer), trainer.state_dict()
    images = {feed.name: batch[feed.name] for feed in trainer.manifest.predict[0].feeds}
    path = folder / "state.safetensors"
    trainer.save(path)

    def freeze() -> None:
        trainer.freeze("*bias*")
        trainer.freeze()

    def accumulate() -> None:
        if trainer.manifest.accumulate:
            trainer.accumulate(**batch)
            trainer.update()

    def write() -> None:
        name = next(iter(values))
        trainer.state.write(name, values[name])

    def hold() -> None:
        with trainer.state.lock:
            trainer.save(folder / "held.safetensors")
            trainer.evaluate(**batch)

    return {
        "save": lambda: trainer.save(path),
        "predict": lambda: trainer.predict(**images),
        "freeze": freeze,
        "read": lambda: (trainer.steps, trainer.state_dict(), trainer.learning_rate),
        "write": write,
        "load": lambda: trainer.load(path),
        "evaluate": lambda: trainer.evaluate(**batch),
        "accumulate": accumulate,
        "step": lambda: trainer.step(**batch),
        "delta": lambda: trainer.apply_delta(trainer.delta(values), 0.0),
        "export": lambda: trainer.export_predict(folder / "export"),
        "under its lock": hold,
    }


def run(steps: int) -> Counter[str]:
    """The calls made while so many steps were begun and done."""
    faulthandler.dump_traceback_later(PATIENCE - 5, exit=True)
    trainer, over, counts = open_trainer(), threading.Event(), Counter[str]()
    batch, errors = one_batch(trainer), list[str]()

    def repeat(name: str, call: Callable[[], object]) -> None:
        while not over.is_set():
            try:
                call()
            except FlowError as error:
                if name != "accumulate" and "being accumulated" not in str(error):
                    errors.append(f"{name}: {error}")
            counts[name] += 1
            over.wait(0.002)

    with tempfile.TemporaryDirectory() as root:
        threads = [
            threading.Thread(target=repeat, args=pair)
            for pair in calls_of(trainer, Path(root)).items()
        ]
        for thread in threads:
            thread.start()
        try:
            futures = [trainer.step_async(**batch) for _ in range(steps)]
            counts["step_async"] = sum(future.result() is not None for future in futures)
        finally:
            over.set()
        for thread in threads:
            thread.join()
    assert not errors, errors[:3]
    return counts


def run_in_process(steps: int) -> Counter[str] | str:
    """The calls of one run in a process of its own, or why there are none."""
    command = [sys.executable, "-m", "tests.reliability.shared_trainer", "--one", str(steps)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return "stuck"
    if done.returncode:
        return "stuck" if "Timeout" in done.stderr else done.stderr[-2000:]
    return Counter(json.loads(done.stdout))


def main() -> int:
    """Run; 1 if a run was stuck or failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--one", type=int, help="one run in this process")
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(run(arguments.one)))
        return 0
    found = [run_in_process(arguments.steps) for _ in range(arguments.runs)]
    failures = [outcome for outcome in found if isinstance(outcome, str)]
    calls = sum((outcome for outcome in found if not isinstance(outcome, str)), Counter[str]())
    stuck = failures.count("stuck")
    print(json.dumps({"bundle": BUNDLE.parent.name, "runs": len(found), "stuck": stuck,
                      "failed": len(failures) - stuck, "calls": calls}))  # fmt: skip
    for failure in {*failures} - {"stuck"}:
        print(failure, file=sys.stderr)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
