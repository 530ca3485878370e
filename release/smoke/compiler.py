"""flow2onnx: a job function trains, becomes a bundle, and the command line reads that."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from common import arguments, check_installed
from flow2onnx_runtime import Trainer

import flow2onnx as flow
import flow2onnx.typing as tp

INIT = flow.random_normal_initializer(0, 0.3)


@flow.global_function(type="train")
def train_job(
    points: tp.Numpy.Placeholder((32, 4)), classes: tp.Numpy.Placeholder((32,), dtype=flow.int32)
) -> tp.Numpy:
    """Learn which of four numbers is the largest."""
    hidden = flow.layers.dense(points, 16, flow.nn.relu, kernel_initializer=INIT, name="hidden")
    scores = flow.layers.dense(hidden, 4, kernel_initializer=INIT, name="scores")
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(classes, scores)
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.5])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss


@flow.global_function(type="predict")
def predict_job(points: tp.Numpy.Placeholder((32, 4))) -> tp.Numpy:
    """Answer with the same weights."""
    hidden = flow.layers.dense(points, 16, flow.nn.relu, kernel_initializer=INIT, name="hidden")
    return flow.layers.dense(hidden, 4, kernel_initializer=INIT, name="scores")


def main() -> None:
    """Train a job, export it, train the bundle, ask the command line."""
    number, _, work = arguments()
    check_installed(number, "flow2onnx", "flow2onnx_runtime")
    points = np.random.default_rng(0).standard_normal((32, 4), np.float32)
    classes = points.argmax(1).astype(np.int32)
    losses = [float(train_job(points, classes).mean()) for _ in range(40)]
    assert losses[-1] < losses[0] / 3, losses
    train_job.export(work / "bundle", predict=predict_job)
    trainer = Trainer(work / "bundle")
    first = float(trainer.step(points, classes)["out/0"].mean())
    assert first < 1.05 * losses[-1], "the bundle begins where the job is"
    command = Path(sys.executable).with_name("flow2onnx")
    for words in (["info", work / "bundle", "--json"], ["verify", work / "bundle", "--json"],
                  ["doctor", "--json"]):  # fmt: skip
        done = subprocess.run([command, *words], capture_output=True, text=True, cwd=work)
        assert done.returncode == 0, done.stdout + done.stderr
        json.loads(done.stdout)
    print(f"the loss went from {losses[0]:.2f} to {losses[-1]:.2f}, exported, verified")


main()
