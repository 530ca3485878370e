"""Operators whose results have a size known at the call only, and writes to variables."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from tests.ops.jobs import define, predict, run, watched_gradients

GRID = np.asarray([[0, 1.5, 0], [2, 0, -1]], np.float32)


@pytest.mark.parametrize("find", [flow.argwhere, flow.where])
def test_argwhere_finds_as_many_as_there_are(find):
    job = define(find, [GRID])
    for x in (GRID, np.zeros_like(GRID), np.ones_like(GRID)):
        (y,) = run(job, x)
        np.testing.assert_array_equal(y, np.argwhere(x))
        assert y.shape == (np.count_nonzero(x), 2)
        assert y.dtype == np.int32


def test_what_is_found_goes_on():
    def body(x):
        places = flow.argwhere(x)
        assert places.is_dynamic
        found = flow.gather_nd(x, places)
        return [
            found,
            flow.elem_cnt(found),
            flow.math.relu(found),
            flow.dynamic_reshape(found, (-1, 1)),
        ]

    found, count, relu, column = predict(body, GRID)
    np.testing.assert_array_equal(found, [1.5, 2, -1])
    np.testing.assert_array_equal(count, [3])
    np.testing.assert_array_equal(relu, [1.5, 2, 0])
    assert column.shape == (3, 1)


def test_not_finite():
    x = np.asarray([1, np.inf, np.nan, -np.inf, 0], np.float32)
    found, both = predict(
        lambda a, b: [flow.count_not_finite(a), flow.multi_count_not_finite([a, b, a])], x, x[:2]
    )
    assert (found.tolist(), both.tolist(), both.dtype) == ([3], [7], np.int64)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_in_top_k_knows_what_it_cannot_say(dtype):
    scores = np.asarray([[1, 2, 2], [1, np.inf, 0], [np.nan, 1, 2], [3, 2, 1], [3, 2, 1]], dtype)
    targets = np.asarray([1, 0, 1, 5, -1], np.int32)
    (y,) = predict(lambda t, p: flow.math.in_top_k(t, p, k=1), targets, scores)
    np.testing.assert_array_equal(y, [1, 0, 0, 0, 0])


def test_lgamma_at_its_poles():
    x = np.asarray([0, -1, -2, 1, 2, 0.5, 1e-3, 50, -2.5], np.float64)
    (y,) = predict(flow.math.lgamma, x)
    wanted = [np.inf] * 3 + [0, 0, 0.5723649429247001, 6.907178885383853, 144.5657439463449,
                             -0.05624371649767405]  # fmt: skip
    np.testing.assert_allclose(y, wanted, atol=1e-13)


def test_atan2_in_every_quadrant():
    x, y = (g.ravel() for g in np.meshgrid([-2.0, -0.0, 0.0, 0.5], [-1.0, 0.0, 3.0]))
    (found,) = predict(flow.math.atan2, x, y)
    np.testing.assert_allclose(found, np.arctan2(x + 0.0, y), atol=1e-15)


def test_indexed_slices_reduce_sum():
    indices = np.asarray([[7, 2, 7], [0, 2, 7]], np.int32)
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    different, total, count = predict(flow.experimental.indexed_slices_reduce_sum, indices, values)
    assert different[: count.item()].tolist() == [7, 2, 0]
    np.testing.assert_array_equal(total[0], values[indices == 7].sum(0))
    np.testing.assert_array_equal(total[3:], 0)
    assert (different.shape, total.shape, different.dtype) == ((6,), (6, 4), np.int32)


def test_logical_slice_assign():
    @flow.global_function()
    def job(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        v = flow.get_variable("v", (2, 3), initializer=flow.ones_initializer())
        flow.experimental.logical_slice_assign(v, x, [(1, 2, None), (0, 2, None)])
        return v

    with pytest.raises(ValueError, match="update is"):
        job(np.zeros(2, np.float32))
    flow.clear_default_session()

    @flow.global_function()
    def write(x: tp.Numpy.Placeholder((1, 2))) -> tp.Numpy:
        v = flow.get_variable("v", (2, 3), initializer=flow.ones_initializer())
        flow.experimental.logical_slice_assign(v, x, [(1, 2, None), (0, 2, None)])
        return flow.identity(v)

    write(np.asarray([[5, 6]], np.float32))
    assert flow.get_all_variables()["v"].numpy().tolist() == [[1, 1, 1], [5, 6, 1]]


@pytest.mark.parametrize("name", ["math.lgamma", "math.sigmoid_grad", "math.gelu_grad"])
def test_no_gradient(name):
    def body(x):
        v = flow.get_variable("v", (3,), initializer=flow.ones_initializer())
        function = flow
        for part in name.split("."):
            function = getattr(function, part)
        y = function(v, x) if name.endswith("_grad") else function(v)
        still = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
        flow.optimizer.SGD(still, momentum=0).minimize(y)
        return y

    with pytest.raises(NotImplementedError, match="GradientFunctionNotFound"):
        run(define(body, [np.ones(3, np.float32)], "train"), np.ones(3, np.float32))


def test_slopes_where_x_is_0():
    """OneFlow gives 1/y and ln y there, though the value is 0 whatever y."""
    x, y, seed = np.zeros(2), np.asarray([2.0, 4.0]), np.ones(2)
    found = watched_gradients(flow.math.xdivy, [x, y], [0, 1], [seed])
    np.testing.assert_allclose(found["in0"], 1 / y)
    np.testing.assert_array_equal(found["in1"], [0, 0])
    found = watched_gradients(flow.math.xlogy, [x, y], [0, 1], [seed])
    np.testing.assert_allclose(found["in0"], np.log(y))
