"""Train from a checkpoint to the next: ``checkpoints.py KIND STEPS FOLDER [FROM]``.

State lies in parts: slots, of kind "zero", or variables too, "split". Every rank also writes what
it reads of them into FOLDER.
"""

import sys
from pathlib import Path

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

kind, steps, folder, start = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]
config, split = flow.function_config(), dict[int, object]()
if kind == "zero":
    config.enable_non_distributed_optimizer(True)
    config.optimizer_placement_optimization_threshold(4)
else:
    split = {axis: flow.distribute.split(axis) for axis in (0, 1)}


@flow.global_function(type="train", function_config=config)
def job(x: tp.Numpy.Placeholder((8, 5))) -> tp.Numpy:
    normal = flow.random_normal_initializer()
    w = flow.get_variable("w", (5, 7), initializer=normal, distribute=split.get(1))
    b = flow.get_variable("b", (7,), initializer=normal, distribute=split.get(0))
    h = flow.nn.bias_add(flow.matmul(x, w), b)
    h = h * flow.get_variable("s", (1,), initializer=normal)  # too small to be in parts
    loss = flow.math.reduce_sum(flow.math.square(h), axis=[1])
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.01])
    flow.optimizer.Adam(rate, do_bias_correction=True).minimize(loss)
    return loss


if start:
    flow.load_variables(flow.checkpoint.get(start[0]))
found = {name: v.numpy() for name, v in flow.get_all_variables().items()}
first = int(found["System-Train-TrainStep-job"][0])
for step in range(first, first + steps):
    job(np.random.default_rng(step).normal(size=(8, 5)).astype(np.float32))
folder.mkdir(exist_ok=True)
flow.checkpoint.save(folder / "saved")
flow.checkpoint.save(folder / "saved.safetensors")
np.savez(folder / f"read-{flow.distributed.get_rank()}.npz", **found)
