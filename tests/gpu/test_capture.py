"""Steps captured as CUDA graphs: one launch each, nothing else asked of the device."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.gpu import standin
from tests.models.zoo import ROWS

# The deep ones take minutes to capture; their operators are those of the others.
NAMES = ("mlp", "lenet", "alexnet", "bert", "gpt", "wide_deep")


@pytest.mark.parametrize("row", [r for r in ROWS if r.name in NAMES], ids=lambda r: r.name)
def test_a_captured_step_of_the_zoo_is_one_launch(row):
    train = row.small().train
    train.spec.config.runtime.enable_cuda_graph(True)
    feed = row.feed()
    for _ in range(3):  # both captures, of either set of buffers, and a replay
        train(*feed)
    standin.reset()
    train(*feed)
    counts = standin.report()
    assert (counts["graph_launches"], counts["captures"]) == (1, 0)
    assert not counts["kernels"]
    assert not counts["allocations"]
    assert not counts["violations"]
    assert counts["to_device"]["bytes"] == sum(np.asarray(a).nbytes for a in feed)


def test_a_replay_counts_its_step():
    config = flow.function_config()
    config.runtime.enable_cuda_graph(True)

    @flow.global_function(type="train", function_config=config)
    def train(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
        w = flow.get_variable("w", (3, 1), initializer=flow.ones_initializer())
        loss = flow.math.reduce_mean(flow.nn.dropout(flow.matmul(x, w), rate=0.5))
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1])).minimize(loss)
        return loss

    for _ in range(4):
        train(np.ones((4, 3), np.float32))
    names = {node["operator"] for node in train.session.opening("train").job.structure()}
    assert "Dropout" not in names
    assert "Mod" in names  # of the hash of the step
