"""The first step of deep networks, stage by stage, and the start of an equal program after it.

    python -m benchmarks.compiling [--rows "encoder:layers=48;resnet50"] [--repeat 3] [--out DIR]

writes compiling.json, compiling.md and compiling.svg. Each start is a process of its own on one
processor, with native operators where flow2onnx-native is installed; the first finds an empty cache
of openings, the second what the first has kept. Numbers are seconds of processors, the least of
`--repeat`. The time of a stage is without that of those inside it.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import machine
from benchmarks.peers.flow2onnx import VERSIONS
from benchmarks.report import Grid, save
from benchmarks.worker import confine, peak_mb, versions_of

ROWS = (
    *(f"encoder:batch=1,length=32,layers={layers}" for layers in (12, 24, 48, 200)),
    "resnet50:batch=1,side=64",
)
# Where each stage begins: what is called, as the module that calls it knows it.
STAGES = {
    "trace": [("flow2onnx.compile.job", "trace")],
    "key": [("flow2onnx.compile.kept_program", "program_key")],
    "gradients and update": [("flow2onnx.compile.job", "append_training")],
    "passes": [
        ("flow2onnx.compile.job", "_rewrite_forward"),
        ("flow2onnx.compile.job", "run_passes"),
    ],
    "verify": [("flow2onnx.compile.job", "verify")],
    "native rewrite": [("flow2onnx.engine.opening", "_use_native_operators")],
    "analysis": [
        ("flow2onnx.engine.opening", "in_place"),
        ("flow2onnx.engine.opening", "call_sizes"),
    ],
    "files": [
        ("flow2onnx.engine.opening", "model_bytes"),
        ("flow2onnx.engine.opening", "parse_model"),
        ("flow2onnx.engine.opening_cache", "replace_bytes"),
        ("flow2onnx.engine.opening_cache", "_parse"),
    ],
    "runtime's session": [("flow2onnx_runtime.program", "open_session")],
    "first values": [("flow2onnx.engine.session", "new_state")],
}
REST = "rest, and the step"


class Stages:
    """The seconds of processors in each stage, without those of stages inside it."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._inside: list[float] = []

    def watch(self) -> None:
        """Count from now on the calls in which stages begin."""
        for stage, calls in STAGES.items():
            for module, name in calls:
                place = importlib.import_module(module)
                setattr(place, name, self._timed(stage, getattr(place, name)))

    def _timed(self, stage: str, work: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(work)
        def call(*args: Any, **kwargs: Any) -> Any:
            self._inside.append(0.0)
            started = time.process_time()
            try:
                return work(*args, **kwargs)
            finally:
                spent = time.process_time() - started
                self.seconds[stage] += spent - self._inside.pop()
                if self._inside:
                    self._inside[-1] += spent

        return call


def start(name: str) -> dict[str, Any]:
    """One start of a workload in this process: seconds by stage, nodes, bytes."""
    from benchmarks.peers import Options
    from benchmarks.peers import flow2onnx as peer
    from benchmarks.workloads import workload
    from flow2onnx.engine.session import current_session

    work = workload(name)
    data, stages = work.data(), Stages()
    has_native = importlib.util.find_spec("flow2onnx_native") is not None
    options = Options(frozenset(["native"] if has_native else []), 1)
    stages.watch()
    before, started = peak_mb(), time.process_time()
    loss = peer.training(work, {}, data, options)(0)
    total = time.process_time() - started
    peak = peak_mb() - before
    session = current_session()
    opening = session.opening(session.job_names()[0])
    state = sum(v.nbytes for v in opening.job.variables.values())
    found = {stage: stages.seconds[stage] for stage in STAGES}
    found[REST] = total - sum(found.values())
    return {
        "loss": loss, "total": total, "stages": found, "peak_mb": peak, "state_mb": state / 2**20,
        "nodes": len(opening.job.model.graph), "opened": len(opening.model.graph),
    }  # fmt: skip


def measure(name: str, repeat: int) -> dict[str, Any]:
    """The least of several first starts, and of the second starts after them."""
    runs = []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            runs.append([_process(name, folder) for _ in range(2)])
    first, second = (min(found, key=lambda run: run["total"]) for found in zip(*runs, strict=True))
    if first["loss"] != second["loss"]:
        raise SystemExit(f"{name}: the losses of both starts differ: {first} {second}")
    return {"workload": name, "first": first, "second": second}


def _process(name: str, cache: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.compiling", "--start", name]
    environment = {**os.environ, "FLOW2ONNX_CACHE": cache}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fit(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The line through first steps by nodes: ms a node, seconds beside, and how well it fits."""
    nodes = np.array([row["first"]["nodes"] for row in rows], float)
    seconds = np.array([row["first"]["total"] for row in rows])
    slope, fixed = np.polyfit(nodes, seconds, 1)
    unexplained = np.sum((seconds - slope * nodes - fixed) ** 2)
    spread = np.sum((seconds - seconds.mean()) ** 2)
    return {
        "ms_a_node": 1000 * float(slope), "seconds": float(fixed),
        "r2": float(1 - unexplained / spread) if spread else 1.0,
    }  # fmt: skip


def tables(rows: list[dict[str, Any]]) -> list[Grid]:
    """Seconds of both starts with their memory, and ms a node of each stage."""
    totals = [
        [
            row["workload"], f"{row['first']['nodes']:,}", f"{row['first']['opened']:,}",
            f"{row['first']['total']:.2f}", f"{row['second']['total']:.2f}",
            f"{row['first']['peak_mb']:,.0f}", f"{row['first']['state_mb']:,.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    header = ["", "nodes", "opened", "first step, s", "second start, s", "peak, MB", "state, MB"]
    names = [*STAGES, REST]
    stages = [
        [stage, *(_ms_a_node(row["first"], row["first"]["stages"][stage]) for row in rows)]
        for stage in names
    ]
    stages.append(["all", *(_ms_a_node(row["first"], row["first"]["total"]) for row in rows)])
    second = [
        [stage, *(f"{row['second']['stages'][stage]:.2f}" for row in rows)] for stage in names
    ]
    workloads = ["", *(row["workload"] for row in rows)]
    return [
        Grid("Starts", header, totals),
        Grid("First step, ms a node", workloads, stages),
        Grid("Second start, s", workloads, second),
    ]


def _ms_a_node(run: dict[str, Any], seconds: float) -> str:
    return f"{1000 * seconds / run['nodes']:.3f}"


def draw(found: dict[str, Any], path: Path) -> None:
    """First steps as bars of stages, second starts as dots, by nodes."""
    from matplotlib.figure import Figure

    rows = found["rows"]
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.add_subplot()
    labels = [f"{row['workload']}\n{row['first']['nodes']:,} nodes" for row in rows]
    base = np.zeros(len(rows))
    for stage in (*STAGES, REST):
        heights = np.array([1000 * r["first"]["stages"][stage] / r["first"]["nodes"] for r in rows])
        axes.bar(labels, heights, bottom=base, label=stage)
        base += heights
    second = [1000 * r["second"]["total"] / r["first"]["nodes"] for r in rows]
    axes.plot(labels, second, "ko", label="second start")
    axes.set_ylabel("ms of processors a node")
    axes.tick_params(axis="x", labelsize=7)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1, 1))
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", help="workloads, with a semicolon between them")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench-out"))
    parser.add_argument("--start", help="start one workload in this process, and tell how")
    options = parser.parse_args()
    if options.start:
        confine(1, os.getpid())
        print(json.dumps(start(options.start)))
        return
    names = options.rows.split(";") if options.rows else ROWS
    rows = [measure(name, options.repeat) for name in names]
    made = tables(rows)
    for table in made:
        table.show()
    encoders = [row for row in rows if row["workload"].startswith("encoder")]
    line, notes = None, []
    if len(encoders) > 1:
        line = fit(encoders)
        told = "First steps of encoders: {ms_a_node:.3f} ms a node and {seconds:.2f} s, r² {r2:.4f}"
        notes.append(f"{told.format(**line)}.")
        print(notes[0])
    found = {
        "title": "Compiling", "machine": machine(), "workloads": {}, "notes": notes,
        "versions": {"flow2onnx": versions_of(VERSIONS)}, "fit": line, "rows": rows,
    }  # fmt: skip
    save(found, options.out / "compiling.json", made, draw)


if __name__ == "__main__":
    main()
