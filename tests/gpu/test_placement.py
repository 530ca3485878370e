"""Train steps run on CUDA whole: no node on the CPU, and no copy but feeds and results."""

from collections import Counter

import numpy as np
import pytest
from flow2onnx_runtime import assigned_nodes, kernels
from flow2onnx_runtime.model_check import OwnModel

import flow2onnx as flow
from benchmarks import gpu
from benchmarks.peers import Options
from benchmarks.peers.flow2onnx import training
from benchmarks.workloads import workload
from flow2onnx.api.session import current_session
from flow2onnx.graph.model import model_bytes
from models import dcgan
from tests.gpu import standin
from tests.models.zoo import ROWS

CUDA = "CUDAExecutionProvider"


def elsewhere(job):
    """The operators of a job's step, counted, that CUDA leaves to others; copies among them."""
    return left_to_others(current_session().opening(job.spec.name))


def left_to_others(opening):
    """The same of an opening."""
    content = OwnModel(model_bytes(opening.model))
    nodes = assigned_nodes(content, opening.options)
    assert nodes
    return Counter(n.op_type for n in nodes if n.provider != CUDA)


@pytest.mark.parametrize(
    "row",
    [pytest.param(r, id=r.name, marks=[pytest.mark.slow] if r.is_slow else []) for r in ROWS],
)
def test_a_step_of_the_zoo_is_on_cuda(row):
    jobs = row.small()
    assert not elsewhere(jobs.train)


def test_a_step_of_a_generator_is_on_cuda():
    jobs = dcgan.jobs(batch=4, rate=1e-3, channels=16)
    assert not elsewhere(jobs.train_generator)
    assert not elsewhere(jobs.train_discriminator)


@pytest.mark.parametrize("precision", gpu.PRECISIONS[1:])
@pytest.mark.parametrize(
    "row", [pytest.param(r, marks=[pytest.mark.slow] if r == "resnet50" else []) for r in gpu.ROWS]
)
def test_a_step_of_the_benchmarks_is_on_cuda(row, precision):
    work = workload(gpu.ROWS[row][2])  # of the same nodes as the large one
    values, data = work.variables() | work.state(), work.data()
    training(work, values, data, Options(device="cuda", precision=precision))
    (name,) = current_session().job_names()
    assert not left_to_others(current_session().opening(name))


def test_a_step_copies_its_feeds_and_results_and_nothing_else(step):
    train, x, labels = step
    train(x, labels)
    standin.reset()
    train(x, labels)
    counts = standin.report()
    assert counts["to_device"]["bytes"] == x.nbytes + labels.nbytes
    assert counts["to_host"]["bytes"] == 4 * len(x)
    assert not counts["allocations"]
    assert not counts["violations"]


def test_kernels_are_known_where_tensorrt_is_missing():
    table = kernels(CUDA)
    assert table.is_known
    assert not table.has("Unique")


@pytest.fixture
def step():
    @flow.global_function(type="train")
    def train(
        x: flow.typing.Numpy.Placeholder((4, 8)),
        labels: flow.typing.Numpy.Placeholder((4,), dtype=flow.int32),
    ) -> flow.typing.Numpy:
        w = flow.get_variable("w", (8, 5), initializer=flow.ones_initializer())
        y = flow.matmul(x, w)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, y)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
        return loss

    return train, np.ones((4, 8), np.float32), np.arange(4, dtype=np.int32)
