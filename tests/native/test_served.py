"""`flow2onnx-serve --native`: convolutions of served models by native operators."""

from pathlib import Path

import numpy as np
import pytest
from flow2onnx_native.library import NativeLibrary
from flow2onnx_runtime import Predictor

from tests.native.test_accelerate import close, images, model
from tests.serving.conftest import start, stop

NOTE = "prepared for this machine"


@pytest.mark.parametrize("is_wanted", [True, False])
def test_models_are_accelerated_if_told(
    is_wanted: bool, convolving: NativeLibrary, package: None, tmp_path: Path
) -> None:
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
