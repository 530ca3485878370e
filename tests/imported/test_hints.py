"""Advice of messages: each is met, and followed, and does what it says."""

import re

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Trainer
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import FlowError
from tests.imported import models

X = models.random(10, 6, 4)
Y = np.int64([0, 2, 1, 1, 0, 2])


def advice(**asked):
    with pytest.raises(FlowError) as caught:
        flow.make_trainable(**dict(loss="cross_entropy", optimizer="sgd") | asked)
    assert caught.value.hint is not None
    return caught.value.hint


def noisy():
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["noise"], "noise", seed=1.0),
        helper.make_node("Add", ["x", "noise"], ["n"], "add"),
        helper.make_node("MatMul", ["n", "w"], ["y"], "layer"),
    ]
    inputs, outputs = [models.info("x", [6, 4])], [models.info("y", [6, 3])]
    return models.model(nodes, inputs, outputs, [models.tensor("w", models.random(0, 4, 3))])


def test_draws_that_devices_cannot_repeat():
    hint = advice(model=noisy(), on_device=True)
    assert hint == "use dropout and uniform draws alone, or leave on_device out"
    trainer = flow.make_trainable(noisy(), "cross_entropy", "sgd").trainer()
    assert np.isfinite(trainer.step(X, Y)["loss"])
    assert trainer.manifest.metadata["flow2onnx.draws_anew"] == "true"


def test_names_to_recompute():
    model = models.convolutional()
    hint = advice(model=model, recompute=["nowhere"])
    (names,) = re.findall(r"names begin as those of nodes do: (.*)", hint)
    found = [n.split("/")[0] for n in names.split(", ") if n in ("conv", "bn", "relu", "pool")]
    assert found
    made = flow.make_trainable(model, "cross_entropy", "sgd", recompute=found)
    assert len(made.step.recomputed) == len(found)


def test_rates_of_files_with_their_own_algorithm(tmp_path):
    made = flow.make_trainable(models.perceptron(), "cross_entropy", "sgd")
    made.save_training_info(tmp_path / "whole.onnx")
    made = flow.from_training_info(tmp_path / "whole.onnx")
    with pytest.raises(FlowError, match="make_trainable makes can always"):
        made.trainer().learning_rate = 0.1
    model = onnx.load(tmp_path / "whole.onnx")
    trainer = flow.make_trainable(model, "cross_entropy", "sgd").trainer()
    trainer.learning_rate = 0.1
    assert np.isfinite(trainer.step(X, Y)["loss"])


def test_halves_of_a_model_with_branches(tmp_path):
    """The advice to accumulate holds for a model whose branches read the graph around them."""
    plain = flow.make_trainable(models.convolutional(), "mse", "sgd", training_mode=True)
    trainer = plain.trainer()
    batch = [models.random(1, 3, 1, 6, 6), models.random(2, 3, 3)]
    with pytest.raises(FlowError, match="make it trainable, with accumulate=True"):
        trainer.accumulate(*batch)
    made = flow.make_trainable(
        models.convolutional(), "mse", "sgd", training_mode=True, accumulate=True
    )
    assert made.save(tmp_path / "b").ok
    trainer = Trainer(tmp_path / "b")
    trainer.accumulate(*batch)
    trainer.accumulate(*batch)
    trainer.update()
    assert trainer.steps == 1


def test_buffers_of_state(tmp_path):
    table = models.tensor("table", models.random(0, 5000, 4))
    node = helper.make_node("Gather", ["table", "i"], ["rows"])
    inputs, outputs = [models.info("i", [6], models.I)], [models.info("rows", [6, 4])]
    model = models.model([node], inputs, outputs, [table])
    flow.make_trainable(model, "mse", "sgd").save(tmp_path / "b", verify=False)
    assert Trainer(tmp_path / "b").in_place == ("table",)
    assert Trainer(tmp_path / "b", in_place=False).in_place == ()
