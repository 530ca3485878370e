"""The examples of docs/training.md and of the README's section on imported models run."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Trainer
from onnx import helper

import flow2onnx as flow
from tests.imported import models

ROOT = Path(__file__).parents[2]
RNG = np.random.default_rng(6)


def blocks(path, after=""):
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text[text.index(after) :], re.DOTALL)


def data():
    x = RNG.standard_normal((150, 4)).astype(np.float32)
    labels = (x.sum(1) > 0).astype(np.int64) + (x[:, 0] > 1)
    return dict(x=x[:100], labels=labels[:100], held_x=x[100:], held_labels=labels[100:])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flow.clear_default_session()
    return tmp_path


def test_the_guide_to_training(capsys):
    onnx.save(models.perceptron(), "model.onnx")
    names = data()
    for block in blocks("docs/training.md"):
        exec(compile(block, "docs/training.md", "exec"), names)
    assert {p.name for p in Path().iterdir()} >= {"best.safetensors", "log.csv", "logs", "run"}
    assert capsys.readouterr().out.startswith("1 ")


def test_the_example_of_the_readme(capsys):
    tensors = [
        models.tensor("layer1.weight", models.random(0, 12, 6)),
        models.tensor("head.weight", models.random(1, 6, 3)),
    ]
    nodes = [
        helper.make_node("Flatten", ["input"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "layer1.weight"], ["h"], "layer1"),
        helper.make_node("MatMul", ["h", "head.weight"], ["scores"], "head"),
    ]
    inputs, outputs = [models.info("input", [2, 3, 2, 2])], [models.info("scores", [2, 3])]
    onnx.save(models.model(nodes, inputs, outputs, tensors), "resnet.onnx")
    images = RNG.standard_normal((12, 3, 2, 2)).astype(np.float32)
    labels = RNG.integers(0, 3, 12)
    names = dict(images=images, labels=labels, held=images[:4], held_labels=labels[:4])
    exec(blocks("README.md", "## Train a model you have")[0], names)
    assert len(names["history"]) == 5
    assert "1 frozen" in capsys.readouterr().out


def test_the_example_of_the_runtime():
    pytest.importorskip("matplotlib")
    made = flow.make_trainable(models.perceptron(), "cross_entropy", "adam", lr=0.05)
    made.save("bundle", verify=False)
    (block,) = blocks("runtime/python/README.md", "## fit")[:1]
    names = data() | dict(trainer=Trainer("bundle"))
    exec(block, names)
    assert Path("curves.png").exists()
    assert len(names["history"]) <= 20
