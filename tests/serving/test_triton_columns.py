"""Repositories for Triton, seen without it: columns, whole numbers, readiness."""

import json
import types

import numpy as np
import pytest
import tritonclient.grpc
from flow2onnx_runtime import Predictor
from flow2onnx_runtime.model_config import read_config

from benchmarks.serving.load import load_of, tensor_of
from flow2onnx.errors import BundleError
from tests.serving import triton_jobs, triton_server

ROWS = np.int32([[3], [0], [6]])


@pytest.fixture
def lookup(tmp_path, serving):
    triton_jobs.write(tmp_path, ("lookup", "pair"))
    return serving(tmp_path, "--grpc-port", 0, "--linger", 0, "--poll", 0)


def request(**changes):
    item = {"name": "indices", "datatype": "INT32", "shape": [3, 1], "data": [3, 0, 6]}
    return {"inputs": [item | changes]}


def test_one_number_a_row_has_a_last_size_of_one(lookup):
    metadata = json.loads(lookup.ask("/v2/models/lookup")[2])
    assert metadata["inputs"] == [{"name": "indices", "datatype": "INT32", "shape": [-1, 1]}]
    status, found = lookup.post("/v2/models/lookup/infer", request())
    assert status == 200, found
    (output,) = found["outputs"]
    wanted = Predictor(lookup.path / "lookup" / "1" / "model.onnx")(indices=ROWS[:, 0])["out/0"]
    assert np.float32(output["data"]).tobytes() == wanted.tobytes()
    for shape in ([3], [1, 3], [3, 1, 1]):
        status, found = lookup.post("/v2/models/lookup/infer", request(shape=shape))
        assert (status, "the model takes [-1, 1]" in found["error"]) == (400, True), found


def test_results_of_one_number_a_row(lookup):
    scores = {"name": "scores", "datatype": "FP32", "shape": [2, 5], "data": [0, 9, 1, 1, 1] * 2}
    number = {"name": "number", "datatype": "INT64", "shape": [2, 5], "data": [1] * 10}
    status, found = lookup.post("/v2/models/pair/infer", {"inputs": [scores, number]})
    assert status == 200, found
    assert [output["shape"] for output in found["outputs"]] == [[2, 5], [2, 1], [2, 5]]
    assert found["outputs"][1]["data"] == [1, 1]


def test_the_configuration_has_numbers_not_texts(lookup):
    config = json.loads(lookup.ask("/v2/models/lookup/config")[2])
    assert (config["input"][0]["dims"], config["max_batch_size"]) == ([1], 32)
    assert config["model_warmup"][0]["inputs"]["indices"]["dims"] == [1]


def test_another_reshape_is_refused(tmp_path):
    text = 'input {{ name: "x" data_type: TYPE_FP32 dims: 4 reshape {{ shape: {} }} }}'
    for shape in ("[2, 2]", "[]"):
        (tmp_path / "config.pbtxt").write_text("max_batch_size: 8 " + text.format(shape))
        with pytest.raises(BundleError, match="reshape"):
            read_config(tmp_path / "config.pbtxt")


def test_what_is_not_ready_is_no_error(lookup):
    with tritonclient.grpc.InferenceServerClient(lookup.grpc) as client:
        assert client.is_model_ready("pair")
        assert not client.is_model_ready("pair", "2")
        client.unload_model("pair")
        assert not client.is_model_ready("pair")
        assert not client.is_model_ready("nothing")


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_benchmarks_clients(server, expected, protocol):
    """They are plain sockets of their own: what they are answered is what the model gives."""
    tensor = tensor_of(server.http, "plain")
    load = load_of(server.http, server.grpc if protocol == "grpc" else None, tensor, 3)
    assert len(load.run(0.2)) >= 3
    x = np.frombuffer(tensor.data(), np.float32).reshape(1, -1)
    found = np.frombuffer(load.outputs(), np.float32).reshape(1, -1)
    load.close()
    np.testing.assert_allclose(found, expected("plain", x=x)["out/0"], 1e-5, 1e-6)


def test_what_is_missing_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(triton_server, "ENVIRONMENT", tmp_path)
    assert "run `make triton`" in triton_server.installation.__wrapped__().lack
    (tmp_path / "ready").touch()
    answers = {
        "has onnxruntime 0.1": ["/p", "/lib", "libpython3.so", "3.11", "0.1"],
        "libpython3": ["/p", "/lib", "", "3.11", triton_server.onnxruntime.__version__],
        "no stub": ["/p", "/lib", "l", "3.7", triton_server.onnxruntime.__version__],
    }
    for text, lines in answers.items():
        done = types.SimpleNamespace(stdout="\n".join(lines))
        monkeypatch.setattr(triton_server.subprocess, "run", lambda *a, done=done, **k: done)
        assert text in triton_server.installation.__wrapped__().lack
