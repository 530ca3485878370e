"""flow2onnx-serve: a model file is served over HTTP, and answers what the runtime does."""

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from common import arguments, check_installed
from flow2onnx_runtime import Predictor, Trainer, load_safetensors

PATIENCE = 120  # seconds until it is ready, on a machine that does much else


def ask(url: str, body: dict[str, Any] | None = None) -> Any:
    """The answer of a server, parsed."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data)) as answer:
        return json.loads(answer.read() or b"null")


def wait(url: str, server: "subprocess.Popen[str]") -> None:
    """Return when the server is ready."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert server.poll() is None, "the server has ended"
        try:
            ask(f"{url}/v2/health/ready")
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError(f"not ready after {PATIENCE} s")


def main() -> None:
    """Serve, ask, stop."""
    number, conformance, work = arguments()
    check_installed(number, "flow2onnx_serve", "flow2onnx_runtime")
    folder = conformance / "mlp"
    model = Path(Trainer(folder / "bundle").export_predict(work / "answer"))
    feeds, _ = load_safetensors(folder / "feeds.safetensors")
    predictor = Predictor(model)
    (info,) = predictor.inputs
    rows = next(array[0] for name, array in feeds.items() if name == info.name)
    (wanted,) = predictor(rows).values()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).with_name("flow2onnx-serve"), model, "--port", str(port)]
    server = subprocess.Popen(command, cwd=work, text=True)
    try:
        url = f"http://127.0.0.1:{port}"
        wait(url, server)
        body = {"inputs": [{"name": info.name, "shape": list(rows.shape), "datatype": "FP32",
                            "data": rows.ravel().tolist()}]}  # fmt: skip
        answer = ask(f"{url}/v2/models/{model.stem}/infer", body)
        found = np.asarray(answer["outputs"][0]["data"], np.float32)
        np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-5, atol=1e-6)
    finally:
        server.terminate()
        code = server.wait(PATIENCE)
    assert code in (0, -15), f"the server ended with {code}"
    print(f"{len(rows)} rows answered as in process, ended with {code}")


main()
