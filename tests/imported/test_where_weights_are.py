"""Weights wherever a model keeps them: sparse, in nodes, in branches, in bfloat16, fitted."""

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import flow2onnx as flow
from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.optim.named import OPTIMIZERS
from tests.imported import models
from tests.imported.test_opset_conversion import imported, run

RECORDED = Path(__file__).with_name("recorded")
node = helper.make_node
X, Y = models.random(8, 5, 4), models.random(9, 5, 3)
WEIGHT = models.random(0, 4, 3)


def product(tensors=(), nodes=(), **options):
    """x (n, 4) times W, which `nodes` or `tensors` hold."""
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 3])
    return models.model([*nodes, node("MatMul", ["x", "W"], ["y"])], [x], [y], tensors, **options)


def trained(model, feeds=(X, Y), optimizer="sgd", **options):
    made = flow.make_trainable(model, "mse", optimizer, lr=0.1, **options)
    trainer = made.trainer()
    losses = [trainer.step(*feeds)["loss"].item() for _ in range(3)]
    return losses, trainer.state_dict(), made


def reference():
    return trained(product([models.tensor("W", WEIGHT)]))[:2]


def assert_as_reference(model, name="W"):
    losses, state, made = trained(model)
    expected, wanted = reference()
    assert losses == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(state[name], wanted["W"], rtol=1e-6)
    return made


def sparse(places, values, shape=(4, 3), name="W"):
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32(values), name),
        numpy_helper.from_array(np.int64(places), f"{name}_places"), list(shape),
    )  # fmt: skip


def with_sparse(tensor):
    model = product([models.tensor("W", WEIGHT)])
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(tensor)
    return model


@pytest.mark.parametrize("places", [[0, 7, 11], [[0, 0], [2, 1], [3, 2]]], ids=["flat", "rows"])
def test_sparse_initializers_are_written_out(places):
    dense = np.zeros((4, 3), np.float32)
    dense[[0, 2, 3], [0, 1, 2]] = 1, 2, 3
    losses, state, made = trained(with_sparse(sparse(places, [1, 2, 3])))
    expected, wanted, _ = trained(product([models.tensor("W", dense)]))
    assert losses == pytest.approx(expected)
    np.testing.assert_allclose(state["W"], wanted["W"])
    assert made.check.difference < 1e-5


def test_a_sparse_constant():
    constant = node("Constant", [], ["W"], sparse_value=sparse([0, 7, 11], [1, 2, 3]))
    assert trained(product(nodes=[constant]))[2].trained == ("W",)


def test_sparse_tensors_that_are_too_large_or_damaged():
    large = sparse([0], [1], (1 << 20, 1 << 20))
    with pytest.raises(UnsupportedError, match="elements when written out"):
        flow.make_trainable(with_sparse(large), "mse")
    with pytest.raises(BundleError):
        flow.make_trainable(with_sparse(sparse([0, 7, 12], [1, 2, 3])), "mse")


@pytest.mark.parametrize("form", ["value", "value_floats"])
def test_weights_in_constant_nodes(form):
    if form == "value":
        weight = [node("Constant", [], ["W"], value=models.tensor("", WEIGHT))]
    else:
        weight = [
            node("Constant", [], ["flat"], value_floats=WEIGHT.ravel().tolist()),
            node("Reshape", ["flat", "shape"], ["W"]),
        ]
    model = product([models.tensor("shape", np.int64([4, 3]))], weight)
    if form == "value":
        assert assert_as_reference(model).trained == ("W",)
    else:
        losses, state, _ = trained(model, trained="flat")
        assert losses == pytest.approx(reference()[0])
        np.testing.assert_allclose(state["flat"].reshape(4, 3), reference()[1]["W"], rtol=1e-6)


def test_constants_that_are_no_weights_are_trained_on_request():
    nodes = [
        node("Constant", [], ["scale"], value_floats=[1.0, 2.0, 3.0, 4.0]),
        node("Mul", ["x", "scale"], ["h"]),
        node("MatMul", ["h", "W"], ["p"]),
        node("Constant", [], ["offset"], value_floats=[0.5, 0.5, 0.5]),
        node("Add", ["p", "offset"], ["y"]),
    ]
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 3])
    model = models.model(nodes, [x], [y], [models.tensor("W", WEIGHT)])
    made = flow.make_trainable(model, "mse")
    assert set(made.trained) == {"W", "offset"}
    assert {p.name: p.reason for p in made.parameters}["scale"] == "a constant"
    assert flow.make_trainable(model, "mse", trained="scale").trained == ("scale",)


