"""The limits of a server over HTTP: hosts, connections, memory, time; and who leaves."""

import contextlib
import json
import re
import shutil
import socket
import ssl
import struct
import subprocess

import grpc
import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import FlowError, OptionsError
from flow2onnx_serve.cli import serve
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.held import Held
from flow2onnx_serve.hosts import Hosts
from flow2onnx_serve.lifecycle import run
from flow2onnx_serve.origins import Origins
from flow2onnx_serve.settings import Settings

from tests.serving.models import centred, mlp, place
from tests.serving.waiting import held_bytes, wait_until

GET = b"GET /v2/health/live HTTP/1.1\r\n"


def first_line(server, sent):
    """The status line that answers these bytes, on a connection of its own."""
    with server.connect() as connection:
        connection.sendall(sent)
        return connection.recv(4096).partition(b"\r\n")[0]


def status_of(server, sent):
    return int(first_line(server, sent).split()[1])


def metric(server, name):
    text = server.ask("/metrics")[2].decode()
    found = re.search(rf"^flow2onnx_{re.escape(name)} (.*)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.mark.parametrize(("headers", "status"), [
    (b"Host: localhost\r\n", 200), (b"host: LocalHost.:8000\r\n", 200),
    (b"Host: 10.1.2.3:8000\r\n", 200), (b"Host: [::1]:8000\r\n", 200),
    (b"Host: evil.example\r\n", 421), (b"Host: localhost.evil.example\r\n", 421),
    (b"", 400), (b"Host:\r\n", 400), (b"Host: a b\r\n", 400), (b"Host: a@localhost\r\n", 400),
    (b"Host: localhost\r\nHost: localhost\r\n", 400), (b"Host: localhost:99x\r\n", 400),
])  # fmt: skip
def test_who_calls_the_server_by_which_name(server, headers, status):
    assert status_of(server, GET + headers + b"\r\n") == status


def test_old_clients_name_no_host(server):
    assert status_of(server, b"GET /v2/health/live HTTP/1.0\r\n\r\n") == 200


@pytest.mark.parametrize(("allowed", "good", "bad"), [
    ([], ["localhost", "a", "a.", "::1"], ["a.b", "10.1.2.3.b"]),
    (["a.b"], ["a.b", "A.B."], ["b.a", "x.a.b"]),
    (["*.a.b"], ["x.a.b", "x.y.a.b"], ["a.b", "xa.b"]),
    (["*"], ["a", "evil.example"], []),
])  # fmt: skip
def test_names_that_are_allowed(allowed, good, bad):
    hosts = Hosts(allowed)
    for name in good * 2:
        text = f"[{name}]" if ":" in name else name
        hosts.check([(b"host", text.encode()), (b"a", b"b")], "1.1")
    for name in bad * 2:
        with pytest.raises(RequestError, match="--allowed-host") as caught:
            hosts.check([(b"host", name.encode())], "1.1")
        assert caught.value.status == 421


@pytest.mark.parametrize(("headers", "status"), [
    (b"", 200), (b"Sec-Fetch-Site: same-origin\r\nOrigin: http://proxy.example\r\n", 200),
    (b"Sec-Fetch-Site: none\r\n", 200), (b"Origin: http://LocalHost:8000\r\n", 200),
    (b"Sec-Fetch-Site: cross-site\r\n", 403), (b"Sec-Fetch-Site: same-site\r\n", 403),
    (b"Sec-Fetch-Site: cross-site\r\nOrigin: http://localhost:8000\r\n", 403),
    (b"Origin: http://localhost:9000\r\n", 403), (b"Origin: http://evil.example\r\n", 403),
    (b"Origin: null\r\n", 403), (b"Origin: http://[\r\n", 403),
])  # fmt: skip
@pytest.mark.parametrize("path", [b"/v2/repository/index", b"/v2/models/absent/infer"])
def test_pages_of_other_sites_send_nothing(server, headers, status, path):
    given = b"Host: localhost:8000\r\nContent-Length: 2\r\nConnection: close\r\n" + headers
    found = status_of(server, b"POST " + path + b" HTTP/1.1\r\n" + given + b"\r\n{}")
    assert found == (404 if status == 200 and path.endswith(b"infer") else status)
    assert status_of(server, GET + b"Host: localhost\r\n" + headers + b"\r\n") == 200


