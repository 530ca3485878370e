"""A training in which one rank does something wrong: ``faulty.py FAULT RANK FOLDER``.

It writes a checkpoint after each fourth step, and goes on from the newest. Ranks that are to run
another thing than the rest, or fail before they meet, do so at once; others at one step.
"""

import os
import resource
import signal
import sys
import time
from pathlib import Path

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

STEPS, FAULTY_STEP = 12, 7
fault, who, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
rank = flow.distributed.get_rank()
is_faulty = rank == who and not (folder / "recovered").exists()
WIDTH = 2 if fault == "differ" and is_faulty else 3
config = flow.function_config()
if is_faulty:
    match fault:
        case "early":
            raise ValueError("no data yet")
        case "absent":
            time.sleep(1000)
        case "config":
            config.enable_all_reduce_group(False)
        case "settings":
            flow.config.random_seed(7)
        case "version":
            np.__version__ = "0.1"


@flow.global_function(type="train", function_config=config)
def job(x: tp.Numpy.Placeholder((8, 4))) -> tp.Numpy:
    w = flow.get_variable("w", (4, WIDTH), initializer=flow.random_normal_initializer())
    loss = flow.math.reduce_sum(flow.math.square(flow.matmul(x, w)), axis=[1])
    flow.optimizer.Adam(flow.optimizer.PiecewiseConstantScheduler([], [0.01])).minimize(loss)
    return loss


def misbehave():
    print("the fault is now", file=sys.stderr, flush=True)
    match fault:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash":
            os.abort()
        case "save":  # in the middle of the next one
            os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
        case "disk":  # which takes no more: errors of writing are those of a full one
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "once":
            (folder / "recovered").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ValueError("no more data")
        case "hang":
            time.sleep(1000)
        case "exit":
            sys.exit(3)
        case "leave":
            sys.exit(0)


manager = flow.train.SimpleCheckPointManager(folder / "saved")
manager.initialize_or_restore()
counter = flow.get_all_variables()["System-Train-TrainStep-job"]
first = int(counter.numpy()[0])
for step in range(first, STEPS):
    if step == FAULTY_STEP and is_faulty:
        misbehave()
    job(np.random.default_rng(step).normal(size=(8, 4)).astype(np.float32))
    if step % 4 == 3:
        manager.save()
arrays = {name: v.numpy() for name, v in flow.get_all_variables().items()}
np.savez(folder / f"end-{rank}.npz", first=first, **arrays)
