"""Milliseconds a node of tracing, gradients and passes, on a job of more than a thousand nodes.

    python -m benchmarks.compiling [--layers 60] [--repeat 5] [--json FILE]

Beside them what opening the job costs: the check of its model, the rewrite for native operators
where flow2onnx-native is installed, and the runtime's making of a session.
"""

import argparse
import importlib.util
import json
import time
from pathlib import Path

import onnxruntime as ort
from flow2onnx_runtime.extensions import GraphAnalysis
from rich.console import Console
from rich.table import Table

import flow2onnx as flow
import flow2onnx.typing as tp
from benchmarks.native import OPERATORS
from flow2onnx.analysis.in_place import index_origin, late_readers
from flow2onnx.compile.job import _name_outputs
from flow2onnx.engine.session import current_session
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.verify import verify
from flow2onnx.optim import append_training
from flow2onnx.passes import run_passes
from flow2onnx.trace.trace import trace

OPENING = ("verify", "native rewrite", "session")


def define(layers: int) -> str:
    @flow.global_function(type="train")
    def deep(
        x: tp.Numpy.Placeholder((8, 16)), labels: tp.Numpy.Placeholder((8,), dtype=flow.int32)
    ) -> tp.Numpy:
        for i in range(layers):
            h = flow.layers.dense(x, 16, activation=flow.math.tanh, name=f"dense{i}")
            x = x + h * 0.5
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, x)
        flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.001])).minimize(loss)
        return loss

    return deep.spec.name


def measure(name: str) -> tuple[dict[str, float], int]:
    session = current_session()
    target, clock = session.target(), time.perf_counter
    times, started = {}, clock()
    traced = trace(session.spec(name), None, target.opset, target.seed)
    times["trace"] = clock() - started
    started = clock()
    diffs = append_training(traced.job)
    _name_outputs(traced, diffs, target)
    times["gradients and update"] = clock() - started
    nodes = len(traced.job.b.nodes)
    started = clock()
    run_passes(traced.job.b.graph)
    times["passes"] = clock() - started
    started = clock()
    model = model_of(traced.job.b.graph)
    verify(model, target.kernels)
    times["verify"] = clock() - started
    if importlib.util.find_spec("flow2onnx_native") is not None:
        from flow2onnx_native.pipeline import rewrite_training

        analysis, started = GraphAnalysis(late_readers, index_origin), clock()
        rewrite_training(model, OPERATORS, 1, analysis, winograd=True)
        times["native rewrite"] = clock() - started
    content, started = model_bytes(model), clock()
    ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    times["session"] = clock() - started
    return times, nodes


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    name = define(options.layers)
    runs = [measure(name) for _ in range(options.repeat)]
    nodes = runs[0][1]
    best = {stage: min(times[stage] for times, _ in runs) for stage in runs[0][0]}
    table = Table(title=f"{nodes} nodes, best of {options.repeat}")
    for column in ("stage", "ms", "ms a node"):
        table.add_column(column, justify="right")
    best["compiling"] = sum(v for k, v in best.items() if k not in OPENING)
    for stage, seconds in best.items():
        table.add_row(stage, f"{1000 * seconds:.1f}", f"{1000 * seconds / nodes:.4f}")
    Console().print(table)
    if options.json:
        rows = {k: round(1000 * v / nodes, 4) for k, v in best.items()}
        options.json.write_text(json.dumps({"nodes": nodes, "ms_a_node": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
