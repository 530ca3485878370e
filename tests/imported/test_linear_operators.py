"""Gradients of operators that move elements, whose operands may come at run time.

They are linear: what goes in times the gradient is what comes out times the seed.
"""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import flow2onnx as flow
from tests.imported import models

I = TensorProto.INT64  # noqa: E741  # as short as in papers
X = models.random(0, 3, 5)
IMAGES = models.random(1, 2, 1, 4, 4)
MODES = ("constant", "edge", "reflect", "wrap")


def model(node, x, known=(), given=(), rank=None):
    """The node on x, of any batch, on tensors `known` and on inputs `given`."""
    inputs = [models.info("x", ["n", *x.shape[1:]])]
    inputs += [
        models.info(name, ["n", *a.shape[1:]] if a.dtype.kind == "f" else list(a.shape),
                    models.F if a.dtype.kind == "f" else I)
        for name, a in given
    ]  # fmt: skip
    output = models.info("y", [None] * (x.ndim if rank is None else rank))
    return models.model([node], inputs, [output], [models.tensor(n, a) for n, a in known])


def assert_adjoint(made, x, given=()):
    feeds = {"x": x, **dict(given)}
    (y,) = ort.InferenceSession(made.SerializeToString()).run(None, feeds)
    seed = models.random(2, *y.shape)
    gradient = flow.grad(made, "x", seeds=True, keep_outputs=False)
    session = ort.InferenceSession(gradient.SerializeToString())
    wanted = {i.name for i in session.get_inputs()}
    (g,) = session.run(None, {k: v for k, v in {**feeds, "seed/y": seed}.items() if k in wanted})
    assert g.shape == x.shape
    assert (g * x).sum() == pytest.approx((y * seed).sum(), rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("form", ["known", "given"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pads", [[0, 1, 0, 2], [0, -1, 0, 2], [0, -2, 0, -1]])
def test_pad(mode, pads, form):
    operand = [("p", np.int64(pads))]
    node = helper.make_node("Pad", ["x", "p"], ["y"], mode=mode)
    given = operand if form == "given" else ()
    made = model(node, X, () if form == "given" else operand, given)
    assert_adjoint(made, X, given)


@pytest.mark.parametrize("form", ["known", "pads given", "all given"])
@pytest.mark.parametrize("pads", [[1, 2], [-1, 2]])
def test_pad_of_chosen_axes(pads, form):
    operands = {"p": np.int64(pads), "a": np.int64([1])}
    given = [
        (k, v)
        for k, v in operands.items()
        if form == "all given" or (k, form) == ("p", "pads given")
    ]
    known = [(k, v) for k, v in operands.items() if k not in dict(given)]
    node = helper.make_node("Pad", ["x", "p", "", "a"], ["y"])
    assert_adjoint(model(node, X, known, given), X, given)


@pytest.mark.parametrize("form", ["known", "given"])
def test_tile(form):
    operand = [("r", np.int64([2, 3]))]
    given = operand if form == "given" else ()
    node = helper.make_node("Tile", ["x", "r"], ["y"])
    made = model(node, X, () if form == "given" else operand, given)
    assert_adjoint(made, X, given)


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_grid_sample_of_any_batch(mode):
    grid = np.random.default_rng(3).uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32)
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode=mode)
    given = [("grid", grid)]
    assert_adjoint(model(node, IMAGES, (), given), IMAGES, given)


@pytest.mark.parametrize(
    ("node", "given"),
    [
        (helper.make_node("Tile", ["h", "r"], ["y"]), [("r", np.int64([1, 2]))]),
        (helper.make_node("Pad", ["h", "r"], ["y"]), [("r", np.int64([0, 1, 0, 1]))]),
    ],
    ids=["Tile", "Pad"],
)
def test_outputs_of_unknown_size_are_trained(node, given):
    weight = models.tensor("w", np.ones(5, np.float32))
    nodes = [helper.make_node("Mul", ["x", "w"], ["h"]), node]
    inputs = [models.info("x", ["n", 5]), models.info("r", [given[0][1].size], I)]
    made = models.model(nodes, inputs, [models.info("y", [None, None])], [weight])
    trainer = flow.make_trainable(made, "y", "sgd", lr=1.0).trainer()
    loss = trainer.step(X, given[0][1])["loss"]
    y = np.tile(X, (1, 2)) if node.op_type == "Tile" else np.pad(X, ((0, 0), (1, 1)))
    assert loss == pytest.approx(y.mean(), rel=1e-5)
    share = (2 if node.op_type == "Tile" else 1) / y.size
    np.testing.assert_allclose(trainer.state_dict()["w"], 1 - X.sum(0) * share, rtol=1e-5)


def test_grid_sample_trains_at_any_batch():
    weight = models.tensor("w", np.ones(1, np.float32))
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("GridSample", ["h", "grid"], ["y"]),
    ]
    inputs = [models.info("x", ["n", 1, 4, 4]), models.info("grid", ["n", 3, 3, 2])]
    made = flow.make_trainable(
        models.model(nodes, inputs, [models.info("y", ["n", 1, 3, 3])], [weight]), "y", "sgd",
        lr=0.1, trained="w",
    )  # fmt: skip
    grid = np.random.default_rng(3).uniform(-1, 1, (2, 3, 3, 2)).astype(np.float32)
    trainer = made.trainer()
    for count in (2, 1):
        before = trainer.state_dict()["w"].copy()
        y = trainer.predict(IMAGES[:count], grid[:count])["y"]
        assert trainer.step(IMAGES[:count], grid[:count])["loss"] == pytest.approx(y.mean())
        moved = trainer.state_dict()["w"] - before
        np.testing.assert_allclose(moved, -0.1 * y.mean() / before, rtol=1e-3)
