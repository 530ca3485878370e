"""Train 16 million weights with Adam: ``large.py whole|parts``.

It prints the MiB of slots, of all state, and of the peak of this rank's process.
"""

import resource
import sys

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session

WIDTH, LAYERS, STEPS = 2048, 4, 3
_MEBIBYTE = 2**20


def memory(mode):
    """The MiB of slots and of all state that this rank has, and the peak of its process."""
    config = flow.function_config()
    if mode == "parts":
        config.enable_non_distributed_optimizer(True)

    @flow.global_function(type="train", function_config=config)
    def job(x: tp.Numpy.Placeholder((8, WIDTH))) -> tp.Numpy:
        for i in range(LAYERS):
            w = flow.get_variable(
                f"w{i}", (WIDTH, WIDTH), initializer=flow.random_normal_initializer(stddev=0.02)
            )
            x = flow.math.tanh(flow.matmul(x, w))
        loss = flow.math.reduce_mean(flow.math.square(x), axis=[1])
        rate = flow.optimizer.PiecewiseConstantScheduler([], [1e-3])
        flow.optimizer.Adam(rate).minimize(loss)
        return loss

    for step in range(STEPS):
        job(np.random.default_rng(step).normal(size=(8, WIDTH)).astype(np.float32))
    session = current_session()
    slots = [v for v in session.variables.values() if v.role == "slot"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sizes = sum(v.nbytes for v in slots), session.state.nbytes(), peak
    return [size / _MEBIBYTE for size in sizes]


print(*memory(sys.argv[1]))
