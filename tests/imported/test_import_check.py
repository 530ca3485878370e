"""An imported model is compared with the model itself when it is imported."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import UnsupportedError
from flow2onnx.onnx_io import opset_conversion
from tests.imported import models


def softmax_of_opset_12():
    weight = models.tensor("w", models.random(0, 5))
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["h"]),
        helper.make_node("Softmax", ["h"], ["y"], axis=1),
    ]
    x, y = models.info("x", ["n", 4, 5]), models.info("y", ["n", 4, 5])
    return models.model(nodes, [x], [y], [weight], opset=12)


@pytest.mark.parametrize("form", ["path", "proto", "ir"])
def test_the_report_says_how_equal_they_are(form, tmp_path):
    model = softmax_of_opset_12()
    onnx.save(model, tmp_path / "m.onnx")
    given = {"path": tmp_path / "m.onnx", "proto": model, "ir": ir.from_proto(model)}[form]
    made = flow.make_trainable(given, "mse", "sgd", lr=0.1)
    assert made.check.difference < 1e-5
    assert "differs from the model itself by" in str(made.check)


def test_a_model_that_computes_something_else_is_refused(monkeypatch):
    changed = {**opset_conversion.UPGRADES, ("Softmax", 13): lambda place, node: [node]}
    monkeypatch.setattr(opset_conversion, "UPGRADES", changed)
    with pytest.raises(UnsupportedError, match="computes something else: its output y differs"):
        flow.make_trainable(softmax_of_opset_12(), "mse", "sgd", lr=0.1)
    made = flow.make_trainable(softmax_of_opset_12(), "mse", "sgd", lr=0.1, check_import=False)
    assert made.check.difference is None


def test_large_models_are_compared_on_request(monkeypatch):
    monkeypatch.setattr("flow2onnx.imported.import_check.CHECKED_BYTES", 10)
    made = flow.make_trainable(models.perceptron(), "cross_entropy")
    assert "bytes of weights" in made.check.reason
    made = flow.make_trainable(models.perceptron(), "cross_entropy", check_import=True)
    assert made.check.difference < 1e-5


def test_what_is_drawn_or_in_training_form_is_not_compared():
    node = helper.make_node("RandomNormalLike", ["x"], ["r"])
    add = helper.make_node("Mul", ["r", "w"], ["y"])
    weight = models.tensor("w", models.random(0, 4))
    model = models.model(
        [node, add], [models.info("x", ["n", 4])], [models.info("y", ["n", 4])], [weight]
    )
    assert "random numbers" in flow.make_trainable(model, "mse", "sgd").check.reason


def test_a_model_that_takes_no_random_numbers_is_said_to_be_so():
    rows = helper.make_node("Gather", ["table", "i"], ["y"])
    table = models.tensor("table", models.random(0, 1, 4))
    i, y = models.info("i", ["n"], models.I), models.info("y", ["n", 4])
    made = flow.make_trainable(models.model([rows], [i], [y], [table]), "mse", "sgd")
    assert made.check.difference == 0  # row 0, as there is no row 1
    check = helper.make_node("Reshape", ["x", "shape"], ["y"])
    mul = helper.make_node("Mul", ["y", "w"], ["z"])
    tensors = [models.tensor("shape", np.int64([3, 4])), models.tensor("w", models.random(0, 4))]
    x, z = models.info("x", ["n", 4]), models.info("z", [3, 4])
    model = models.model([check, mul], [x], [z], tensors)
    made = flow.make_trainable(model, "z", "sgd", inputs={"x": (3, 4)})
    assert made.check.difference == 0
