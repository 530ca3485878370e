"""A server that clients, files and signals treat badly goes on, or ends in order."""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from click.testing import CliRunner
from flow2onnx_runtime import FlowError, OptionsError, save_safetensors, usable_providers
from flow2onnx_serve.cli import serve
from flow2onnx_serve.lifecycle import run
from flow2onnx_serve.settings import Settings

from flow2onnx.export import export_triton
from tests.export.jobs import define
from tests.serving.conftest import start
from tests.serving.models import WIDTH, mlp, place, repository, slow
from tests.serving.waiting import wait_until

INPUT = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32",
         "parameters": {"binary_data_size": 4 * WIDTH}}  # fmt: skip
HEAD = json.dumps({"inputs": [INPUT]}).encode()
LENGTH = {"Inference-Header-Content-Length": str(len(HEAD))}
BODY = HEAD + bytes(4 * WIDTH)
REQUEST = (
    b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: localhost\r\nInference-Header-Content-Length: "
    + str(len(HEAD)).encode() + b"\r\nContent-Length: " + str(len(BODY)).encode()
    + b"\r\n\r\n" + BODY
)  # fmt: skip


def answered(connection):
    """All that a server answers until it closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:  # it closed while bytes of ours were unread
        pass
    return b"".join(parts)


def is_well(server):
    """Whether the server still gives a right answer."""
    status, _, body = server.ask("/v2/models/mlp/infer", BODY, LENGTH)
    return status == 200 and json.loads(body)["outputs"][0]["data"] == [0.0] * 5


SOON = {"parameters": {"timeout": 1_000_000}}


def n(count):
    return {"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [count]}]}


def test_clients_of_one_byte_a_second(tmp_path, serving):
    server = serving(repository(tmp_path), "--read-timeout", 2, "--max-body", 1000)
    chunks_are_limited(server)
    stack = contextlib.ExitStack()
    slow_head, slow_body = (
        [stack.enter_context(server.connect()) for _ in range(40)] for _ in range(2)
    )
    for connection in slow_body:
        connection.sendall(REQUEST[:-20])
    for byte in REQUEST[:3]:
        for connection in slow_head:
            connection.sendall(bytes([byte]))
        assert is_well(server)  # meanwhile
        time.sleep(0.5)
    with stack:
        for connection in slow_body + slow_head:
            found = answered(connection)
            assert found.startswith(b"HTTP/1.1 408 ")
            assert list(json.loads(found.partition(b"\r\n\r\n")[2])) == ["error"]
    assert is_well(server)
    metrics = server.ask("/metrics")[2]
    assert b"flow2onnx_held_bytes 0.0\n" in metrics
    assert b'answers_total{code="408",protocol="http"} 80.0' in metrics
    assert b'answers_total{code="413",protocol="http"} 1.0' in metrics


def test_a_client_that_leaves(server):
    for cut in (5, 60, len(REQUEST) - 1, len(REQUEST)):
        with server.connect() as connection:
            connection.sendall(REQUEST[:cut])
    assert is_well(server)


@pytest.mark.parametrize(("text", "status"), [
    (b"nonsense\r\n\r\n", 400),
    (b"GET / HTTP/9\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00", 400),
    (b"GET /%s HTTP/1.1\r\n\r\n" % ("ü".encode() * 10), 400),
    (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n", 431),
    (b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000 + b"\r\n", 431),
    (b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: a.b\r\nContent-Length: 9\r\n\r\n", 421),
    (REQUEST.replace(b"Content-Length: 1", b"Content-Length: 9999999991"), 413),
    (b"POST /v2/models/mlp/infer HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v2/models/mlp/infer HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
])  # fmt: skip
def test_what_is_hardly_http(server, text, status):
    with server.connect() as connection:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        found = answered(connection)
    assert found.startswith(f"HTTP/1.1 {status} ".encode()), found[:200]
    body = found.partition(b"\r\n\r\n")[2]
    if status == 400:  # in the HTTP server's own words: the protocol's begin where HTTP does
        assert body == b"Invalid HTTP request received."
    else:
        assert list(json.loads(body)) == ["error"]
    assert is_well(server)


def bodies(connection, count):
    """The JSON of so many answers, in the order in which they come."""
    data, found = b"", []
    while len(found) < count:
        head, end, rest = data.partition(b"\r\n\r\n")
        lines = head.lower().split(b"\r\n")
        length = next((int(t[15:]) for t in lines if t.startswith(b"content-length:")), None)
        if end and length is None:  # 100 Continue
            data = rest
        elif end and len(rest) >= length:
            found.append(json.loads(rest[:length]))
            data = rest[length:]
        else:
            part = connection.recv(65536)
            assert part, f"closed after {found}"
            data += part
    return found


def test_requests_that_do_not_wait_for_answers(server):
    """Five in one packet, of both kinds, are answered in their order."""
    get = b"GET /v2/models/mlp HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(REQUEST + get + REQUEST + REQUEST + get)
        found = bodies(connection, 5)
    assert ["outputs" in f and "model_name" in f for f in found] == [True, False, True, True, False]
    assert found[0]["outputs"][0]["data"] == found[3]["outputs"][0]["data"] == [0.0] * 5


def test_bodies_in_pieces(server):
    """Byte by byte, in chunks, or after the server has agreed."""
    head, _, body = REQUEST.partition(b"\r\n\r\n")
    chunked = head.rpartition(b"\r\n")[0] + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    for byte in body:
        chunked += b"1\r\n" + bytes([byte]) + b"\r\n"
    patient = head + b"\r\nExpect: 100-continue\r\n\r\n"
    with server.connect() as connection:
        for position in range(0, len(REQUEST), 7):
            connection.sendall(REQUEST[position : position + 7])
        connection.sendall(chunked + b"0\r\n\r\n")
        found = bodies(connection, 2)
        connection.sendall(patient)
        assert connection.recv(4096).startswith(b"HTTP/1.1 100 Continue")
        connection.sendall(body)
        found += bodies(connection, 1)
        connection.sendall(REQUEST.replace(b"Host: localhost", b"Connection: close"))
        last = answered(connection)
    assert [f["outputs"][0]["data"] for f in found] == [[0.0] * 5] * 3
    assert b"connection: close" in last
    assert b"flow2onnx_held_bytes 0.0\n" in server.ask("/metrics")[2]


def chunks_are_limited(server):
    head = REQUEST.partition(b"Content-Length: 1")[0].rpartition(b"Inference")[0]
    with server.connect() as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"1F4\r\n" + b" " * 500 + b"\r\n")
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_who_is_refused_may_send_on_and_reads_why(tmp_path, serving):
    """The answer is not taken back by closing the connection under the client's hands."""
    (tmp_path / "token").write_text("secret")
    place(tmp_path / "models", "mlp", mlp())
    server = serving(tmp_path / "models", "--max-body", 10_000, "--token-file", tmp_path / "token")
    head = b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3000000\r\n"
    for fields, status in ((b"", 401), (b"Authorization: Bearer secret\r\n", 413)):
        with server.connect() as connection:
            connection.sendall(head + fields + b"\r\n")
            connection.sendall(bytes(3_000_000))
            found = answered(connection)
        assert found.startswith(b"HTTP/1.1 %d " % status)
        assert found.count(b"HTTP/1.1") == 1


