"""The description of what the server answers, and a fuzzer that reads it."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from flow2onnx_serve.http import Application
from flow2onnx_serve.service import Service
from flow2onnx_serve.settings import Settings

from tests.serving.models import repository

# beside this Python, or wherever programs are
SCHEMATHESIS = shutil.which("st", path=f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")


def test_every_route_is_described(tmp_path, server):
    described = json.loads(server.ask("/openapi.json")[2])
    assert described["openapi"] == "3.1.0"
    routes = Application(Service(Settings(tmp_path), "1"))._rest.routes
    paths = {route.path for route in routes}
    infer = {f"{p}/infer" for p in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}")}
    assert set(described["paths"]) == paths | infer
    for route in routes:
        assert {m.lower() for m in route.methods - {"HEAD"}} == (
            set(described["paths"][route.path]) - {"parameters"}
        )
    names = described["paths"]["/v2/models/{model}"]["parameters"][0]["schema"]["enum"]
    assert "mlp" in names


@pytest.mark.parametrize(("path", "body", "text"), [
    ("index", {"ready": 1}, "neither true nor false"),
    ("index", b"[]", "no object"),
    ("models/mlp/unload", {"parameters": 3}, "no object"),
    ("models/mlp/load", {"parameters": 3}, "no object"),
    ("models/mlp/load", {"parameters": {"config": "{}"}}, "takes no parameter 'config'"),
    ("models/mlp/load", {"parameters": {"version": "../2"}}, "is no version"),
    ("models/mlp/load", {"parameters": {"version": "77"}}, "has no model"),
])  # fmt: skip
def test_what_is_wrong_with_a_repository_request(server, path, body, text):
    status, found = server.post(f"/v2/repository/{path}", body)
    assert status == (404 if "has no" in text else 400)
    assert text in found["error"]


@pytest.mark.slow
@pytest.mark.skipif(SCHEMATHESIS is None, reason="schemathesis is not installed")
def test_schemathesis(tmp_path, serving):
    server = serving(repository(tmp_path / "models"), "--linger", 0)
    url = f"http://{server.http}/openapi.json"
    done = subprocess.run(
        # what a model takes is more than a schema says; an unloaded model rightly answers 503
        [SCHEMATHESIS, "run", url, "-n", "40", "--seed", "1", "--exclude-path-regex", "unload$",
         "--exclude-checks", "positive_data_acceptance"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
    assert server.process.poll() is None
    assert not [line for line in server.lines if line["message"] == "a request failed"]
