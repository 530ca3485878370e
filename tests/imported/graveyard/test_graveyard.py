"""Models that the training packages refused: trained, and their gradients against differences.

The differences are of the model as it is, in double precision, by the standard's own reference.
"""

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import flow2onnx as flow
from tests.imported.graveyard.requests import REQUESTS

RATE, STEP = 0.05, 1e-5
NAMES = sorted(REQUESTS)


def in_double(model):
    """The model with all of its real numbers in double precision."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    tensors = [*wide.graph.initializer, *(a.t for n in wide.graph.node for a in n.attribute)]
    for tensor in tensors:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            content = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(content, tensor.name))
    for node in wide.graph.node:
        if node.op_type == "Cast":
            node.attribute[0].i = onnx.TensorProto.DOUBLE
        if node.op_type == "Resize":  # its scales are single in any case
            scales = next(n for n in wide.graph.node if n.output[0] == node.input[2])
            content = onnx.numpy_helper.to_array(scales.attribute[0].t).astype(np.float32)
            scales.attribute[0].t.CopyFrom(onnx.numpy_helper.from_array(content, "scales"))
    for value in (*wide.graph.input, *wide.graph.output):
        kind = value.type.tensor_type
        if kind.elem_type == onnx.TensorProto.FLOAT:
            kind.elem_type = onnx.TensorProto.DOUBLE
    del wide.graph.value_info[:]
    return wide


def loss_at(asked, wide, shifts, size):
    """The loss of the model with its weights moved, in double precision."""
    moved = onnx.ModelProto()
    moved.CopyFrom(wide)
    for tensor in moved.graph.initializer:
        content = onnx.numpy_helper.to_array(tensor) + size * shifts[tensor.name]
        tensor.CopyFrom(onnx.numpy_helper.from_array(content, tensor.name))
    feeds = {n: a.astype(np.float64) if a.dtype.kind == "f" else a for n, a in asked.feeds.items()}
    (y,) = ReferenceEvaluator(moved).run(None, feeds)
    if asked.loss == "mse":
        return float(((y - asked.labels) ** 2).mean())
    scores = y - y.max(1, keepdims=True)
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return float(-np.take_along_axis(logs, np.expand_dims(asked.labels, 1), 1).mean())


@pytest.mark.parametrize("name", NAMES)
def test_it_trains_by_the_gradient_that_differences_have(name):
    asked = REQUESTS[name]()
    made = flow.make_trainable(
        asked.model, asked.loss + "(axis=1)" * (asked.loss != "mse"), "sgd", lr=RATE
    )
    weights = {t.name: onnx.numpy_helper.to_array(t) for t in asked.model.graph.initializer}
    assert set(made.trained) == set(weights)
    trainer = made.trainer()
    losses = [trainer.step(*asked.feeds.values(), asked.labels)["loss"].item()]
    rng = np.random.default_rng(0)
    shifts = {n: rng.standard_normal(w.shape) for n, w in weights.items()}
    state = trainer.state_dict()
    slope = sum(float(((w - state[n]) / RATE * shifts[n]).sum()) for n, w in weights.items())
    wide = in_double(asked.model)
    assert losses[0] == pytest.approx(loss_at(asked, wide, shifts, 0.0), rel=1e-4)
    above, below = (loss_at(asked, wide, shifts, sign * STEP) for sign in (1, -1))
    size = sum(float(np.abs((w - state[n]) / RATE * shifts[n]).sum()) for n, w in weights.items())
    assert abs(slope - (above - below) / (2 * STEP)) <= 1e-3 * max(size, 1e-3)
    losses += [trainer.step(*asked.feeds.values(), asked.labels)["loss"].item() for _ in range(10)]
    assert losses[-1] < losses[0]
    # what browsers and devices have: no operator of any other domain
    assert {n.domain for n in made.step.model.graph} <= {"", "ai.onnx"}


def test_gradients_without_training_as_a_model():
    """Asked for in #13057 and #11363: the gradient of any output by any input, nothing else."""
    asked = REQUESTS["atan"]()
    gradient = flow.grad(asked.model, wrt="x")
    assert {n.domain for n in gradient.graph.node} <= {"", "ai.onnx"}
    wide, x = ReferenceEvaluator(in_double(asked.model)), asked.feeds["x"].astype(np.float64)
    found = ReferenceEvaluator(gradient).run(None, asked.feeds)
    names = [o.name for o in gradient.graph.output]
    (g,) = (a for n, a in zip(names, found, strict=True) if a.shape == x.shape and "grad" in n)
    for i in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[i] = STEP
        above, below = (wide.run(None, {"x": x + s})[0].sum() for s in (shift, -shift))
        assert g[i] == pytest.approx((above - below) / (2 * STEP), rel=1e-3, abs=1e-5)


def test_derivatives_as_transformations_of_graphs():
    """Asked for in onnx/onnx #6088: jvp and vjp from a model to a model; they are transposes."""
    asked = REQUESTS["layer_norm"]()
    rng = np.random.default_rng(1)
    x = asked.feeds["x"]
    v, u = rng.standard_normal(x.shape), rng.standard_normal((3, 3))
    feeds = {"x": x}
    forward, backward = flow.jvp(asked.model, wrt="x"), flow.vjp(asked.model, wrt="x")
    jv = result(forward, feeds, v.astype(np.float32), (3, 3))
    ju = result(backward, feeds, u.astype(np.float32), x.shape)
    assert float((jv * u).sum()) == pytest.approx(float((ju * v).sum()), rel=1e-4)


def result(model, feeds, direction, shape):
    """The last output of a model of this shape, at a direction for the input that is left."""
    (name,) = (v.name for v in model.graph.input if v.name not in feeds)
    found = ReferenceEvaluator(model).run(None, {**feeds, name: direction})
    return [y for y in found if y.shape == shape][-1]