def test_who_does_not_read_is_let_go(tmp_path, serving):
    server = serving(repository(tmp_path), "--read-timeout", 1)
    x = np.zeros((700_000, 3), np.float32)
    entry = {"name": "x", "shape": x.shape, "datatype": "FP32",
             "parameters": {"binary_data_size": x.nbytes}}  # fmt: skip
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    fields = (
        f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + x.nbytes}"
    )
    with server.connect() as connection:
        connection.sendall(b"POST /v2/models/centred/infer HTTP/1.1\r\nHost: localhost\r\n")
        connection.sendall(fields.encode() + b"\r\n\r\n" + head + x.tobytes())
        time.sleep(4)
        found = answered(connection)
    assert found.startswith(b"HTTP/1.1 200 ")
    assert len(found) < x.nbytes
    assert is_well(server)


def test_a_full_queue_then_the_end(tmp_path, serving):
    place(tmp_path, "slow", slow())
    server = serving(tmp_path, "--queue", 2, "--timeout", 60, "--linger", 0.3)
    overload(server)
    finish(server)


def overload(server):
    statuses, retries = [], []

    def ask():
        status, headers, body = server.ask(
            "/v2/models/slow/infer", json.dumps(n(600_000) | SOON).encode(), method="POST"
        )
        assert status == 200 or list(json.loads(body)) == ["error"]
        statuses.append(status)
        retries.append(headers["Retry-After"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert statuses.count(503) >= 1
    assert set(statuses) == {503, 504}
    assert {r for s, r in zip(statuses, retries, strict=True) if s == 503} == {"1"}


def finish(server):
    """SIGTERM lets a request under way finish."""
    found = []
    asking = threading.Thread(
        target=lambda: found.append(server.post("/v2/models/slow/infer", n(100_000)))
    )
    asking.start()
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("draining")
    status, _, body = server.ask("/v2/health/ready")
    assert (status, json.loads(body)) == (503, {"error": "not ready"})
    asking.join(60)
    assert found[0][0] == 200
    assert server.process.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        server.connect()


def test_reloading_under_way(tmp_path, serving):
    """New versions, good and broken, come while clients ask: no request fails."""
    models = repository(tmp_path / "models")
    server = serving(models, "--poll", 0.1)
    found, done = [], threading.Event()

    def ask():
        while not done.is_set():
            found.append(server.ask("/v2/models/mlp/infer", BODY, LENGTH)[0])

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(2, 6):
        place(models, "mlp", mlp(number) if number % 2 else b"broken", number)
        message = "a version answers" if number % 2 else "a version was not loaded"
        server.wait_for(message, model="mlp", version=number)
    shutil.rmtree(models / "mlp" / "5")
    server.wait_for("a version retires", model="mlp", version=5)
    done.set()
    for thread in threads:
        thread.join(60)
    assert set(found) == {200}
    assert len(found) > 20
    assert server.stop() == 0


def test_a_killed_server_starts_again(tmp_path, serving):
    models = repository(tmp_path / "models")
    first = serving(models, "--poll", 0.05)
    for number in range(2, 8):
        place(models, "mlp", mlp(number), number)
        time.sleep(0.05)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    server = serving(models)
    assert json.loads(server.ask("/v2/models/mlp")[2])["versions"] == ["7"]
    assert is_well(server)


def test_killed_in_the_middle_of_a_reload(tmp_path, serving):
    """A version whose check takes seconds, and fails: neither its loading nor the kill matters."""
    models = repository(tmp_path / "models")
    first = serving(models, "--poll", 0.1)
    folder = place(models, "slow", slow(), 2)
    wrong = np.zeros((64, 64), np.float32)
    save_safetensors(folder / "check.safetensors",
                     {"feeds/n": np.array([100_000]), "results/y": wrong})  # fmt: skip
    first.wait_for("a version is being loaded", model="slow", version=2)
    assert first.stop(signal.SIGKILL) == -signal.SIGKILL
    server = serving(models)
    failed = server.wait_for("a version was not loaded", model="slow", version=2)
    assert "the check" in failed["reason"]
    assert json.loads(server.ask("/v2/models/slow")[2])["versions"] == ["1"]
    assert server.post("/v2/models/slow/infer", n(1))[0] == 200


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own with little room, where one may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk(small_disk, serving):
    """Who writes a version without room for it leaves the old one answering, and no new one."""
    _, predict_job = define()
    place(small_disk, "mlp", mlp(0), 1)
    assert export_triton(predict_job, small_disk).ok
    server = serving(small_disk, "--poll", 0.1)
    filler = small_disk / "filler"
    room = shutil.disk_usage(small_disk).free
    filler.write_bytes(bytes(room - 4096))
    with pytest.raises((FlowError, OSError), match=r"No space|cannot be written"):
        export_triton(predict_job, small_disk)
    assert sorted(p.name for p in (small_disk / "predict_job").glob("[0-9]*")) == ["1"]
    assert not [p for p in small_disk.rglob("*model.onnx") if p.parent.name not in ("1",)]
    # a copy that was cut off, as `cp` leaves it
    (small_disk / "mlp" / "2").mkdir()
    with pytest.raises(OSError, match="No space"):
        (small_disk / "mlp" / "2" / "model.onnx").write_bytes(mlp(2) * 4)
    server.wait_for("a version was not loaded", model="mlp", version=2)
    assert is_well(server)
    for name in ("mlp", "predict_job"):
        assert json.loads(server.ask(f"/v2/models/{name}")[2])["versions"] == ["1"]
    filler.unlink()
    assert export_triton(predict_job, small_disk).ok
    server.wait_for("a version answers", model="predict_job", version=2)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_logs_that_cannot_be_written(unbuffered, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    models = repository(tmp_path / "models")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with open("/dev/full", "w") as full:
        server = start(models, "--port", port, "--poll", 0.1, stderr=full)
    try:
        server.lines.append({"message": "listening", "http": f"127.0.0.1:{port}"})
        wait_until(lambda: server.process.poll() is not None or listens(port))
        for number in (2, 3):
            place(models, "mlp", mlp(number), number)
        wait_until(lambda: json.loads(server.ask("/v2/models/mlp")[2])["versions"] == ["3"])
        assert is_well(server)
        assert server.stop() == 0
    finally:
        server.process.kill()
        server.process.wait(60)


def listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def test_what_takes_too_long_is_stopped(tmp_path, serving):
    """A run that would take hours is given up with its request: the next one is answered."""
    place(tmp_path, "slow", slow())
    server = serving(tmp_path, "--timeout", 60)
    endless = n(2_000_000_000) | {"parameters": {"timeout": 300_000}}
    for _ in range(2):
        assert server.post("/v2/models/slow/infer", endless)[0] == 504
        assert server.post("/v2/models/slow/infer", n(10))[0] == 200


def test_one_model_that_cannot_be_served_among_others(tmp_path, serving):
    models = repository(tmp_path)
    place(models, "broken", b"broken")
    server = serving(models)
    rows = {r["name"]: r for r in json.loads(server.ask("/v2/repository/index", b"{}")[2])}
    assert rows["broken"]["state"] == "UNAVAILABLE"
    assert "cannot be opened" in rows["broken"]["reason"]
    status, headers, body = server.ask("/v2/models/broken/infer", BODY, LENGTH)
    assert (status, headers["Retry-After"]) == (503, "5")
    assert "cannot be opened" in json.loads(body)["error"]
    assert server.ask("/v2/health/ready")[0] == 503
    assert server.ask("/v2/models/mlp/ready")[0] == 200
    assert is_well(server)


def test_one_pool_of_threads_for_all_models(tmp_path, serving):
    server = serving(repository(tmp_path), "--shared-pool", "--threads", 2)
    assert is_well(server)
    assert server.post("/v2/models/slow/infer", n(10))[0] == 200


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


def mutated(draws, body):
    """A valid request with some of its bytes or values changed."""
    choice = draws.randrange(6)
    if choice == 0:
        at = draws.randrange(len(body))
        return body[:at] + bytes(draws.randbytes(draws.randrange(1, 4))) + body[at + 1 :]
    if choice == 1:
        return body[: draws.randrange(len(body))]
    if choice == 2:
        at, length = draws.randrange(len(body)), draws.randrange(1, 30)
        return body[:at] + body[at : at + length] * draws.randrange(2, 5) + body[at + length :]
    value = json.loads(body)
    holder, key = draws.choice(list(places(value)))
    if choice == 3:
        del holder[key]
    else:
        holder[key] = draws.choice(STRANGE)
    return json.dumps(value).encode()


STRANGE = [None, True, -1, 0, 1.5, 2**31, 2**63, 2**64, 1e308, "", "x", "\0", "../..", "\ud800",
           [], [[]], [None], [[1], [2, 3]], {}, {"a": 1}, {"name": "x"}, "FP32", "BYTES", "INT64",
           [-1, 16], [0, 16], [1, 2**40], [1] * 40, [float(2**70)]]  # fmt: skip


def places(value):
    """Every item within a value that can be replaced."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(items):
        yield value, key
        if isinstance(item, dict | list):
            yield from places(item)


def valid():
    x = np.random.default_rng(0).standard_normal((2, WIDTH)).round(2)
    entry = {"name": "x", "shape": [2, WIDTH], "datatype": "FP32", "data": x.tolist()}
    outputs = [{"name": "out/0", "parameters": {"classification": 2, "binary_data": False}}]
    return json.dumps({"id": "a", "inputs": [entry], "outputs": outputs,
                       "parameters": {"binary_data_output": False}}).encode()  # fmt: skip


def fuzz(server, count, seed):
    draws, body = random.Random(seed), valid()
    statuses = {}
    for turn in range(count):
        given = mutated(draws, body)
        headers = {}
        if draws.random() < 0.2:
            headers["Inference-Header-Content-Length"] = str(draws.randrange(len(given) + 3))
        path = draws.choice(["/v2/models/mlp/infer"] * 8 + ["/v2/models/ml/infer",
                            "/v2/models/mlp/versions/x/infer"])  # fmt: skip
        status, _, text = server.ask(path, given, headers)
        statuses[status] = statuses.get(status, 0) + 1
        message = f"seed {seed}, turn {turn}: {given[:300]!r} gives {status} {text[:300]!r}"
        assert status == 200 or 400 <= status < 500, message
        if status != 200:
            assert list(json.loads(text)) == ["error"], message
    assert server.process.poll() is None
    assert is_well(server)
    return statuses


def test_thousands_of_malformed_requests(server):
    statuses = fuzz(server, 2500, seed=2)
    assert sum(count for status, count in statuses.items() if status != 200) > 2000