def branches(form):
    """x W where its sum is positive, x V where it is not; both are called W inside."""

    def branch(name, seed):
        weight = models.tensor("W", models.random(seed, 4, 3))
        nodes = [node("MatMul", ["x", "W"], [f"out_{name}"])]
        if form == "constant":
            nodes.insert(0, node("Constant", [], ["W"], value=weight))
        tensors = [weight] if form == "initializer" else []
        return helper.make_graph(nodes, name, [], [models.info(f"out_{name}", None)], tensors)

    nodes = [
        node("ReduceSum", ["x"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["is_positive"]),
        node(
            "If", ["is_positive"], ["y"], then_branch=branch("yes", 0), else_branch=branch("no", 1)
        ),
    ]
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 3])
    return models.model(nodes, [x], [y], [models.tensor("zero", np.float32(0))])


@pytest.mark.parametrize("form", ["initializer", "constant"])
@pytest.mark.parametrize("sign", [1, -1])
def test_weights_inside_branches(form, sign):
    x = np.abs(X) * sign
    losses, state, made = trained(branches(form), (x, Y))
    assert made.check.difference < 1e-5
    weights = [models.random(0, 4, 3), models.random(1, 4, 3)]
    taken, left = weights if sign > 0 else weights[::-1]
    expected, wanted, _ = trained(product([models.tensor("W", taken)]), (x, Y))
    assert losses == pytest.approx(expected, rel=1e-5)
    found = {name: state[name] for name in made.trained}
    assert sorted(found) == ["W_1", "W_2"]
    moved = [v for v in found.values() if not np.array_equal(v, left)]
    np.testing.assert_allclose(moved[0], wanted["W"], rtol=1e-5)
    assert len(moved) == 1


def bfloat16(name, content):
    bits = content.astype(ml_dtypes.bfloat16).view(np.uint16).tobytes()
    return helper.make_tensor(name, TensorProto.BFLOAT16, content.shape, bits, raw=True)


def test_bfloat16_is_trained_in_float32():
    nodes = [
        node("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16),
        node("MatMul", ["h", "W"], ["p"]),
        node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ]
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 3])
    model = models.model(nodes, [x], [y], [bfloat16("W", WEIGHT)])
    losses, state, made = trained(model)
    rounded = WEIGHT.astype(ml_dtypes.bfloat16).astype(np.float32)
    expected, wanted, _ = trained(product([models.tensor("W", rounded)]))
    assert losses == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(state["W"], wanted["W"], rtol=1e-6)
    assert state["W"].dtype == np.float32
    assert "in float32 from here on" in made.notes[0]


@pytest.mark.parametrize("size", [3, 100])
def test_inputs_and_outputs_of_bfloat16(size, tmp_path):
    kind = TensorProto.BFLOAT16
    model = models.model(
        [node("Mul", ["x", "w"], ["y"])], [models.info("x", ["n", size], kind)],
        [models.info("y", ["n", size], kind)], [bfloat16("w", np.ones(size, np.float32))],
    )  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    x = models.random(1, 2, size)
    losses, _, _ = trained(tmp_path / "m.onnx", (x, np.zeros_like(x)))
    assert losses[0] == pytest.approx((x**2).mean(), rel=1e-5)
    assert losses[2] < losses[0]


def fitted(op_type, outputs, nodes=(), first=(), **attributes):
    own = node(
        op_type, ["h" if first else "x"], outputs, op_type, domain="ai.onnx.ml", **attributes
    )
    kinds = {"label": TensorProto.INT64}
    made = [
        models.info(o, ["n"] if o == "label" else ["n", None], kinds.get(o, models.F))
        for o in (["y"] if nodes else outputs)
    ]
    return models.model(
        [*first, own, *nodes], [models.info("x", ["n", 4])], made, domains=["ai.onnx.ml"]
    )


