"""Calls of jobs beside those of ONNX Runtime itself, where the work of a step is small.

    python -m benchmarks.calls [--quick] [--out DIR]

writes calls.json and calls.md. Each row is a job whose step takes some 10 to 30 microseconds. The
runtime alone runs the exported model, with the same arrays, by `InferenceSession.run`; it hands
weights that were updated back as arrays, where a job keeps them. Blocks of calls take turns in one
process, on one thread.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from flow2onnx_runtime import Options, Predictor, Trainer
from flow2onnx_runtime.files import replace_bytes

import flow2onnx as flow
import flow2onnx.typing as tp
from benchmarks.contest import machine
from benchmarks.driver import RESULTS
from benchmarks.report import Grid, page, write_numbers
from benchmarks.worker import confine, versions_of

Calls = Mapping[str, Callable[[], Any]]
BLOCK = 200  # calls
ALONE, JOB, DEVICE = "InferenceSession.run", "job", "flow2onnx_runtime"
WORK = {
    "predict": "a product of 1 x 16 by 16 x 4",
    "train": "a perceptron 16, 64, 4 on 8 rows, with its gradients and SGD",
}
NOTES = (
    '"over" is the median of a call less that of the runtime alone. The runtime alone checks no '
    "shapes or labels, and returns weights after the update as arrays; a job keeps them.",
)


def define_jobs() -> tuple[Any, Any]:
    """The jobs of both rows, in the session that is there."""
    config = flow.function_config()
    config.runtime.intra_op_num_threads(1)

    @flow.global_function(type="predict", function_config=config)
    def predict(x: tp.Numpy.Placeholder((1, 16))) -> tp.Numpy:
        return flow.matmul(x, flow.get_variable("w", (16, 4), initializer=flow.ones_initializer()))

    @flow.global_function(type="train", function_config=config)
    def train(
        x: tp.Numpy.Placeholder((8, 16)), y: tp.Numpy.Placeholder((8,), dtype=flow.int32)
    ) -> tp.Numpy:
        initial = flow.random_normal_initializer(0, 0.1)
        hidden = flow.nn.relu(flow.matmul(x, flow.get_variable("v", (16, 64), initializer=initial)))
        logits = flow.matmul(hidden, flow.get_variable("u", (64, 4), initializer=initial))
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(y, logits)
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    return predict, train


def _session(path: Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _alone(session: ort.InferenceSession, given: Mapping[str, Any]) -> Callable[[], Any]:
    """A call of a model with these arrays, and with zeros for all else that it takes."""
    feeds = {}
    for taken in session.get_inputs():
        dtype = {"tensor(float)": np.float32, "tensor(int32)": np.int32}.get(taken.type, np.int64)
        feeds[taken.name] = given.get(taken.name, np.zeros(taken.shape, dtype))
    names = [made.name for made in session.get_outputs()]
    return lambda: session.run(names, feeds)


def prepare(folder: Path) -> dict[str, Calls]:
    """The calls of each row, everything compiled and opened."""
    x, rows, labels = (
        np.ones((1, 16), np.float32), np.ones((8, 16), np.float32), np.zeros(8, np.int32)
    )  # fmt: skip
    predict, train = define_jobs()
    predict.export(folder / "model.onnx")
    train.export(folder / "bundle")
    one = Options(intra_op_threads=1)
    predictor = Predictor(folder / "model.onnx", options=one)
    trainer = Trainer(folder / "bundle", options=one)
    step = _session(folder / "bundle" / "step.onnx")
    return {
        "predict": {
            ALONE: _alone(_session(folder / "model.onnx"), {"x": x}),
            JOB: lambda: predict(x),
            DEVICE: lambda: predictor(x=x),
        },
        "train": {
            ALONE: _alone(step, {"x": rows, "y": labels}),
            JOB: lambda: train(rows, labels),
            DEVICE: lambda: trainer.step(x=rows, y=labels),
        },
    }


def measure(calls: Calls, blocks: int) -> dict[str, float]:
    """Microseconds of each call, by the median of so many blocks of calls that took turns."""
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(1 + blocks):
        for name, call in calls.items():
            begin = time.perf_counter()
            for _ in range(BLOCK):
                call()
            taken[name].append((time.perf_counter() - begin) / BLOCK)
    return {name: 1e6 * statistics.median(times[1:]) for name, times in taken.items()}


def table(found: Mapping[str, Any]) -> Grid:
    """Microseconds of each call, and what it takes over the runtime alone."""
    lines = []
    for row in found["rows"]:
        for name, us in row["us"].items():
            over = "" if name == ALONE else f"{us - row['us'][ALONE]:.1f}"
            lines.append([f"{row['workload']}, {name}", f"{us:.1f}", over])
    return Grid("microseconds of a call", ["", "median", "over"], lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few calls: a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    confine(1)
    with tempfile.TemporaryDirectory() as folder:
        calls = prepare(Path(folder))
        rows = [
            {"workload": name, "us": measure(own, 5 if args.quick else 100)}
            for name, own in calls.items()
        ]
    found = {
        "machine": machine(),
        "versions": {"flow2onnx": versions_of(("onnxruntime",))},
        "title": "Calls beside ONNX Runtime alone" + ", a rehearsal of few calls" * args.quick,
        "workloads": WORK,
        "notes": NOTES,
        "rows": rows,
    }
    write_numbers(found, args.out / "calls.json")
    replace_bytes(args.out / "calls.md", page(found, [table(found)]).encode())
    table(found).show()


if __name__ == "__main__":
    main()
