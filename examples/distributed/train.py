"""Learn whether points lie within a circle, on as many ranks as a launcher starts.

    python train.py FOLDER [--steps 400]        # one process
    torchrun --nproc-per-node 4 train.py FOLDER
    mpirun -n 4 python -m mpi4py train.py FOLDER

FOLDER keeps a checkpoint of every hundredth step, from the last of which the program goes on.
"""

import argparse
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

import flow2onnx as flow
import flow2onnx.typing as tp

BATCH, EVERY = 64, 100
Points = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH, 2))]
Labels = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH,), flow.int32)]


@flow.global_function(type="train")
def train_job(points: Points, labels: Labels) -> tp.Numpy:
    init = flow.random_normal_initializer(stddev=0.5)
    hidden = flow.layers.dense(points, 32, flow.nn.relu, kernel_initializer=init, name="hidden")
    logits = flow.layers.dense(hidden, 2, kernel_initializer=init, name="output")
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
    flow.optimizer.Adam(rate).minimize(loss)
    return loss


def batch(step: int) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The batch of a step: the same on every rank, and again after a restart."""
    points = np.random.default_rng(step).uniform(-1, 1, (BATCH, 2)).astype(np.float32)
    return points, (np.hypot(*points.T) < 0.7).astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description="Learn whether points lie within a circle.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=400)
    args = parser.parse_args()
    manager = flow.train.SimpleCheckPointManager(args.folder)
    manager.initialize_or_restore()
    first = int(flow.get_all_variables()["System-Train-TrainStep-train_job"].numpy()[0])
    rank, ranks = flow.distributed.get_rank(), flow.distributed.get_world_size()
    for step in range(first, args.steps):
        loss = train_job(*batch(step)).mean()
        if (step + 1) % EVERY == 0:
            manager.save()
            if rank == 0:
                print(f"step {step + 1} on {ranks} ranks: loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
