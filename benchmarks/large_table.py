"""The memory that a job with one very large table takes, by the size of the table.

    python -m benchmarks.large_table                     # 100,000,000 rows by 16: 6.4 GB
    python -m benchmarks.large_table --rows 4000000 --optimizer lazy_adam

draws the table by its seed, trains it in steps of 4,096 lookups, saves a checkpoint to a temporary
folder, loads it and exports the job. Printed are the peaks of memory that is no file's, and times.
SGD keeps the table alone, Adagrad another one, Adam two more. The folder has two of all that: the
checkpoint and the bundle.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

LOOKUPS = (1024, 4)
STEPS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--optimizer", choices=("sgd", "adagrad", "lazy_adam"), default="sgd")
    args = parser.parse_args()
    job = train_job(args.rows, args.width, args.optimizer)
    ids = np.random.default_rng(0).integers(0, args.rows, LOOKUPS).astype(np.int32)
    size = args.rows * args.width * 4
    with tempfile.TemporaryDirectory() as folder:
        snapshot, bundle = Path(folder, "snapshot"), Path(folder, "bundle")
        for name, work in {
            "first step": lambda: job(ids),
            f"{STEPS} steps": lambda: [job(ids) for _ in range(STEPS)],
            "save": lambda: flow.checkpoint.save(snapshot),
            "load": lambda: flow.load_variables(flow.checkpoint.get(snapshot)),
            "export": lambda: job.export(bundle, verify=False),
        }.items():
            seconds, peak = measure(work)
            print(f"{name}: {peak / 1e6:,.0f} MB, {peak / size:.2f} tables, {seconds:.1f} s")


def train_job(rows: int, width: int, optimizer: str) -> Any:
    """A job that looks rows up and trains them with a layer behind."""
    config = flow.function_config()
    config.indexed_slices_optimizer_conf({"include_op_names": {"op_name": ["table"]}})
    first = flow.random_uniform_initializer(-0.01, 0.01)

    @flow.global_function(type="train", function_config=config)
    def job(ids: tp.Numpy.Placeholder(LOOKUPS, flow.int32)) -> tp.Numpy:
        table = flow.get_variable("table", (rows, width), initializer=first)
        x = flow.reshape(flow.gather(table, ids), (LOOKUPS[0], LOOKUPS[1] * width))
        weight = flow.get_variable("weight", (LOOKUPS[1] * width, 8), initializer=first)
        loss = flow.math.reduce_mean(flow.math.square(flow.matmul(x, weight) - 1.0))
        _optimizer(optimizer).minimize(loss)
        return loss

    return job


def _optimizer(name: str) -> Any:
    if name == "lazy_adam":
        return flow.optimizer.LazyAdam(flow.optimizer.PiecewiseConstantScheduler([], [0.1]))
    return flow.optimizer.named(name, 0.1)


def measure(work: Callable[[], object]) -> tuple[float, int]:
    """The seconds that some work takes, and the most memory in bytes that this process had."""
    peak, is_done = anonymous_bytes(), threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_done.wait(0.01):
            peak = max(peak, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    begun = time.perf_counter()
    watcher.start()
    try:
        work()
    finally:
        is_done.set()
        watcher.join()
    return time.perf_counter() - begun, max(peak, anonymous_bytes())


def anonymous_bytes() -> int:
    """The resident memory of this process that no file has: Linux only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise SystemExit("this system does not tell the memory of a process apart from files'")


if __name__ == "__main__":
    main()
