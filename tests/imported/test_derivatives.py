"""jvp, vjp, hvp and jacobian of a model as a model."""

import numpy as np
import pytest
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, GradientError
from tests.imported import models
from tests.imported.test_grad import run

X = models.random(10, 2, 4)
W1, B1 = models.random(0, 4, 6), models.random(1, 6)
W2 = models.random(2, 6, 3)


def hidden(x):
    return np.tanh(x @ W1 + B1)


def test_jvp():
    along = models.random(11, 2, 4)
    made = run(flow.jvp(models.perceptron(2)), x=X, **{"tangent/x": along})
    assert list(made) == ["scores", "jvp/scores"]
    expected = ((1 - hidden(X) ** 2) * (along @ W1)) @ W2
    np.testing.assert_allclose(made["jvp/scores"], expected, rtol=1e-4, atol=1e-5)


def test_vjp_is_the_transpose():
    weight = models.random(12, 2, 3)
    made = run(
        flow.vjp(models.perceptron(2), keep_outputs=False), x=X, **{"cotangent/scores": weight}
    )
    assert list(made) == ["vjp/x"]
    expected = ((1 - hidden(X) ** 2) * (weight @ W2.T)) @ W1.T
    np.testing.assert_allclose(made["vjp/x"], expected, rtol=1e-4, atol=1e-5)


def test_hvp_with_free_batch_and_weights():
    along, bias = models.random(13, 2, 4), models.random(14, 6)
    model = flow.hvp(models.perceptron(), ["x", "fc1.bias"], keep_outputs=False)
    made = run(model, x=X, **{"tangent/x": along, "tangent/fc1.bias": bias})
    assert list(made) == ["grad/x", "grad/fc1.bias", "hvp/x", "hvp/fc1.bias"]
    a = hidden(X)
    slope, moved = 1 - a**2, along @ W1 + bias
    bend = -2 * a * slope * moved * W2.sum(1)
    np.testing.assert_allclose(made["grad/x"], (slope * W2.sum(1)) @ W1.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made["hvp/x"], bend @ W1.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(made["hvp/fc1.bias"], bend.sum(0), rtol=1e-4, atol=1e-5)


def test_hessian_of_what_is_linear_is_zero():
    made = run(
        flow.hvp(models.perceptron(2), "fc2.bias"), x=X, **{"tangent/fc2.bias": np.ones(3, "f4")}
    )
    np.testing.assert_array_equal(made["hvp/fc2.bias"], np.zeros(3))
    np.testing.assert_array_equal(made["grad/fc2.bias"], np.full(3, 2))


@pytest.mark.parametrize("batch", [2, None])
def test_jacobian(batch):
    made = run(flow.jacobian(models.perceptron(batch), ["x", "fc2.bias"]), x=X)
    assert list(made) == ["scores", "jacobian/scores/x", "jacobian/scores/fc2.bias"]
    slope = 1 - hidden(X) ** 2
    expected = np.einsum("bh,ho,ih,bc->boci", slope, W2, W1, np.eye(2))
    np.testing.assert_allclose(made["jacobian/scores/x"], expected, rtol=1e-4, atol=1e-5)
    by_bias = np.broadcast_to(np.eye(3), (2, 3, 3))
    np.testing.assert_allclose(made["jacobian/scores/fc2.bias"], by_bias)


def test_two_names_of_one_value_are_added():
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("Identity", ["y"], ["z"])]
    outputs = [models.info("y", [4]), models.info("z", [4])]
    model = models.model(nodes, [models.info("x", [4])], outputs)
    x = models.random(3, 4)
    np.testing.assert_allclose(run(flow.grad(model), x=x)["grad/x"], 2 * np.exp(x), rtol=1e-6)
    made = run(flow.jvp(model), x=x, **{"tangent/x": np.ones(4, "f4")})
    np.testing.assert_allclose(made["jvp/z"], np.exp(x), rtol=1e-6)


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="vjp or jvp"):
        flow.jacobian(models.perceptron(1 << 14), "x")
    with pytest.raises(ArgumentError, match="no output 'z'"):
        flow.jvp(models.perceptron(2), outputs="z")
    with pytest.raises(ArgumentError, match="no input 'y'"):
        flow.vjp(models.perceptron(2), inputs={"y": (2, 3)})
    nodes = [helper.make_node("ArgMax", ["x"], ["k"]), helper.make_node("Cast", ["k"], ["r"], to=1)]
    flat = models.model(nodes, [models.info("x", [4])], [models.info("r", [1])])
    for derive in (flow.hvp, flow.jacobian, flow.vjp):
        with pytest.raises(GradientError, match="no gradient reaches x"):
            derive(flat)
    with pytest.raises(GradientError, match="depends on none of x"):
        flow.jvp(flat)


def test_forward_mode_through_convolutions_of_any_batch():
    """The convolution that computes a kernel's gradient has the batch among its channels."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1], strides=[2, 2])]
    tensors = [models.tensor("w", models.random(0, 4, 2, 3, 3))]
    x, along = models.random(1, 3, 2, 6, 6), models.random(2, 4, 2, 3, 3)
    found = [
        run(
            flow.jvp(
                models.model(nodes, [models.info("x", [n, 2, 6, 6])],
                             [models.info("y", [n, 4, 3, 3])], tensors),
                "w",
            ),
            x=x, **{"tangent/w": along},
        )["jvp/y"]
        for n in (3, "n")
    ]  # fmt: skip
    np.testing.assert_allclose(found[1], found[0], rtol=1e-4, atol=1e-5)