def test_origins_that_are_allowed():
    here = [(b"host", b"a"), (b"sec-fetch-site", b"cross-site"), (b"origin", b"https://App.b")]
    for allowed in (["*"], ["https://app.b/"]):
        Origins(allowed).check(here)
    with pytest.raises(RequestError, match="--allowed-origin") as caught:
        Origins(["https://app.c"]).check(here)
    assert caught.value.status == 403


def test_shares_of_connections_clients_and_the_server():
    changes = []
    held = Held(1000, changes.append)
    one, other = held.request("a", ("a", 1)), held.request("a", ("a", 2))
    one(250)
    with pytest.raises(RequestError, match="this connection") as caught:
        one(1)
    assert (caught.value.status, caught.value.retry_after) == (429, 1)
    other(250)
    with pytest.raises(RequestError, match="this client"):
        held.request("a", ("a", 3))(1)
    with contextlib.ExitStack() as stack:
        for number in range(2):
            stack.enter_context(held.request(f"b{number}", number))(250)
        with pytest.raises(RequestError, match="unfinished requests") as caught:
            held.request("c", 3)(1)
        assert caught.value.status == 503
    one.release()
    one.release()
    one(250)
    for hold in (one, other):
        hold.release()
    assert changes[-1] == 0
    assert not held._shares


@pytest.mark.parametrize(("settings", "text"), [
    ({"timeout": float("nan")}, "timeout is nan"),
    ({"poll": float("inf")}, "poll is inf"),
    ({"max_connections": 0}, "max_connections is 0"),
    ({"max_held": 1000}, "max_held is 1000"),
])  # fmt: skip
def test_settings_that_make_no_sense(settings, text):
    with pytest.raises(OptionsError, match=text):
        Settings("models", **settings)


def test_too_many_connections(tmp_path, serving):
    """Four, of which one client has two: a third is refused, and let in when another has left."""
    place(tmp_path, "mlp", mlp())
    server = serving(tmp_path, "--max-connections", 4, "--read-timeout", 30)
    ask = GET + b"Host: localhost\r\n\r\n"
    with server.connect() as first, server.connect() as second:
        for connection in (first, second):
            connection.sendall(ask)
            assert b"200 OK" in connection.recv(4096)
        with server.connect() as third:
            answer = third.recv(4096)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1" in answer
        first.close()
        wait_until(lambda: listens(server, ask))
    wait_until(lambda: metric(server, 'answers_total{code="429",protocol="http"}') >= 1)


def listens(server, ask):
    with server.connect() as connection:
        connection.sendall(ask)
        return b"200 OK" in connection.recv(4096)


def test_who_leaves_is_forgotten(server):
    """Requests for a busy model leave its queue with their clients, and its run ends."""
    entry = {"name": "n", "shape": [1], "datatype": "INT64", "data": [2_000_000_000]}
    body = json.dumps({"inputs": [entry]}).encode()
    head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n"
    left = metric(server, 'requests_total{code="499",model="slow"}')
    with contextlib.ExitStack() as stack:
        for number in range(4):
            connection = stack.enter_context(server.connect())
            connection.sendall(head % len(body) + body)
            if number % 2:  # reset it, in place of ending it in order
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        wait_until(lambda: metric(server, 'queue_length{model="slow"}') == 3)
    wait_until(lambda: metric(server, 'queue_length{model="slow"}') == 0)
    wait_until(lambda: metric(server, 'requests_total{code="499",model="slow"}') == left + 4)
    wait_until(lambda: held_bytes(server) == 0)
    entry["data"] = [10]
    assert server.post("/v2/models/slow/infer", {"inputs": [entry]})[0] == 200


def test_thousands_of_requests_that_do_not_wait(server):
    """They are read as they are answered, and all are."""
    ask = GET + b"Host: localhost\r\n\r\n"
    count, found = 3000, 0
    with server.connect() as connection:
        connection.sendall(ask * count)
        while found < count:
            found += connection.recv(1 << 16).count(b"HTTP/1.1 200")


def test_what_is_no_http_is_counted(server):
    name = 'answers_total{code="400",protocol="http"}'
    before = metric(server, name)
    assert status_of(server, b"nonsense\r\n\r\n") == 400
    assert metric(server, name) == before + 1


