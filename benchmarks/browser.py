"""Steps a second of a vision model in a browser, beside TensorFlow.js doing the same.

python -m benchmarks.browser [--model MODEL.onnx] [--rows NAME...] [--blocks 3] [--steps 5]

The same network, weights, batch and optimizer, on the same kind of backend in one page of Chromium;
blocks of steps by turns. TensorFlow.js is timed only if its losses of three steps are ours. Needs
npm in runtime/js and, once, `npm ci --ignore-scripts` in benchmarks/tfjs; without a GPU, WebGPU is
Chromium's adapter in software. Results go to benchmarks/results/browser.json and .md.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
from flow2onnx_runtime import save_safetensors
from onnx import numpy_helper

from benchmarks.contest import machine
from examples.vision_page.bundle import BATCH, both
from examples.vision_page.network import HEAD, LOGITS, Vision, adapt, small_mobilenet

HERE = Path(__file__).parent
ROOT = HERE.parent
TFJS = HERE / "tfjs"
BUILT = TFJS / "built"  # below the repository, as the page's server serves that
ROWS = {
    "head-wasm": {"depth": "head", "provider": "wasm", "backend": "wasm"},
    "blocks-wasm": {"depth": "blocks", "provider": "wasm", "backend": "wasm"},
    "blocks-cpu": {"depth": "blocks", "provider": "wasm", "backend": "cpu"},
    "head-webgpu": {"depth": "head", "provider": "webgpu", "backend": "webgpu"},
    "blocks-webgpu": {"depth": "blocks", "provider": "webgpu", "backend": "webgpu"},
}
TRAINED = {"head": "the last layer", "blocks": "the last blocks"}


def write(vision: Vision) -> None:
    """Write the bundles, and the network with its weights for TensorFlow.js."""
    BUILT.mkdir(exist_ok=True)
    for name, made in both(vision).items():
        made.save(BUILT / name, verify=False)
    graph = vision.model.graph
    tensors = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    used = {name for node in graph.node for name in node.input}
    floats = {n: a for n, a in tensors.items() if n in used and a.dtype == "float32" and a.ndim}
    save_safetensors(BUILT / "network.safetensors", floats)
    about = {
        "nodes": [_node(node) for node in graph.node],
        "input": vision.input, "output": LOGITS, "shape": vision.shape(BATCH),
        "classes": vision.classes, "trained": {"head": list(HEAD), "blocks": list(vision.blocks)},
    }  # fmt: skip
    (BUILT / "network.json").write_text(json.dumps(about), encoding="utf-8")


def _node(node: onnx.NodeProto) -> dict[str, Any]:
    """A node as the page needs it: operator, names, attributes."""
    found = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    kept = {name: found[name] for name in ("group", "strides", "pads", "epsilon") if name in found}
    return {"op": node.op_type, "inputs": list(node.input), "output": node.output[0], **kept}


def run(names: list[str], blocks: int, steps: int, threads: int) -> list[dict[str, Any]]:
    """The rows, measured one after another in Chromium."""
    rows = [{**ROWS[n], "blocks": blocks, "steps": steps, "threads": threads} for n in names]
    folder = f"/{BUILT.relative_to(ROOT).as_posix()}"
    command = ["node", str(TFJS / "run.mjs"), folder, json.dumps(rows)]
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            found.append(json.loads(line))
            print(_line(found[-1]), flush=True)
    if process.returncode:
        sys.exit(f"node ended with {process.returncode}")
    return found


def speed(blocks: list[list[float]]) -> float:
    """Steps a second by the median of all steps, given in milliseconds."""
    return 1000 / statistics.median(t for block in blocks for t in block)


def _line(row: dict[str, Any]) -> str:
    ours = speed(row["ours"])
    backend = "WebAssembly" if row["provider"] == "wasm" else "WebGPU"
    theirs = f"{speed(row['theirs']):.3g}" if row["theirs"] else f"cannot: {_why(row['problem'])}"
    ratio = f"{ours / speed(row['theirs']):.2f}" if row["theirs"] else "–"
    other = {"wasm": "WebAssembly", "cpu": "JavaScript", "webgpu": "WebGPU"}[row["backend"]]
    cells = (TRAINED[row["depth"]], backend, f"{ours:.3g}", other, theirs, ratio)
    return f"| {' | '.join(cells)} |"


def _why(problem: str) -> str:
    return problem.splitlines()[0][:90].rstrip(".")


def report(rows: list[dict[str, Any]], about: dict[str, Any]) -> str:
    """The page of the results."""
    head = (
        "| trained | flow2onnx on | steps/s | TensorFlow.js on | steps/s | ratio |\n"
        "|---|---|---:|---|---:|---:|"
    )
    facts = ", ".join(f"{name} {value}" for name, value in about.items())
    lines = [f"# Steps a second in Chromium\n\n{facts}\n", head, *map(_line, rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Build, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="a classifier; a small MobileNetV2 without one")
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--width", type=float, default=0.5)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "browser")
    options = parser.parse_args()
    if not (TFJS / "node_modules").is_dir():
        sys.exit(f"TensorFlow.js is missing: npm ci --ignore-scripts in {TFJS.relative_to(ROOT)}")
    model = onnx.load(options.model) if options.model else small_mobilenet(
        options.size, options.width
    )  # fmt: skip
    vision = adapt(model, 8, options.size, 4)
    write(vision)
    name = options.model.name if options.model else f"MobileNetV2 of width {options.width}"
    about = {
        "network": f"{name}, {vision.size} x {vision.size} pixels", "batch": BATCH,
        "threads": options.threads, "WebGPU": "in software", **machine(),
    }  # fmt: skip
    rows = run(options.rows, options.blocks, options.steps, options.threads)
    options.out.with_suffix(".json").write_text(
        json.dumps({"about": about, "rows": rows}, indent=1)
    )
    options.out.with_suffix(".md").write_text(report(rows, about))


if __name__ == "__main__":
    main()
