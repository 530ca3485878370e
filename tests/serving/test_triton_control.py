"""Models loaded and unloaded while they are served, by us and by the real Triton."""

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.serving.conftest import ROOT
from tests.serving.triton_pair import KINDS, code_of, error_of

CONV = ({("conv", "1")}, {"conv"})  # what is listed, and what says that it is ready
DIGITS = ({("digits", "1"), ("digits", "2")}, {"digits"})
IMAGES = {"images": np.random.default_rng(5).standard_normal((1, 1, 12, 12)).astype(np.float32)}


@pytest.fixture(autouse=True)
def only_conv(controlled):
    """Lets each test begin with `conv` alone."""
    for server in controlled.each():
        server.call("http", "load_model", "conv")
        server.call("http", "unload_model", "digits")
        _until(server, "http", CONV)


def state(server, kind):
    """The versions that are ready, in the index and by asking."""
    found = server.describe(kind, "get_model_repository_index")
    found = found["models"] if kind == "grpc" else found
    listed = {(row["name"], row.get("version", "")) for row in found
              if row.get("state") == "READY"}  # fmt: skip
    asked = {name for name in ("conv", "digits") if server.call(kind, "is_model_ready", name)}
    return listed, asked


def test_models_come_and_go(controlled):
    for kind in KINDS:
        before = [server.infer(kind, "conv", IMAGES) for server in controlled.each()]
        for server in controlled.each():
            assert state(server, kind) == CONV
            server.call(kind, "unload_model", "conv")
            server.call(kind, "load_model", "digits")
        for server in controlled.each():
            _until(server, kind, DIGITS)
            server.call(kind, "load_model", "conv")
            server.call(kind, "unload_model", "digits")
            _until(server, kind, CONV)
        for server, found in zip(controlled.each(), before, strict=True):
            again = server.infer(kind, "conv", IMAGES)["out/0"]
            assert again.tobytes() == found["out/0"].tobytes() == before[0]["out/0"].tobytes()


def _until(server, kind, wanted):
    """Triton unloads after it has answered; ours has before."""
    for _ in range(200):
        if (found := state(server, kind)) == wanted:
            return
    assert found == wanted


REQUEST = json.dumps({"inputs": [{
    "name": "images", "datatype": "FP32", "shape": [1, 1, 12, 12], "data": [0.5] * 144,
}]}).encode()  # fmt: skip
LOAD = "/v2/repository/models/{}/load"
UNLOAD = "/v2/repository/models/{}/unload"
# path, body, our status, Triton's
REQUESTS = {
    "load no model": (LOAD.format("none"), b"{}", 404, 500),
    "load with what is no JSON": (LOAD.format("conv"), b"{", 400, 500),
    "unload twice": (UNLOAD.format("conv"), b"{}", 200, 200),
    "unload no model": (UNLOAD.format("none"), b"{}", 404, 200),
    # a model that is known and does not answer: ours tells the client to try again later
    "ask the unloaded": ("/v2/models/conv/infer", REQUEST, 503, 404),
    "metadata of the unloaded": ("/v2/models/conv", None, 503, 404),
    "readiness of the unloaded": ("/v2/models/conv/ready", None, 503, 400),
}


def test_what_is_refused(controlled):
    for server in controlled.each():
        server.call("http", "unload_model", "conv")
        _until(server, "http", (set(), set()))
    for name, (path, body, *wanted) in REQUESTS.items():
        answers = [server.ask(path, body) for server in controlled.each()]
        assert [status for status, _ in answers] == wanted, name
        for status, text in answers:
            if status >= 400:
                error_of(text)
    codes = [code_of(server, "grpc", "get_model_metadata", "conv") for server in controlled.each()]
    assert codes == ["UNAVAILABLE", "NOT_FOUND"]
    codes = [code_of(server, "grpc", "load_model", "none") for server in controlled.each()]
    assert codes == ["NOT_FOUND", "INTERNAL"]


PIXELS = {"images": np.random.default_rng(6).random((3, 1, 28, 28), np.float32)}


def test_the_command_line_extends_what_is_served(controlled):
    """A new model, then its next version, each taken up by both servers when they are told to."""
    command = [sys.executable, "-m", "flow2onnx", "export", "models.mlp:predict_job", "--triton",
               str(controlled.repository), "--name", "written", "--delay-ms", "1"]  # fmt: skip
    found = []
    for version in ("1", "2"):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        for server in controlled.each():
            server.call("grpc", "load_model", "written")
            listed = {("written", version), *CONV[0]}
            _until(server, "http", (listed, {"conv"}))
        ours, theirs = (server.infer("http", "written", PIXELS) for server in controlled.each())
        assert ours["out/0"].tobytes() == theirs["out/0"].tobytes()
        found.append(controlled.ours.describe("http", "get_model_metadata", "written"))
        assert found[-1] == controlled.theirs.describe("http", "get_model_metadata", "written")
    assert [each["versions"] for each in found] == [["1"], ["2"]]
    for server in controlled.each():
        server.call("http", "unload_model", "written")
