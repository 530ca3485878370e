"""A parameter of an exporter is one weight, under each of its names."""

import json
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import flow2onnx as flow
from flow2onnx.errors import ArgumentError
from tests.imported import models

RECORDED = Path(__file__).with_name("recorded")
FORMS = ("dynamo-raw", "dynamo-optimized", "torchscript-eval", "torchscript-training")
X = models.random(8, 5, 4)


def made(form, **options):
    return flow.make_trainable(
        RECORDED / f"{form}.onnx", "cross_entropy(axis=-1)", "sgd(momentum=0.9)", lr=0.1, **options
    )


@pytest.mark.parametrize("form", FORMS)
def test_five_steps_are_torchs(form):
    recorded = json.loads((RECORDED / "shared.json").read_text())
    x, y = np.int64(recorded["x"]), np.int64(recorded["y"])
    trainer = made(form).trainer()
    losses = [trainer.step(x, y)["loss"].item() for _ in recorded["losses"]]
    assert losses == pytest.approx(recorded["losses"], rel=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_there_are_as_many_weights_as_in_torch(form):
    assert len(made(form).trained) == 9


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["twice.weight", "last.weight"])
def test_a_weight_is_frozen_by_its_name_in_torch(form, name):
    parameters = made(form, frozen=name).parameters
    frozen = [p for p in parameters if p.reason == "frozen"]
    assert len(frozen) == 1
    assert name in (frozen[0].name, *frozen[0].aliases)


def test_both_names_of_tied_weights_find_them():
    for name in ("words.weight", "out.weight"):
        (weight,) = (p for p in made("dynamo-optimized", trained=name).parameters if p.is_trained)
        assert weight.shape == (9, 6)


def test_what_the_exporter_made_itself_is_left_alone():
    constants = [p for p in made("dynamo-optimized").parameters if not p.is_trained]
    assert {p.reason for p in constants} == {"a constant of the exporter"}
    assert [p.shape for p in constants] == [(3,), (3,)]
    chosen = made("dynamo-optimized", trained=constants[0].name)
    assert chosen.trained == (constants[0].name,)


def test_the_notes_say_what_was_merged():
    (bias, scale) = made("torchscript-eval").notes
    assert bias.startswith("twice.bias stood for ")
    assert scale.startswith("norm.weight stood for last.weight too, of equal content")


def layer_used_twice():
    """x (n, 4) through one normalisation twice; nothing says who wrote it."""
    ones, zeros = models.tensor("scale", np.ones(4, np.float32)), np.zeros(4, np.float32)
    node = helper.make_node
    nodes = [
        node("LayerNormalization", ["x", "scale", "zeros"], ["a"], "first"),
        node("Tanh", ["a"], ["t"], "squash"),
        node("LayerNormalization", ["t", "scale", "zeros"], ["y"], "second"),
    ]
    x, y = models.info("x", ["n", 4]), models.info("y", ["n", 4])
    return models.model(nodes, [x], [y], [ones, models.tensor("zeros", zeros)])


def test_a_uniform_tensor_that_is_read_twice_is_one_weight():
    one = flow.make_trainable(layer_used_twice(), "mse", "sgd", lr=0.1)
    assert one.trained == ("scale", "zeros")
    assert "scale holds equal numbers and is read in 2 places" in one.notes[0]
    trainer = one.trainer()
    before = trainer.state_dict()
    trainer.step(X, X)
    assert not np.array_equal(trainer.state_dict()["scale"], before["scale"])
    frozen = flow.make_trainable(layer_used_twice(), "mse", "sgd", frozen="scale")
    assert frozen.trained == ("zeros",)


def test_its_uses_are_trained_apart_on_request():
    apart = flow.make_trainable(layer_used_twice(), "mse", "sgd", lr=0.1, separate="*")
    assert set(apart.trained) == {"scale", "scale/second", "zeros", "zeros/second"}
    trainer = apart.trainer()
    trainer.step(X, X)
    state = trainer.state_dict()
    assert not np.array_equal(state["zeros"], state["zeros/second"])
    frozen = flow.make_trainable(
        layer_used_twice(), "mse", "sgd", separate=["zeros"], frozen="zeros"
    )
    assert frozen.trained == ("scale",)


def test_separate_is_patterns():
    with pytest.raises(ArgumentError, match=r"separate is \[3\]"):
        flow.make_trainable(layer_used_twice(), "mse", "sgd", separate=[3])
    with pytest.raises(ArgumentError, match="separate='fc' matches no tensor"):
        flow.make_trainable(layer_used_twice(), "mse", "sgd", separate="fc")


def test_ones_of_torchs_older_exporter_are_weights_but_where_a_norm_has_none():
    ones = np.ones(2, np.float32)
    tensors = [
        models.tensor("net.scale", np.float32(0.5)),
        models.tensor("net.weight", models.random(0, 2, 2, 1, 1)),
        models.tensor("onnx::InstanceNormalization_9", ones),
        models.tensor("onnx::Mul_23", ones.reshape(2, 1, 1)),
        models.tensor("/Constant_output_0", ones.reshape(2, 1, 1)),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "net.weight"], ["a"], "conv"),
        helper.make_node("InstanceNormalization", ["a", *2 * [tensors[2].name]], ["b"], "norm"),
        helper.make_node("Mul", ["b", "onnx::Mul_23"], ["c"], "mul"),
        helper.make_node("Mul", ["c", "net.scale"], ["d"], "scale"),
        helper.make_node("Add", ["d", "/Constant_output_0"], ["y"], "add"),
    ]
    shape = ["batch", 2, 3, 3]
    made = models.model(nodes, [models.info("x", shape)], [models.info("y", shape)], tensors)
    made.producer_name = "pytorch"
    found = flow.make_trainable(made, "mse", "sgd")
    assert set(found.trained) == {"net.scale", "net.weight", "onnx::Mul_23"}


def test_a_transposed_copy_of_a_declared_parameter_is_that_parameter():
    table = models.random(0, 7, 3)
    tensors = [models.tensor("table.weight", table), models.tensor("permute", table.T.copy())]
    nodes = [
        helper.make_node("Gather", ["table.weight", "x"], ["h"], "words"),
        helper.make_node("MatMul", ["h", "permute"], ["y"], "scores"),
    ]
    ends = [models.info("x", [4], models.I)], [models.info("y", [4, 7])]
    made = models.model(nodes, *ends, tensors)
    made.producer_name = "pytorch"
    text = "InputSpec(kind=<InputKind.PARAMETER: 2>, arg=None, PARAMETER target='table.weight')"
    made.graph.metadata_props.add(
        key="pkg.torch.export.ExportedProgram.graph_signature", value=text
    )
    assert flow.make_trainable(made, "mse", "sgd").trained == ("table.weight",)
