"""Settings with which a server starts, and those with which it does not."""

import json
import shutil
import socket
import ssl
import subprocess

import pytest
import tritonclient.grpc as grpc_client
from click.testing import CliRunner
from flow2onnx_runtime import FlowError, OptionsError, usable_providers
from flow2onnx_serve.cli import serve
from flow2onnx_serve.lifecycle import run
from flow2onnx_serve.settings import Settings

from tests.serving.models import mlp, place, repository
from tests.serving.requests import REQUEST, is_well, loops


def test_one_pool_of_threads_for_all_models(tmp_path, serving):
    server = serving(repository(tmp_path), "--shared-pool", "--threads", 2)
    assert is_well(server)
    assert server.post("/v2/models/slow/infer", loops(10))[0] == 200


@pytest.mark.parametrize("provider", ["CUDA", "Tensorrt"])
def test_a_provider_that_is_not_here(tmp_path, provider):
    if f"{provider}ExecutionProvider" in usable_providers():
        pytest.skip("it is here")
    place(tmp_path, "mlp", mlp())
    for path in (tmp_path, tmp_path / "mlp" / "1" / "model.onnx"):
        arguments = [path, "--port", "0", "--provider", provider.lower()]
        done = CliRunner().invoke(serve, [str(a) for a in arguments])
        assert done.exit_code == 1
        assert f"{provider}ExecutionProvider was asked for and cannot be used" in done.stderr


def test_a_token_is_asked_for(tmp_path, serving):
    (tmp_path / "token").write_text("open sesame\n")
    models = repository(tmp_path / "models")
    server = serving(models, "--token-file", tmp_path / "token", "--grpc-port", 0)
    good = {"Authorization": "Bearer open sesame"}
    for headers in ({}, {"Authorization": "Bearer open"}, {"Authorization": "open sesame"}):
        for path in ("/v2", "/metrics", "/openapi.json", "/v2/models/mlp", "/nowhere"):
            status, answer, body = server.ask(path, None, headers)
            assert status == 401
            assert answer["WWW-Authenticate"] == "Bearer"
            assert list(json.loads(body)) == ["error"]
        assert server.post("/v2/models/mlp/infer", {}, headers)[0] == 401
    assert server.ask("/v2", None, good)[0] == 200
    assert server.post("/v2/models/mlp/infer", {}, good)[0] == 400
    assert server.ask("/v2/health/ready")[0] == 200  # probes have no token
    with grpc_client.InferenceServerClient(server.grpc) as triton:
        assert triton.is_server_live()
        with pytest.raises(grpc_client.InferenceServerException, match="bearer token"):
            triton.get_server_metadata()
        headers = {"authorization": "Bearer open sesame"}
        assert triton.get_server_metadata(headers).name == "flow2onnx"
        triton.unload_model("plain", headers)
        assert server.ask("/v2/models/plain/ready", None, good)[0] == 503
        triton.load_model("plain", headers)
        assert triton.is_model_ready("plain", headers=headers)
        with pytest.raises(grpc_client.InferenceServerException, match="no parameter 'config'"):
            triton.load_model("plain", headers, config="{}")
    metrics = server.ask("/metrics", None, good)[2].decode()
    assert 'answers_total{code="401",protocol="http"} 18.0' in metrics
    assert 'answers_total{code="401",protocol="grpc"} 1.0' in metrics
    assert 'answers_total{code="400",protocol="grpc"} 1.0' in metrics


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_tls(tmp_path, serving):
    certificate, key = tmp_path / "c.pem", tmp_path / "k.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
               "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
               "-keyout", key, "-out", certificate]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    place(tmp_path / "models", "mlp", mlp())
    arguments = ("--tls-cert", certificate, "--tls-key", key, "--grpc-port", 0)
    server = serving(tmp_path / "models", *arguments)
    context = ssl.create_default_context(cafile=certificate)
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as safe:
        safe.sendall(REQUEST)
        assert safe.recv(4096).startswith(b"HTTP/1.1 200 ")
    with grpc_client.InferenceServerClient(
        server.grpc, ssl=True, root_certificates=str(certificate)
    ) as triton:
        assert triton.is_server_ready()


def test_what_cannot_begin(tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"broken")
    place(tmp_path / "models", "mlp", mlp(), 1)
    with pytest.raises(FlowError, match="cannot be opened"):
        run(Settings(tmp_path / "broken.onnx", port=0), "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OptionsError, match=f"cannot listen on 127.0.0.1:{port}"):
            run(Settings(tmp_path / "models", port=port), "1")
        with pytest.raises(OptionsError, match=f"cannot listen on 127.0.0.1:{port}"):
            run(Settings(tmp_path / "models", port=0, grpc_port=port), "1")
    for wrong, text in [
        ({"max_batch": 0}, "max_batch is 0"),
        ({"key": tmp_path / "broken.onnx"}, "TLS needs a certificate and its key"),
        ({"token": ""}, "the token is empty"),
    ]:
        with pytest.raises(OptionsError, match=text):
            Settings(tmp_path / "models", **wrong)
    with pytest.raises(FlowError, match="cannot be read"):
        run(Settings(tmp_path / "nowhere", port=0), "1")


def test_the_rows_that_engines_are_built_for(tmp_path, monkeypatch):
    begun = []
    monkeypatch.setattr("flow2onnx_serve.lifecycle.run", lambda settings, _: begun.append(settings))
    done = CliRunner().invoke(serve, [str(tmp_path), "--batch-profile", "1", "8", "32"])
    assert done.exit_code == 0
    assert begun[0].session_options.batch_profile == (1, 8, 32)
    done = CliRunner().invoke(serve, [str(tmp_path), "--batch-profile", "8", "1", "32"])
    assert done.exit_code == 1
    assert "batch_profile is (8, 1, 32)" in done.stderr
    assert CliRunner().invoke(serve, [str(tmp_path)]).exit_code == 0
    assert begun[1].session_options.batch_profile is None


def test_a_repository_without_models(tmp_path, serving):
    with pytest.raises(FlowError, match="has no models"):
        run(Settings(tmp_path, port=0), "1")
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(FlowError, match="is a bundle"):
        run(Settings(tmp_path, port=0), "1")
    server = serving(tmp_path, "--wait", "--poll", 0.1)
    server.wait_for("no model is ready")
    place(tmp_path, "mlp", mlp())
    server.wait_for("a version answers", model="mlp")
    assert is_well(server)


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_ports_that_there_are_not(tmp_path, option):
    done = CliRunner().invoke(serve, [str(tmp_path), option, "99999"])
    assert done.exit_code == 2
    assert "99999 is not in the range" in done.stderr
