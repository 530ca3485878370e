"""`flow2onnx grad`: modes, JSON, errors."""

import json

import numpy as np
import onnx
import pytest

from tests.imported import models
from tests.imported.test_grad import X, run


@pytest.fixture
def model(folder):
    onnx.save(models.perceptron(), folder / "m.onnx")
    return "m.onnx"


@pytest.mark.parametrize(
    ("mode", "given", "made"),
    [
        ("grad", [], ["grad/x"]),
        ("vjp", ["cotangent/scores"], ["vjp/x"]),
        ("jvp", ["tangent/x"], ["jvp/scores"]),
        ("hvp", ["tangent/x"], ["grad/x", "hvp/x"]),
        ("jacobian", [], ["jacobian/scores/x"]),
    ],
)
def test_modes(flow2onnx, model, folder, mode, given, made):
    result = flow2onnx("grad", model, "--mode", mode, "--only", "-o", "d.onnx")
    assert result.exit_code == 0, result.output
    assert made[-1] in result.output
    written = onnx.load(folder / "d.onnx")
    assert [i.name for i in written.graph.input] == ["x", *given]
    like = {"cotangent/scores": np.ones((2, 3), "f4"), "tangent/x": X}
    assert list(run(written, x=X, **{n: like[n] for n in given})) == made


def test_json(flow2onnx, model):
    result = flow2onnx(
        "grad", model, "--wrt", "fc2.*", "--of", "scores", "--seeds", "--input", "batch=4",
        "-o", "d.onnx", "--json",
    )  # fmt: skip
    told = json.loads(result.stdout)
    assert told["inputs"] == [
        {"name": "x", "dtype": "float32", "shape": [4, 4]},
        {"name": "seed/scores", "dtype": "float32", "shape": [4, 3]},
    ]
    assert [o["name"] for o in told["outputs"]] == ["scores", "grad/fc2.weight", "grad/fc2.bias"]


def test_errors_are_shown(flow2onnx, model, folder):
    result = flow2onnx("grad", model, "--mode", "jvp", "--seeds", "-o", "d.onnx")
    assert result.exit_code == 2
    assert "--seeds is for grad and hvp" in result.output
    result = flow2onnx("grad", model, "--wrt", "fc3.*", "-o", "d.onnx")
    assert result.exit_code == 1
    assert "no input or tensor" in result.output
    assert not (folder / "d.onnx").exists()
