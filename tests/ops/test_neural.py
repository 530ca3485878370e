"""Layers, activations and masks beyond their rows: corners, draws, later keywords."""

import inspect

import numpy as np
import pytest

import flow2onnx as flow
from tests.ops.jobs import define, predict, run, watched_gradients
from tests.ops.reference import conv


def floats(*content):
    return np.asarray(content, np.float32)


def gradient(call, x):
    (y,) = predict(call, x)
    return watched_gradients(call, [x], [0], [np.ones_like(y)])["in0"]


@pytest.mark.parametrize(
    ("call", "x", "slopes"),
    [
        (lambda x: flow.nn.hardsigmoid(x), (-3, 3), (0, 0)),
        (lambda x: flow.nn.hardswish(x), (-3, 3), (0, 1)),
        (lambda x: flow.nn.hardtanh(x), (-1, 1), (0, 0)),
        (lambda x: flow.nn.relu6(x), (0, 6), (0, 0)),
        (lambda x: flow.nn.elu(x, 0.5), (0, -30), (0.5, 0)),
        (lambda x: flow.nn.L1Loss(x, x * 0, "none"), (0, 2), (-1, 1)),
        (lambda x: flow.smooth_l1_loss(x, x * 0, 0.5), (0, 0.5), (0, 1)),
    ],
    ids=["hardsigmoid", "hardswish", "hardtanh", "relu6", "elu", "L1Loss", "smooth_l1_loss"],
)
def test_at_the_corners(call, x, slopes):
    np.testing.assert_allclose(gradient(call, floats(*x)), slopes, atol=1e-6)


def test_large_logits_have_finite_losses():
    x, y = floats(200, -200), floats(0, 1)
    (loss,) = predict(lambda x, y: flow.nn.BCEWithLogitsLoss(x, y, reduction="none"), x, y)
    np.testing.assert_allclose(loss, [200, 200])


def test_no_divergence_where_nothing_is_wanted():
    x, y = floats(-1, -2, -3), floats(0, 0.5, 0)
    call = lambda x, y: flow.nn.KLDivLoss(x, y, reduction="none")  # noqa: E731
    (loss,) = predict(call, x, y)
    np.testing.assert_allclose(loss, [0, 0.5 * (np.log(0.5) + 2), 0], 1e-6)
    found = watched_gradients(call, [x, y], [0, 1], [np.ones(3, np.float32)])
    np.testing.assert_allclose(found["in0"], [0, -0.5, 0])
    assert np.isfinite(found["in1"]).all()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution_takes_the_bias_of_a_later_release(layout):
    rng = np.random.default_rng(3)
    x, w = (rng.normal(0, 1, s).astype(np.float32) for s in ((1, 4, 5, 6), (2, 4, 3, 3)))
    b = floats(0.5, -2)
    wanted = conv(x, w, (1, 1), (0, 0), (0, 0), (1, 1)) + b[:, None, None]
    given = (x, w) if layout == "NCHW" else [np.moveaxis(a, 1, -1).copy() for a in (x, w)]
    (y,) = predict(
        lambda x, w, b: flow.nn.conv2d(
            x, w, bias=b, strides=1, padding="VALID", data_format=layout
        ),
        *given,
        b,
    )
    np.testing.assert_allclose(y if layout == "NCHW" else np.moveaxis(y, -1, 1), wanted, 1e-4, 1e-4)
    assert "bias" not in inspect.signature(flow.nn.conv2d).parameters


def test_a_convolution_takes_the_positions_of_a_later_release():
    """0.6 put the bias before the layout; what stands there tells which is meant."""
    rng = np.random.default_rng(3)
    x, w = (rng.normal(0, 1, s).astype(np.float32) for s in ((1, 4, 5, 6), (2, 4, 3, 3)))
    wanted = conv(x, w, (1, 1), (0, 0), (0, 0), (1, 1))
    for place in (("NCHW", 1), (None, "NCHW", 1)):
        call = lambda x, w, place=place: flow.nn.conv2d(x, w, 1, "VALID", *place)  # noqa: E731
        (y,) = predict(call, x, w)
        np.testing.assert_allclose(y, wanted, 1e-4, 1e-4)


def trained(body, x):
    """The results of two calls of a train job."""

    def step(blob):
        v = flow.get_variable("v", x.shape, initializer=flow.zeros_initializer())
        y = body(blob + v)
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.0])
        flow.optimizer.SGD(rate, momentum=0).minimize(flow.math.reduce_sum(y))
        return y

    job = define(step, [x], "train")
    return [run(job, x)[0] for _ in range(2)]


def test_a_bias_and_dropout():
    x, bias = np.ones((64, 64), np.float32), np.full(64, 2, np.float32)

    def body(blob):
        b = flow.get_variable("b", (64,), initializer=flow.constant_initializer(2.0))
        return flow.nn.fused_bias_add_dropout(blob, b, rate=0.25, name="drop", seed=3)

    first, second = trained(body, x)
    assert bias[0] == 2
    np.testing.assert_allclose(np.unique(first), [0, 4], rtol=1e-6)
    assert abs((first == 0).mean() - 0.25) < 0.05
    assert (first != second).any()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_masks(dtype):
    x = np.zeros((200, 100), dtype)
    job = define(lambda blob: flow.nn.random_mask_like(blob, 0.3, seed=7, name="mask"), [x])
    first, second = (run(job, x)[0] for _ in range(2))
    for mask in (first, second):
        assert (mask.shape, mask.dtype) == (x.shape, np.int8)
        assert set(np.unique(mask)) == {0, 1}
        assert abs((mask == 0).mean() - 0.3) < 0.02
    assert (first != second).any()


def test_layers_have_variables_of_the_type_of_their_input():
    x = np.ones((2, 3), np.float64)
    (y,) = predict(
        lambda x: flow.layers.layer_norm(flow.layers.dense(x, 4, name="dense"), name="ln"), x
    )
    assert y.dtype == np.float64
    assert {v.numpy().dtype.name for v in flow.get_all_variables().values()} == {"float64"}
