"""Clients that treat a server badly: it goes on, and answers the others."""

import contextlib
import json
import random
import signal
import socket
import threading
import time

import numpy as np
import pytest

from tests.serving.models import WIDTH, mlp, place, repository, slow
from tests.serving.requests import REQUEST, is_well, loops
from tests.serving.waiting import held_bytes, wait_until


def answer_of(connection):
    """All that a server answers until it closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:  # it closed while bytes of ours were unread
        pass
    return b"".join(parts)


SOON = {"parameters": {"timeout": 1_000_000}}


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
            found = answer_of(connection)
            assert found.startswith(b"HTTP/1.1 408 ")
            assert list(json.loads(found.partition(b"\r\n\r\n")[2])) == ["error"]
    assert is_well(server)
    wait_until(lambda: held_bytes(server) == 0)
    metrics = server.ask("/metrics")[2]
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
        found = answer_of(connection)
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
        last = answer_of(connection)
    assert [f["outputs"][0]["data"] for f in found] == [[0.0] * 5] * 3
    assert b"connection: close" in last
    wait_until(lambda: held_bytes(server) == 0)


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
            found = answer_of(connection)
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
        found = answer_of(connection)
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
            "/v2/models/slow/infer", json.dumps(loops(600_000) | SOON).encode(), method="POST"
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
        target=lambda: found.append(server.post("/v2/models/slow/infer", loops(100_000)))
    )
    wait_until(lambda: held_bytes(server) == 0)  # of those before
    asking.start()
    wait_until(lambda: bool(found) or held_bytes(server) > 0)
    server.process.send_signal(signal.SIGTERM)
    server.wait_for("draining")
    status, _, body = server.ask("/v2/health/ready")
    assert (status, json.loads(body)) == (503, {"error": "not ready"})
    asking.join(60)
    assert found[0][0] == 200
    assert server.process.wait(60) == 0
    with pytest.raises(OSError, match="refused"):
        server.connect()


def mutate(draws, body):
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
        given = mutate(draws, body)
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
