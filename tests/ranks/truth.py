"""Write what a rank is told of its surroundings, as JSON: ``truth.py FOLDER``."""

import json
import sys
from pathlib import Path

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

found = {}


@flow.global_function(type="train")
def job(x: tp.Numpy.Placeholder((8, 2))) -> tp.Numpy:
    found["parallel_num"] = flow.current_scope().parallel_num
    w = flow.get_variable("w", (2, 1), initializer=flow.ones_initializer())
    loss = flow.matmul(x, w)
    flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
    return loss


losses = job(np.arange(16, dtype=np.float32).reshape(8, 2))
found |= {
    "losses": losses.ravel().tolist(),
    "w": flow.get_all_variables()["w"].numpy().ravel().tolist(),
    "rank": flow.distributed.get_rank(),
    "size": flow.distributed.get_world_size(),
    "machine": flow.current_machine_id(),
    "machine_num": flow.current_resource()["machine_num"],
}
(Path(sys.argv[1]) / f"{found['rank']}.json").write_text(json.dumps(found))