def test_calls_that_there_are_not_are_counted(server):
    name = 'answers_total{code="501",protocol="grpc"}'
    before = metric(server, name)
    with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/inference.GRPCInferenceService/Nothing")(b"")
    assert metric(server, name) == before + 1


def test_control_takes_no_large_requests(server):
    status, found = server.post("/v2/repository/index", {"a": "b" * 40_000})
    assert (status, "larger than 32768" in found["error"]) == (413, True)
    with grpc.insecure_channel(server.grpc) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/inference.GRPCInferenceService/RepositoryIndex")(b"\x0a" * 40_000)
    assert caught.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    folder = tmp_path_factory.mktemp("tls")
    pair = folder / "c.pem", folder / "k.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
               "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
               "-keyout", pair[1], "-out", pair[0]]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return pair


def test_certificates_and_tokens_that_cannot_be_used(tmp_path, certificate):
    """No certificate, another's key, a key with a password, a token that is no text."""
    place(tmp_path / "models", "mlp", mlp())
    bad, other, locked = (tmp_path / name for name in ("bad", "other", "locked"))
    bad.write_bytes(b"\xff\xfe")
    subprocess.run(["openssl", "genrsa", "-out", other, "2048"], check=True, capture_output=True)
    hide = [
        "openssl",
        "rsa",
        "-in",
        certificate[1],
        "-aes256",
        "-passout",
        "pass:x",
        "-out",
        locked,
    ]
    subprocess.run(hide, check=True, capture_output=True)
    for pair in ((bad, certificate[1]), (certificate[0], other), (certificate[0], locked)):
        with pytest.raises(OptionsError, match="TLS cannot use"):
            run(Settings(tmp_path / "models", port=0, certificate=pair[0], key=pair[1]), "1")
    done = CliRunner().invoke(serve, [str(tmp_path / "models"), "--token-file", str(bad)])
    assert (done.exit_code, "the token in" in done.stderr) == (1, True)


def test_what_is_given_in_place_of_a_repository(tmp_path):
    place(tmp_path, "mlp", mlp())
    with pytest.raises(FlowError, match="is one model of a repository, which is the folder around"):
        run(Settings(tmp_path / "mlp", port=0), "1")


@pytest.mark.parametrize("option", ["--port", "--grpc-port"])
def test_a_port_that_is_taken(tmp_path, option):
    place(tmp_path, "mlp", mlp())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = CliRunner().invoke(serve, [str(tmp_path), "--port", "0", option, port])
    assert (done.exit_code, f"cannot listen on 127.0.0.1:{port}" in done.stderr) == (1, True)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_tls_that_does_not_come(tmp_path, serving, certificate, protocol):
    """Silence, half a greeting, and a greeting without what follows: each connection ends."""
    place(tmp_path, "mlp", mlp())
    pair = ("--tls-cert", certificate[0], "--tls-key", certificate[1])
    server = serving(tmp_path, *pair, "--read-timeout", 1, "--grpc-port", 0)
    host, _, port = getattr(server, protocol).rpartition(":")
    greeting = client_hello()
    for sent in (b"", greeting[:40], greeting):
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(sent)
            with contextlib.suppress(ConnectionResetError):
                while connection.recv(4096):
                    pass
    context = ssl.create_default_context(cafile=certificate[0])
    with server.connect() as plain, context.wrap_socket(plain, server_hostname="localhost") as safe:
        safe.sendall(GET + b"Host: localhost\r\n\r\n")
        assert safe.recv(4096).startswith(b"HTTP/1.1 200 ")


def client_hello():
    """The first message of TLS."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    talk = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        talk.do_handshake()
    return outgoing.read()


def test_answers_that_are_not_read_are_held(tmp_path, serving):
    """They are counted until they are taken."""
    place(tmp_path, "centred", centred())
    server = serving(tmp_path, "--read-timeout", 3)
    x = np.zeros((2_000_000, 3), np.float32)
    entry = {"name": "x", "shape": x.shape, "datatype": "FP32",
             "parameters": {"binary_data_size": x.nbytes}}  # fmt: skip
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    fields = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(b"POST /v2/models/centred/infer HTTP/1.1\r\nHost: localhost\r\n"
                           + fields % (len(head), len(head) + x.nbytes) + head)  # fmt: skip
        connection.sendall(x)
        wait_until(lambda: held_bytes(server) > 2 * x.nbytes - 1000)
    wait_until(lambda: held_bytes(server) == 0)
