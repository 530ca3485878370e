"""`flow2onnx serve --native`: convolutions of served models by native operators."""

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import Predictor

from flow2onnx.cli.app import app
from flow2onnx.engine.native import NativeLibrary
from tests.native.test_accelerate import close, images, model
from tests.serving.conftest import start, stop

NOTE = "prepared for this machine"


@pytest.mark.parametrize("is_wanted", [True, False])
def test_models_are_accelerated_if_told(
    is_wanted: bool,
    convolving: NativeLibrary,
    package: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    path, content, x = tmp_path / "pair.onnx", model("n"), images(2)
    path.write_bytes(content)
    running = start(path, "--threads", 1, *["--native"] * is_wanted)
    try:
        notes = running.wait_for("a version answers", model="pair")["notes"]
        assert (NOTE in notes) is is_wanted
        given = {"name": "x", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
        status, answer = running.post("/v2/models/pair/infer", {"inputs": [given]})
        assert status == 200
        got = np.array(answer["outputs"][0]["data"], np.float32).reshape(x.shape)
        close(got, Predictor(content)(x)["y"])
    finally:
        stop(running)


@pytest.mark.parametrize(
    ("provider", "told"),
    [("cpu", "flow2onnx-native is not installed"), ("cuda", "--native is for --provider cpu")],
)
def test_what_is_missing_is_told_at_the_start(
    provider: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flow2onnx.engine.native._PACKAGE", "no_such_package")
    path = tmp_path / "pair.onnx"
    path.write_bytes(model(2))
    result = CliRunner().invoke(app, ["serve", str(path), "--native", "--provider", provider])
    assert result.exit_code != 0
    assert told in result.output