ROWS = models.random(3, 3, 4)
LINEAR = {
    "regressor": fitted(
        "LinearRegressor", ["y"], coefficients=ROWS.ravel().tolist(), intercepts=[0.1, 0.2, 0.3],
        targets=3,
    ),
    "one target": fitted("LinearRegressor", ["y"], coefficients=ROWS[0].tolist()),
    "logistic": fitted(
        "LinearRegressor", ["y"], coefficients=ROWS.ravel().tolist(), targets=3,
        post_transform="LOGISTIC",
    ),
    "scaler": fitted("Scaler", ["y"], offset=[0.1, 0.2, 0.3, 0.4], scale=[1.0, 2.0, 3.0, 4.0]),
    "scaler of one number": fitted("Scaler", ["y"], offset=[0.1], scale=[2.0]),
    "L1": fitted("Normalizer", ["y"], norm="L1"),
    "L2": fitted("Normalizer", ["y"], norm="L2"),
    **{
        f"{post} of {rows}": fitted(
            "LinearClassifier", ["label", "y"], coefficients=ROWS[:rows].ravel().tolist(),
            intercepts=[0.1, -0.2, 0.3][:rows], classlabels_ints=[5, 7, 9][: max(rows, 2)],
            post_transform=post,
        )
        for post in ("NONE", "LOGISTIC", "SOFTMAX") for rows in (1, 2, 3)
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LINEAR)
def test_linear_operators_compute_what_the_runtime_does(name):
    model = LINEAR[name]
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    fixed.graph.input[0].CopyFrom(models.info("x", [5, 4]))
    expected = run(model.SerializeToString(), {"x": X})
    found = run(imported(fixed), {"x": X})
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def test_a_fitted_regression_learns_on():
    scaler = node("Scaler", ["x"], ["h"], "norm", domain="ai.onnx.ml", offset=[0.1] * 4,
                  scale=[2.0] * 4)  # fmt: skip
    model = fitted(
        "LinearRegressor", ["y"], first=[scaler], coefficients=ROWS.ravel().tolist(),
        intercepts=[0.1, 0.2, 0.3], targets=3,
    )  # fmt: skip
    losses, _, made = trained(model)
    assert made.trained == ("LinearRegressor.coefficients", "LinearRegressor.intercepts")
    reasons = {p.name: p.reason for p in made.parameters}
    assert reasons["norm.scale"] == "fitted to the data, not trained"
    x = (X - np.float32(0.1)) * 2
    gap = x @ ROWS.T + np.float32([0.1, 0.2, 0.3]) - Y
    assert losses[0] == pytest.approx((gap**2).mean(), rel=1e-5)
    assert losses[2] < losses[1] < losses[0]


@pytest.mark.parametrize(
    ("model", "text"),
    [
        (fitted("LinearRegressor", ["y"], coefficients=[1.0] * 4, targets=2,
                post_transform="PROBIT"),
         "post_transform=PROBIT"),
        (fitted("LinearRegressor", ["y"], coefficients=[1.0] * 4, post_transform="LOGISTIC"),
         "post_transform=LOGISTIC of one target"),
        (fitted("LinearRegressor", ["y"], coefficients=[1.0] * 5, targets=2), "5 coefficients"),
        (fitted("Normalizer", ["y"], norm="MAX"), "norm=MAX"),
        (fitted("LinearClassifier", ["label", "y"], coefficients=[1.0] * 4, intercepts=[0.0],
                classlabels_ints=[1, 2, 3]), "1 rows of coefficients for 3 classes"),
    ],
)  # fmt: skip
def test_linear_operators_that_are_not_supported(model, text):
    with pytest.raises((UnsupportedError, BundleError), match=text):
        flow.make_trainable(model, "mse")


def test_make_trainable_on_a_predict_export(tmp_path):
    @flow.global_function(type="predict")
    def job(x: flow.typing.Numpy.Placeholder((2, 4))) -> flow.typing.Numpy:
        return flow.layers.dense(x, 3, name="d")

    job.export(tmp_path / "m.onnx")
    losses, _, made = trained(tmp_path / "m.onnx", (X[:2], Y[:2]))
    assert made.trained == ("d-weight", "d-bias")
    assert list(made.trainer().predict(X[:2])) == ["out/0"]
    made.save(tmp_path / "bundle")
    again, _, _ = trained(tmp_path / "bundle" / "predict.onnx", (X[:2], Y[:2]))
    assert again == pytest.approx(losses)


def scalar():
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 4])
    return models.model(
        [node("Mul", ["x", "w"], ["y"])], [x], [y], [models.tensor("w", np.float32(2))]
    )


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_scalar_weights_with_every_optimizer(optimizer):
    _, state, _ = trained(scalar(), (X, X), optimizer=optimizer, trained="w")
    assert state["w"].shape == ()
    assert state["w"] < 2


@pytest.mark.filterwarnings("ignore:mixed precision")
def test_scalar_weights_under_a_loss_scale():
    _, state, _ = trained(scalar(), (X, X), optimizer="adam", trained="w", precision="fp16")
    assert state["w"].shape == ()
    assert 1.5 < state["w"] < 2


@pytest.mark.parametrize("form", ["dynamo", "torchscript"])
def test_bags_of_rows_train_as_in_torch(form):
    recorded = json.loads((RECORDED / "bags.json").read_text())
    x, starts, y = (np.int64(recorded[k]) for k in ("x", "starts", "y"))
    made = flow.make_trainable(
        RECORDED / f"bags-{form}.onnx", "cross_entropy", "sgd(momentum=0.9)", lr=0.1
    )
    assert len(made.trained) == 3
    trainer = made.trainer()
    losses = [trainer.step(x, starts, y)["loss"].item() for _ in recorded["losses"]]
    assert losses == pytest.approx(recorded["losses"], rel=1e-5)
