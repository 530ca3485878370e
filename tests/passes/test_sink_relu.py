"""A ReLU before a pool: behind it in train jobs, with the same results and gradients."""

import numpy as np
import pytest

import flow2onnx as flow
from flow2onnx.compile import Target, compile_job
from flow2onnx.compile import job as compiling
from flow2onnx.engine.session import current_session
from models.lenet import network
from tests.ops.jobs import define, run

X = np.asarray([[-1, -1, 2, 2, 0, 0], [-1, -1, 2, 1, 0, -3]] * 2, np.float32)[None, None]


def body(options, extra, x):
    """A train job on v (all ones) whose pool may read past the ReLU."""
    v = flow.get_variable("v", x.shape, initializer=flow.ones_initializer())
    h = flow.math.relu(x * v)
    y = flow.nn.max_pool2d(h, **options)
    rate = flow.optimizer.PiecewiseConstantScheduler([], [1.0])
    flow.optimizer.SGD(rate, momentum=0).minimize(flow.math.reduce_sum(y * y))
    return extra(h, y)


def ignored(shown):
    """A handler that does nothing."""


def order():
    compiled = compile_job(current_session().spec("job"), None, Target())
    return [n.op_type for n in compiled.model.graph if n.op_type in ("Relu", "MaxPool")]


def trained(options):
    job = define(lambda x: body(options, lambda h, y: y * 2, x), [X], "train")
    kinds = order()[:2]
    (y,) = run(job, X)
    return kinds, y, flow.get_all_variables()["v"].numpy()


@pytest.mark.parametrize(
    "options",
    [
        {"ksize": 2, "strides": 2, "padding": "VALID"},
        {"ksize": 3, "strides": 1, "padding": "SAME"},
    ],
    ids=["tiles", "overlap"],
)
def test_results_and_gradients_are_the_same(options, monkeypatch):
    kinds, y, v = trained(options)
    assert kinds == ["MaxPool", "Relu"]
    flow.clear_default_session()
    monkeypatch.setattr(compiling, "sink_relu", lambda b, kept: None)
    kinds, wanted_y, wanted_v = trained(options)
    assert kinds[0] == "Relu"
    np.testing.assert_array_equal(y, wanted_y)
    np.testing.assert_array_equal(v, wanted_v)


@pytest.mark.parametrize(
    "extra",
    [
        lambda h, y: h,
        lambda h, y: y,
        lambda h, y: flow.watch(h, ignored) or y * 2,
        lambda h, y: flow.watch_diff(y, ignored) or y * 2,
        lambda h, y: flow.math.abs(h) * 2,
        lambda h, y: flow.math.abs(y) * 2,
    ],
    ids=["result-relu", "result-pool", "watch", "watch-diff", "two-readers", "own-gradient"],
)
def test_what_something_refers_to_stays(extra):
    options = {"ksize": 2, "strides": 2, "padding": "VALID"}
    define(lambda x: body(options, extra, x), [X], "train")
    assert order()[0] == "Relu"


def test_lenet_is_rewritten():
    def step(images):
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        loss = network(images)
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    define(step, [np.zeros((2, 1, 28, 28), np.float32)], "train")
    assert order()[:4] == ["MaxPool", "Relu"] * 2
