"""flow.grad: gradients as a model."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, DTypeError, GradientError
from tests.imported import models

X = models.random(10, 2, 4)


def run(model, **feeds):
    session = ort.InferenceSession(model.SerializeToString())
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


def test_the_gradient_of_the_sum_of_outputs():
    made = run(flow.grad(models.perceptron(2)), x=X)
    w1, w2 = models.random(0, 4, 6), models.random(2, 6, 3)
    a = np.tanh(X @ w1 + models.random(1, 6))
    expected = ((1 - a**2) * w2.sum(1)) @ w1.T
    assert set(made) == {"scores", "grad/x"}
    np.testing.assert_allclose(made["grad/x"], expected, rtol=1e-4, atol=1e-6)


def test_seeds_weigh_and_patterns_choose_tensors():
    model = flow.grad(
        models.perceptron(), ["*.bias", "x"], seeds=True, inputs={"x": (2, 4)}, keep_outputs=False
    )
    seed = models.random(11, 2, 3)
    made = run(model, **{"x": X, "seed/scores": seed})
    assert list(made) == ["grad/fc1.bias", "grad/fc2.bias", "grad/x"]
    np.testing.assert_allclose(made["grad/fc2.bias"], seed.sum(0), rtol=1e-5)


def test_a_free_batch_stays_free():
    model = flow.grad(models.perceptron(), ["x", "fc1.bias"])
    for rows in (1, 3):
        made = run(model, x=models.random(10, rows, 4))
        assert made["grad/x"].shape == (rows, 4)
        fixed = run(
            flow.grad(models.perceptron(rows), ["x", "fc1.bias"]), x=models.random(10, rows, 4)
        )
        np.testing.assert_allclose(made["grad/x"], fixed["grad/x"], rtol=1e-6)
        np.testing.assert_allclose(made["grad/fc1.bias"], fixed["grad/fc1.bias"], rtol=1e-5)


def test_what_has_no_gradient():
    model = models.perceptron(2)
    with pytest.raises(ArgumentError, match=r"did you mean fc1\.bias"):
        flow.grad(model, "fc1.bia")
    with pytest.raises(ArgumentError, match="no output 'z'"):
        flow.grad(model, outputs="z")
    node = helper.make_node("ArgMax", ["x"], ["k"])
    whole = models.model([node], [models.info("x", [4])], [models.info("k", [1], models.I)])
    with pytest.raises(DTypeError, match="no output of a real type"):
        flow.grad(whole)
    with pytest.raises(DTypeError, match="output k is int64"):
        flow.grad(whole, outputs="k")
    nodes = [helper.make_node("Cast", ["k"], ["r"], to=1)]
    flat = models.model([node, *nodes], [models.info("x", [4])], [models.info("r", [1])])
    with pytest.raises(GradientError, match="no gradient reaches x"):
        flow.grad(flat)


def test_every_axis_may_be_free():
    model = flow.grad(models.sentences("batch", "length"), ["x", "w", "r", "k"])
    for batch, length in ((1, 4), (3, 7), (2, 12)):
        x = models.random(batch + length, batch, length, 2)
        free = run(model, x=x)
        fixed = run(flow.grad(models.sentences(batch, length), ["x", "w", "r", "k"]), x=x)
        for name, wanted in fixed.items():
            np.testing.assert_allclose(free[name], wanted, rtol=1e-4, atol=1e-5, err_msg=name)
