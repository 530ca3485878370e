"""The memory that training an imported model takes, by the size of its weights.

    python -m benchmarks.import_memory                # 2.3 GB of weights in a file of their own
    python -m benchmarks.import_memory --megabytes 256

writes a perceptron with external data to a temporary folder, and in a process of its own reads it,
makes it trainable by plain SGD and takes two steps. Printed are the peaks of resident memory up to
each part, beyond what the imports of Python alone take, and by the size of the weights.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.worker import peak_mb

WIDTH = 4096
BATCH = 4
WEIGHTS = "weights.data"


def write_perceptron(folder: Path, layers: int, width: int = WIDTH) -> Path:
    """Write square layers with ReLU between; the weights go to a file beside the model."""
    rng = np.random.default_rng(0)
    nodes, tensors, x = [], [], "x"
    size = width * width * 4
    with (folder / WEIGHTS).open("wb") as file:
        for i in range(layers):
            tensor = TensorProto(name=f"fc{i}.weight", data_type=TensorProto.FLOAT)
            tensor.dims.extend((width, width))
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", WEIGHTS), ("offset", i * size), ("length", size)):
                tensor.external_data.add(key=key, value=str(value))
            file.write(rng.standard_normal((width, width), np.float32) * np.float32(width**-0.5))
            tensors.append(tensor)
            nodes.append(helper.make_node("MatMul", [x, tensor.name], [f"h{i}"]))
            nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
            x = f"r{i}"
    nodes[-1].output[0] = "y"
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", width]) for n in "xy"]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def measure(path: Path, optimizer: str) -> dict[str, float]:
    """The peaks of resident memory in bytes by part, in a new process."""
    command = [sys.executable, "-m", "benchmarks.import_memory", "--child", str(path)]
    done = subprocess.run(
        [*command, "--optimizer", optimizer], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _train(path: str, optimizer: str) -> dict[str, float]:
    import flow2onnx as flow

    flow.make_trainable(_small(), "mse", optimizer, lr=0.01).trainer().step(*_batch(8))
    peaks = {"imports": 2**20 * peak_mb()}
    made = flow.make_trainable(path, "mse", optimizer, lr=0.01)
    peaks["make_trainable"] = 2**20 * peak_mb()
    trainer = made.trainer()
    peaks["trainer"] = 2**20 * peak_mb()
    width = trainer.feeds[0].shape[1]
    for _ in range(2):
        trainer.step(*_batch(width))
    peaks["steps"] = 2**20 * peak_mb()
    return {part: peak - peaks["imports"] for part, peak in peaks.items() if part != "imports"}


def _small() -> onnx.ModelProto:
    with tempfile.TemporaryDirectory() as folder:
        return onnx.load(write_perceptron(Path(folder), 1, 8))


def _batch(width: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, BATCH, width), np.float32)
    return x, y


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=2300, help="of weights")
    parser.add_argument("--optimizer", default="sgd")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(_train(asked.child, asked.optimizer)))
        return
    layers = max(1, round(asked.megabytes * 1e6 / (WIDTH * WIDTH * 4)))
    size = layers * WIDTH * WIDTH * 4
    with tempfile.TemporaryDirectory() as folder:
        peaks = measure(write_perceptron(Path(folder), layers), asked.optimizer)
    print(f"{size / 1e9:.2f} GB of weights, {asked.optimizer}")
    for part, peak in peaks.items():
        print(f"  up to {part:15} {peak / 1e9:5.2f} GB  {peak / size:.2f} x the weights")


if __name__ == "__main__":
    main()
