"""SIGINT while steps are under way: the process ends, or goes on with the state of a whole step.

Usage: python -m tests.reliability.interrupted_steps [--exits N] [--prompts N]

`exits` processes die of the interrupt and must be gone within ten seconds. `prompts` interrupts are
caught, as a prompt does; after each the state must be, bit for bit, that of as many steps as it
says, and the next step, save and prediction must succeed.
"""

import argparse
import faulthandler
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import wait
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Manifest, Trainer

from tests.reliability.bundles import BUNDLE, copy_bundle, one_batch, open_trainer

PATIENCE = 10.0  # seconds to end, or to be back at the prompt
MODULE = "tests.reliability.interrupted_steps"
WAYS = ("async", "result", "step", "stream", "save")


def work(way: str, trainer: Trainer, batch: dict[str, Any], path: Path) -> None:
    """Train for ever, in one of the ways in which a program does."""
    if way == "stream":
        for _ in trainer.stream(iter(lambda: batch, None)):
            pass
    calls: dict[str, Callable[[], object]] = {
        "async": lambda: trainer.step_async(**batch),
        "result": lambda: trainer.step_async(**batch).result(),
        "step": lambda: trainer.step(**batch),
        "save": lambda: (trainer.step_async(**batch), trainer.save(path)),
    }
    while True:
        calls[way]()


def interrupted(way: str, trainer: Trainer, batch: dict[str, Any], path: Path) -> None:
    """Say that it begins, train, and return after an interrupt."""
    try:
        print("ready", flush=True)
        work(way, trainer, batch, path)
    except KeyboardInterrupt:
        pass


def check(trainer: Trainer, reference: Trainer, batch: dict[str, Any], path: Path) -> None:
    """Assert that the state is that of as many steps as it says, and that work goes on."""
    steps, state = trainer.steps, trainer.state_dict()
    while reference.steps < steps:
        reference.step(**batch)
    wanted = reference.state_dict()
    for name, value in state.items():
        assert np.array_equal(value, wanted[name]), f"{name} is not that of step {steps}"
    trainer.save(path)
    trainer.predict(**{f.name: batch[f.name] for f in trainer.manifest.predict[0].feeds})
    done = [trainer.step_async(**batch) for _ in range(3)]
    wait(done, PATIENCE)
    assert trainer.steps == steps + 3


def take_interrupts() -> None:
    """Let Ctrl-C raise, which it does not in what a shell started in the background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def child(kind: str, way: str, times: int, *, in_place: bool) -> None:
    """Run the process that is interrupted."""
    take_interrupts()
    with tempfile.TemporaryDirectory() as root:
        folder = copy_bundle(Path(root, "bundle"))
        if in_place:
            manifest = Manifest.read(folder)
            # but for what is read behind its update: by the layer below, by the schedule
            late = {"output-weight", manifest.counter}
            names = tuple(s.name for s in manifest.state if s.trainable and s.name not in late)
            replace(manifest, in_place={manifest.step: names}).write(folder)
        trainer, reference = open_trainer(folder), open_trainer(in_place=False)
        batch, path = one_batch(trainer), Path(root, "state.safetensors")
        assert bool(trainer.in_place) == in_place
        if kind == "exit":
            print("ready", flush=True)
            work(way, trainer, batch, path)
        for _ in range(times):
            interrupted(way, trainer, batch, path)
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            check(trainer, reference, batch, path)
            faulthandler.cancel_dump_traceback_later()
            print("whole", flush=True)


def interrupt(
    module: str, kind: str, way: str, times: int, draws: random.Random, *more: str
) -> Counter[str]:
    """How many interrupts of a module's child ended well, and how the others did not."""
    found = Counter[str]()
    command = [sys.executable, "-m", module, "--child", kind, way, str(times), *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout is not None
        for _ in range(times):
            if process.stdout.readline() != "ready\n":
                break
            time.sleep(draws.uniform(0, 0.02))
            process.send_signal(signal.SIGINT)
            if kind == "exit" or not _is_whole(process):
                break
            found["whole"] += 1
        try:
            _, errors = process.communicate(timeout=3 * PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            return found + Counter({"stuck": 1})
    if kind == "exit" and "KeyboardInterrupt" in errors and "Fatal" not in errors:
        found["ended"] += 1
    elif found["whole"] != times:
        found[f"{way}: {errors[-600:]}"] += 1
    return found


def _is_whole(process: subprocess.Popen[str]) -> bool:
    """True if the child says that its state is whole; one that does not come back is killed."""
    assert process.stdout is not None
    watchdog = threading.Timer(6 * PATIENCE, process.kill)
    watchdog.start()
    try:
        return process.stdout.readline() == "whole\n"
    finally:
        watchdog.cancel()


def measure(exits: int, prompts: int, seed: int, burst: int = 20) -> Counter[str]:
    """The outcomes of so many interrupts."""
    draws, found = random.Random(seed), Counter[str]()
    for i in range(exits):
        found += interrupt(MODULE, "exit", WAYS[i % len(WAYS)], 1, draws, str(i % 2))
    for i in range(-(-prompts // burst)):
        times, way = min(burst, prompts), WAYS[i % len(WAYS)]
        found += interrupt(MODULE, "prompt", way, times, draws, str(i % 2))
    return found


def main() -> int:
    """Interrupt; 1 if a process was stuck or its state no step's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exits", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=4)
    arguments = parser.parse_args()
    if arguments.child:
        kind, way, times, in_place = arguments.child
        child(kind, way, int(times), in_place=in_place == "1")
        return 0
    found = measure(arguments.exits, arguments.prompts, arguments.seed)
    print(json.dumps({"bundle": BUNDLE.parent.name, "seed": arguments.seed, **found}))
    return found["ended"] + found["whole"] != sum(found.values())


if __name__ == "__main__":
    sys.exit(main())
