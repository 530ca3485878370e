"""Blobs whose size is known at the call only: their upper bounds, and training through them."""

import numpy as np
import pytest

import flow2onnx as flow
from tests.ops.jobs import define, predict, run

X = np.asarray([[0, 1.5, 0], [2, 0, -1]], np.float32)
NOTHING = np.zeros_like(X)
RATE = 0.5


def trained(body, arrays, start, **how):
    """The losses of one step of SGD, and the variable ``w`` behind it."""
    flow.clear_default_session()

    def job(*blobs):
        w = flow.get_variable("w", start.shape, initializer=flow.zeros_initializer())
        loss = body(w, *blobs)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [RATE])
        flow.optimizer.SGD(rate, momentum=0, **how).minimize(loss)
        return loss

    step = define(job, arrays, "train")
    flow.load_variables({"w": start})
    loss = run(step, *arrays)
    return loss, flow.get_all_variables()["w"].numpy()


def found(w, x):
    return flow.gather_nd(w * x, flow.argwhere(x))


@pytest.mark.parametrize("x", [X, NOTHING, np.ones_like(X)])
def test_a_loss_is_divided_by_its_rows_at_the_call(x):
    (loss,), w = trained(found, [x], np.full((2, 3), 2, np.float32))
    rows = max(np.count_nonzero(x), 1)
    np.testing.assert_allclose(loss, 2 * x[x != 0])
    np.testing.assert_allclose(w, 2 - RATE * x / rows, rtol=1e-6)
