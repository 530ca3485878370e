"""The examples of docs/training.md and of the runtime's README run."""

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Trainer

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


def test_the_example_of_the_runtime():
    pytest.importorskip("matplotlib")
    made = flow.make_trainable(models.perceptron(), "cross_entropy", "adam", lr=0.05)
    made.save("bundle", verify=False)
    (block,) = blocks("runtime/python/README.md", "## fit")[:1]
    names = data() | dict(trainer=Trainer("bundle"))
    exec(block, names)
    assert Path("curves.png").exists()
    assert len(names["history"]) <= 20
