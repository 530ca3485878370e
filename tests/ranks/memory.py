"""The table of memory by ranks, with and without ZeRO-1: ``python -m tests.ranks.memory [ENGINE]``.

Adam trains 16 million weights. The state is what a rank keeps of weights and slots, in the buffers
that there are; the peak is of the whole process, as the system counts it. ENGINE is torch, mpi or
mpich.
"""

import resource
import sys

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.engine.session import current_session
from tests.ranks.ranks import ends, start, start_ranks

COUNTS, MODES = (1, 2, 4), ("whole", "parts")
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


def main(engine):
    """Print the table."""
    print("| ranks | state | slots of a rank | all state of a rank | peak of a process |")
    print("|---|---|---|---|---|")
    for count in COUNTS:
        for mode in MODES:
            arguments = ["-m", "tests.ranks.memory", mode]
            alone = count == 1
            processes = (
                [start(engine, arguments)] if alone else start_ranks(count, arguments, engine)
            )
            results = ends(processes, 1800)
            assert all(status == 0 for status, _, _ in results), results
            texts = " ".join(out for _, out, _ in results).split()
            found = np.max(np.array(texts, np.float64).reshape(-1, 3), axis=0)
            cells = " | ".join(f"{mebibytes:.0f} MiB" for mebibytes in found)
            print(f"| {count} | {mode} | {cells} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in MODES:
        print(*memory(sys.argv[1]))
    else:
        main(sys.argv[1] if sys.argv[1:] else "torch")
