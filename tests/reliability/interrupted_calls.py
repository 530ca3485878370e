"""SIGINT while jobs are called and predictors answer: the process ends, or goes on whole.

Usage: python -m tests.reliability.interrupted_calls [--exits N] [--prompts N]

`exits` processes die of the interrupt and must be gone within half a minute. `prompts` interrupts
are caught, as a prompt does; after each every variable must be that of a whole number of calls, and
further calls, predictions and waits must succeed within ten seconds.
"""

import argparse
import faulthandler
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from flow2onnx_runtime import Predictor

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.reliability.interrupted_steps import PATIENCE, interrupt, take_interrupts

MODULE = "tests.reliability.interrupted_calls"
WAYS = ("call", "callback", "future", "submit", "batched", "stream")
SIZE = 1000
X = np.ones((SIZE,), np.float32)


class Calls:
    """A job whose every call takes 1 from each element of a variable, and a model that doubles."""

    def __init__(self, folder: Path) -> None:
        def body(x: tp.Numpy.Placeholder((SIZE,))) -> tp.Numpy:
            w = flow.get_variable("w", (SIZE,), initializer=flow.constant_initializer(0))
            loss = flow.math.reduce_sum(w * x)
            rate = flow.optimizer.PiecewiseConstantScheduler([], [1.0])
            flow.optimizer.SGD(rate, momentum=0).minimize(loss)
            return loss

        self.call = flow.global_function(type="train")(_named(body, "call", tp.Numpy))
        self.later = flow.global_function(type="train")(
            _named(body, "later", tp.Callback[tp.Numpy])
        )
        path = folder / "double.onnx"
        text = '<ir_version: 10, opset_import: ["": 21]> g (float[n] x) => (float[n] y) '
        onnx.save(onnx.parser.parse_model(text + "{ y = Add(x, x) }"), path)
        self.predictor = Predictor(path, workers=2)
        self.batched = self.predictor.batched(SIZE * 4, 0.001)
        self.done = 0.0

    def work(self, way: str) -> None:
        """Go on for ever, in one of the ways in which a program does."""
        calls: dict[str, Callable[[], object]] = {
            "call": lambda: self.call(X),
            "callback": lambda: self.later(X)(lambda loss: None),
            "future": lambda: (self.later(X)(lambda loss: None), self.call(X)),
            "submit": lambda: [f.result() for f in [self.predictor.submit(X) for _ in range(3)]],
            "batched": lambda: [f.result() for f in [self.batched.submit(X) for _ in range(3)]],
            "stream": lambda: list(self.predictor.stream([X] * 3)),
        }
        while True:
            calls[way]()

    def check(self) -> None:
        """Assert that whole calls were done, and that all goes on."""
        flow.sync_default_session()
        before = self._count()
        assert before >= self.done, f"{before} calls after {self.done}"
        for _ in range(3):
            self.later(X)(lambda loss: None)
        self.call(X)
        flow.sync_default_session()
        self.done = self._count()
        assert self.done == before + 4
        for pending in (self.predictor.submit(X), self.batched.submit(X)):
            assert np.array_equal(pending.result(PATIENCE)["y"], 2 * X)

    def _count(self) -> float:
        w = flow.get_all_variables()["w"].numpy()
        assert np.ptp(w) == 0, "a call was done in part"
        return -float(w[0])


def _named(body: Callable[..., Any], name: str, returned: Any) -> Callable[..., Any]:
    """The same job under another name, with another form of result."""

    def job(x: tp.Numpy.Placeholder((SIZE,))) -> returned:
        return body(x)

    job.__name__ = job.__qualname__ = name
    return job


def child(kind: str, way: str, times: int) -> None:
    """Run the process that is interrupted."""
    take_interrupts()
    with tempfile.TemporaryDirectory() as folder:
        calls = Calls(Path(folder))
        calls.check()
        if kind == "exit":
            print("ready", flush=True)
            calls.work(way)
        for _ in range(times):
            try:
                print("ready", flush=True)
                calls.work(way)
            except KeyboardInterrupt:
                pass
            faulthandler.dump_traceback_later(PATIENCE, exit=True)
            calls.check()
            faulthandler.cancel_dump_traceback_later()
            print("whole", flush=True)


def measure(exits: int, prompts: int, seed: int, burst: int = 20) -> Counter[str]:
    """The outcomes of so many interrupts."""
    draws, found = random.Random(seed), Counter[str]()
    for i in range(exits):
        found += interrupt(MODULE, "exit", WAYS[i % len(WAYS)], 1, draws)
    for i in range(-(-prompts // burst)):
        found += interrupt(MODULE, "prompt", WAYS[i % len(WAYS)], min(burst, prompts), draws)
    return found


def main() -> int:
    """Interrupt; 1 if a process was stuck or a variable no whole call's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exits", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=3)
    arguments = parser.parse_args()
    if arguments.child:
        kind, way, times = arguments.child
        child(kind, way, int(times))
        return 0
    found = measure(arguments.exits, arguments.prompts, arguments.seed)
    print(json.dumps({"seed": arguments.seed, **found}))
    return found["ended"] + found["whole"] != sum(found.values())


if __name__ == "__main__":
    sys.exit(main())
