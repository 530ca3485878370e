"""From a job to an answer: what `export_triton` writes is what the server serves."""

import json

import numpy as np

from flow2onnx.export import export_triton
from tests.export.jobs import batch, define


def test_a_job_is_served_and_retrained(tmp_path, serving):
    train_job, predict_job = define()
    assert export_triton(predict_job, tmp_path, labels=["a", "b", "c", "d"]).ok
    server = serving(tmp_path, "--poll", 0.1)
    assert (
        "the check passed" in json.loads(server.ask("/v2/repository/index", b"{}")[2])[0]["reason"]
    )
    images, labels = batch(1)
    entry = {"name": "images", "datatype": "FP32", "shape": images.shape, "data": images.tolist()}

    def answer():
        status, found = server.post("/v2/models/predict_job/infer", {"inputs": [entry]})
        assert status == 200, found
        output = found["outputs"][0]
        return found["model_version"], np.float32(output["data"]).reshape(output["shape"])

    version, found = answer()
    assert version == "1"
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)
    for _ in range(3):
        train_job(images, labels)
    assert export_triton(predict_job, tmp_path).ok
    server.wait_for("a version answers", version=2)
    version, found = answer()
    assert version == "2"
    np.testing.assert_allclose(found, predict_job(images), rtol=1e-5, atol=1e-6)
