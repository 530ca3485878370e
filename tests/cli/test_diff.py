"""`flow2onnx diff`: what differs between two models, and in which numbers."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.view.models import hostile, model

BUNDLE = Path(__file__).parents[2] / "runtime" / "conformance" / "mlp" / "bundle"
SCRIPT = """
import oneflow as flow
import oneflow.typing as tp

def dense(x, width):
    init = flow.random_uniform_initializer(0.1, 0.5)
    return flow.layers.dense(x, width, kernel_initializer=init, name="fc")

@flow.global_function()
def narrow(x: tp.Numpy.Placeholder((4, 3))) -> tp.Numpy:
    return dense(x, 2)
"""


def chain(path, *, bias=0.0, operator="Relu", free="n", extra=False):
    """A small model, with things to change."""
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], name="fc", alpha=1.0),
        helper.make_node(operator, ["h"], ["y"], name="act"),
    ]
    if extra:
        nodes.insert(1, helper.make_node("Identity", ["h"], ["unused"], name="more"))
    proto = model(nodes, [("x", [free, 4])], [("y", [free, 3])], [("w", [4, 3]), ("b", [3])])
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.full(3, bias, "f4"), "b"))
    onnx.save(proto, path)
    return path


def changes(result):
    return {(c["kind"], c["name"]): c for c in json.loads(result.stdout)["changes"]}


def test_a_model_is_like_itself(flow2onnx, folder):
    chain("a.onnx")
    result = flow2onnx("diff", "a.onnx", chain("b.onnx"))
    assert result.exit_code == 0, result.stderr
    assert "the same: 2 weights, 1 result, 2 nodes" in result.stdout


def test_bundles_run_a_step(flow2onnx):
    result = flow2onnx("diff", BUNDLE, BUNDLE, "--json")
    facts = json.loads(result.stdout)
    assert result.exit_code == 0
    assert facts["same_models"]
    assert facts["same"]["result"] == 1
    assert facts["notes"] == []


def test_weights_and_results(flow2onnx, folder):
    result = flow2onnx("diff", chain("a.onnx"), chain("b.onnx", bias=0.25), "--json")
    assert result.exit_code == 1
    found = changes(result)
    assert found.keys() == {("weight", "b"), ("result", "y")}
    assert found["weight", "b"]["distance"] == 0.25
    assert 0.2 < found["result", "y"]["distance"] <= 0.2501


def test_a_tolerance(flow2onnx, folder):
    chain("a.onnx", bias=1.0)
    chain("b.onnx", bias=1.0 + 1e-6)
    assert flow2onnx("diff", "a.onnx", "b.onnx").exit_code == 1
    assert flow2onnx("diff", "a.onnx", "b.onnx", "--tolerance", "1e-4").exit_code == 0


def test_nodes(flow2onnx, folder):
    result = flow2onnx("diff", chain("a.onnx"), chain("b.onnx", operator="Tanh", extra=True))
    assert result.exit_code == 1
    lines = [line.split() for line in result.stdout.splitlines()]
    assert ["act", "operator", "Relu", "→", "Tanh"] in lines
    assert ["more", "added:", "Identity"] in lines
    assert any(line[:2] == ["y", "differs"] for line in lines)


def test_other_inputs(flow2onnx, folder):
    result = flow2onnx("diff", chain("a.onnx"), chain("b.onnx", free=7), "--json")
    found = changes(result)
    assert found["input", "x"]["change"] == "float32 n × 4 → float32 7 × 4"
    assert "results are not compared" in json.loads(result.stdout)["notes"][0]


def test_numbers_that_are_none_are_like_each_other(flow2onnx, folder):
    chain("a.onnx", bias=np.nan)
    assert flow2onnx("diff", "a.onnx", chain("b.onnx", bias=np.nan)).exit_code == 0
    result = flow2onnx("diff", "a.onnx", chain("c.onnx"), "--json")
    assert result.exit_code == 1
    assert ("weight", "b") in changes(result)


def test_jobs_of_one_script(flow2onnx, script, folder):
    script(SCRIPT)
    (folder / "wide.py").write_text(SCRIPT.replace("dense(x, 2)", "dense(x, 5)"), encoding="utf-8")
    assert flow2onnx("diff", "train.py:narrow", "train.py:narrow").exit_code == 0
    result = flow2onnx("diff", "train.py:narrow", "wide.py:narrow", "--json")
    assert result.exit_code == 1
    assert changes(result)["weight", "fc-weight"]["change"] == "float32 (2, 3) → float32 (5, 3)"


def test_a_model_that_cannot_run(flow2onnx, folder):
    onnx.save(hostile(), "hostile.onnx")
    result = flow2onnx("diff", "hostile.onnx", "hostile.onnx", "--json")
    assert result.exit_code == 0
    assert "results of hostile.onnx are not compared" in json.loads(result.stdout)["notes"][0]


@pytest.mark.parametrize("target", ["missing.onnx", "text.onnx", "train.py:no_such_job"])
def test_trouble_is_neither(flow2onnx, script, folder, target):
    script(SCRIPT)
    (folder / "text.onnx").write_text("no model\n")
    chain("a.onnx")
    for pair in ((target, "a.onnx"), ("a.onnx", target)):
        result = flow2onnx("diff", *pair)
        assert result.exit_code == 2
        assert "Error: " in result.stderr
