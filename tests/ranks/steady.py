"""A training that goes on from its newest checkpoint: ``steady.py FOLDER [STEPS [MOST]]``.

Each rank writes the digest of all variables at its first step, at every checkpoint and at its end,
which is after MOST steps of its own at the latest.
"""

import hashlib
import sys
from pathlib import Path

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

EVERY = 10
folder = Path(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 300
most = int(sys.argv[3]) if len(sys.argv) > 3 else steps
rank = flow.distributed.get_rank()


@flow.global_function(type="train")
def job(x: tp.Numpy.Placeholder((8, 16))) -> tp.Numpy:
    w = flow.get_variable("w", (16, 8), initializer=flow.random_normal_initializer())
    loss = flow.math.reduce_sum(flow.math.square(flow.matmul(x, w)), axis=[1])
    flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.01])).minimize(loss)
    return loss


def tell(what, step):
    found = flow.get_all_variables()
    content = b"".join(found[name].numpy().tobytes() for name in sorted(found))
    with (folder / f"digests-{rank}").open("a") as file:
        file.write(f"{what} {step} {hashlib.sha256(content).hexdigest()}\n")


manager = flow.train.SimpleCheckPointManager(folder / "saved")
manager.initialize_or_restore()
first = int(flow.get_all_variables()["System-Train-TrainStep-job"].numpy()[0])
tell("first", first)
last = min(steps, first + most)
for step in range(first, last):
    job(np.random.default_rng(step).normal(size=(8, 16)).astype(np.float32))
    if (step + 1) % EVERY == 0:
        manager.save()
        tell("saved", step + 1)
tell("end", last)
