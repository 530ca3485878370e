"""`flow2onnx make-trainable`: files, JSON, errors."""

import json

import onnx
import pytest
from flow2onnx_runtime import Manifest

from flow2onnx.cli.options import parse_inputs
from tests.imported import models


@pytest.fixture
def model(folder):
    onnx.save(models.perceptron(), folder / "m.onnx")
    return "m.onnx"


def test_a_bundle_and_one_file(flow2onnx, model, folder):
    result = flow2onnx(
        "make-trainable", model, "--loss", "cross_entropy", "--optimizer", "sgd(momentum=0.9)",
        "--lr", "0.1", "--frozen", "fc1.*", "-o", "bundle", "--training-info", "whole.onnx",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "fc2.weight" in result.output
    assert "passed" in result.output
    state = [s.name for s in Manifest.read(folder / "bundle").state]
    assert "fc2.weight-momentum_buffer" in state
    assert "fc1.weight" not in state
    assert len(onnx.load(folder / "whole.onnx").training_info) == 1


def test_json(flow2onnx, model, folder):
    result = flow2onnx(
        "make-trainable", model, "--loss", "mse", "--input", "batch=4", "-o", "bundle", "--json"
    )
    told = json.loads(result.stdout)
    assert told["ok"]
    assert told["feeds"] == ["x", "labels"]
    assert [p["name"] for p in told["parameters"] if p["trained"]] == [
        "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
    ]  # fmt: skip
    assert Manifest.read(folder / "bundle").feeds[0].shape == (4, 4)


def test_errors_are_shown(flow2onnx, model):
    result = flow2onnx("make-trainable", model, "--loss", "mze", "-o", "bundle")
    assert result.exit_code == 1
    assert "did you mean mse" in result.output
    result = flow2onnx("make-trainable", model, "--loss", "mse", "--input", "x", "-o", "bundle")
    assert result.exit_code == 2
    assert "NAME=8,3,32,32" in result.output


def test_shapes():
    assert parse_inputs(("x=8,3,32,32", "sequence=128", "y=batch,3", "z=5,")) == {
        "x": (8, 3, 32, 32), "sequence": 128, "y": ("batch", 3), "z": (5,),
    }  # fmt: skip


def test_groups_are_checked(flow2onnx, model):
    def output(*groups):
        result = flow2onnx("make-trainable", model, "--loss", "mse", *groups, "-o", "bundle")
        assert result.exit_code
        return result.output

    assert "is not understood" in output("--groups", "*.bias")
    assert "did you mean weight_decay" in output("--groups", "*.bias: weight_decai=0")
    assert "matches nothing" in output("--groups", "head*: lr=1.0")
    twice = ("--groups", "*.bias: lr=1.0", "--groups", "*.bias: lr=2.0")
    assert "given twice" in output(*twice)


def test_help_lists_the_names(flow2onnx):
    shown = flow2onnx("make-trainable", "--help").output
    for name in ("muon", "adadelta", "inverse_sqrt", "one_cycle"):
        assert name in shown
