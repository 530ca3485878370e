"""gRPC clients that are large, slow, packed, many, gone, or no clients at all."""

import asyncio
import contextlib
import gzip
import socket
import time
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio
from flow2onnx_serve.messages import MESSAGES

from tests.serving.models import WIDTH, mlp, place, repository
from tests.serving.waiting import held_bytes, wait_until

INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
X = np.random.default_rng(7).standard_normal((3, WIDTH)).astype(np.float32)


def tensor(array, name="x", datatype="FP32"):
    found = client.InferInput(name, array.shape, datatype)
    found.set_data_from_numpy(array)
    return found


def request_bytes(array=X, model="mlp"):
    entry = {"name": "x", "datatype": "FP32", "shape": array.shape}
    return MESSAGES["ModelInferRequest"](
        model_name=model, inputs=[entry], raw_input_contents=[array.tobytes()]
    ).SerializeToString()


@contextlib.contextmanager
def channel(server, **options):
    with grpc.insecure_channel(server.grpc, **options) as found:
        yield found


def is_well(server):
    with client.InferenceServerClient(server.grpc) as triton:
        return triton.infer("mlp", [tensor(X)]).as_numpy("out/0").shape == (3, 5)


def ended(call, seconds=30):
    """The status with which a call ended."""
    with pytest.raises(grpc.RpcError) as caught:
        call.result(timeout=seconds)
    return caught.value.code().name, caught.value.details()


def test_what_is_larger_than_a_window(server):
    """Six megabytes each way."""
    x = np.random.default_rng(0).standard_normal((500_000, 3)).astype(np.float32)
    with client.InferenceServerClient(server.grpc) as triton:
        found = triton.infer("centred", [tensor(x)]).as_numpy("y")
    np.testing.assert_allclose(found, x - x.mean(axis=0), atol=1e-4)


def test_many_calls_on_one_connection(server, expected):
    inputs = [X + i for i in range(200)]

    async def ask():
        async with aio.InferenceServerClient(server.grpc) as triton:
            return await asyncio.gather(*(triton.infer("plain", [tensor(x)]) for x in inputs))

    for x, answer in zip(inputs, asyncio.run(ask()), strict=True):
        wanted = expected("plain", x=x)["out/0"]
        np.testing.assert_allclose(answer.as_numpy("out/0"), wanted, rtol=1e-5, atol=1e-5)


def test_packed_messages(server):
    x = np.ones((1000, 3), np.float32)
    for packing in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
        with channel(server, compression=packing) as c:
            data = c.unary_unary(INFER)(request_bytes(x, "centred"), timeout=30)
        answer = MESSAGES["ModelInferResponse"].FromString(data)
        assert answer.raw_output_contents[0] == bytes(x.nbytes)
    with channel(server, compression=grpc.Compression.Deflate) as c:
        code, text = ended(c.unary_unary(INFER).future(request_bytes(x, "centred"), timeout=30))
    assert (code, "disabled" in text) == ("UNIMPLEMENTED", True)


def peak(server):
    """The most memory that the server has had, in bytes."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    (line,) = (text for text in status.splitlines() if text.startswith("VmHWM"))
    return int(line.split()[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the memory")
def test_what_inflates_without_end(tmp_path, serving):
    """300 KB that would be 300 MB: on a call, and again and again on a stream."""
    server = serving(repository(tmp_path), "--max-body", 1_000_000, "--grpc-port", 0)
    bomb = gzip.compress(bytes(300 << 20))
    assert is_well(server)
    before = peak(server)
    with channel(server) as c:
        for path in (INFER, STREAM):
            answers = c.stream_stream(path)(iter([bomb] * 20), timeout=60)
            with contextlib.suppress(grpc.RpcError):
                texts = [MESSAGES["ModelStreamInferResponse"].FromString(a) for a in answers]
                assert all("larger than 1000000" in t.error_message for t in texts)
                assert len(texts) == 20
    assert answers.code() == grpc.StatusCode.OK
    assert peak(server) - before < 60 << 20
    assert is_well(server)


def test_a_deadline_and_a_cancelled_call(server):
    """Calls that nobody waits for leave the queue and the model."""
    with client.InferenceServerClient(server.grpc) as triton:
        count = tensor(np.array([2_000_000_000]), "n", "INT64")
        with pytest.raises(
            client.InferenceServerException, match=r"Deadline Exceeded|time is over"
        ):
            triton.infer("slow", [count], client_timeout=0.3)
        calls = [triton.async_infer("slow", [count], lambda *_: None) for _ in range(3)]
        time.sleep(0.2)
        for call in calls:
            call.cancel()
        few = tensor(np.array([10]), "n", "INT64")
        assert triton.infer("slow", [few], client_timeout=20).as_numpy("y").shape == (64, 64)
    assert b'queue_length{model="slow"} 0.0' in server.ask("/metrics")[2]


def test_a_deadline_of_a_stream(server):
    entry = {"name": "n", "datatype": "INT64", "shape": [1]}
    endless = MESSAGES["ModelInferRequest"](
        model_name="slow", inputs=[entry],
        raw_input_contents=[np.array([2_000_000_000]).tobytes()],
    ).SerializeToString()  # fmt: skip
    with channel(server) as c, pytest.raises(grpc.RpcError) as caught:
        list(c.stream_stream(STREAM)(iter([endless]), timeout=0.5))
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    with client.InferenceServerClient(server.grpc) as triton:
        few = tensor(np.array([10]), "n", "INT64")
        assert triton.infer("slow", [few], client_timeout=20).as_numpy("y").shape == (64, 64)


@pytest.mark.parametrize("path", ["/inference.GRPCInferenceService/Nothing", "/etc/passwd"])
def test_calls_that_are_none(server, path):
    with channel(server) as c:
        assert ended(c.unary_unary(path).future(b"", timeout=30))[0] == "UNIMPLEMENTED"


def test_messages_that_are_none(server):
    wrong = [
        (iter([]), "INVALID_ARGUMENT", "no message"),
        (iter([b"\xff\xff\xff"]), "INVALID_ARGUMENT", "cannot be read"),
        (iter([request_bytes()[:-1]]), "INVALID_ARGUMENT", "cannot be read"),
        (iter([b"\x1f\x8bx"]), "INVALID_ARGUMENT", "gzip"),
        (iter([bytes((64 << 20) + 1)]), "RESOURCE_EXHAUSTED", ""),
    ]
    with channel(server, options=[("grpc.max_send_message_length", -1)]) as c:
        for messages, code, text in wrong:
            found = ended(c.stream_unary(INFER).future(messages, timeout=30))
            assert (found[0], text in found[1]) == (code, True), found
        c.unary_unary(INFER)(request_bytes(), timeout=30)


def test_failures_on_a_stream_are_its_messages_own(server):
    given = [request_bytes(), b"\xff", request_bytes(model="nothing"), request_bytes()]
    with channel(server) as c:
        answers = [
            MESSAGES["ModelStreamInferResponse"].FromString(answer)
            for answer in c.stream_stream(STREAM)(iter(given), timeout=30)
        ]
    texts = [a.error_message for a in answers]
    assert texts[::3] == ["", ""]
    assert "cannot be read" in texts[1]
    assert "unknown model" in texts[2]


def test_thousands_of_messages_on_one_stream(server):
    """None is cut off, and others are answered meanwhile."""
    count = 10_000
    with channel(server) as c:
        answers = c.stream_stream(STREAM)(iter([request_bytes()] * count), timeout=120)
        for number, _ in enumerate(answers, 1):
            if number % 2000 == 0:
                assert is_well(server)
    assert number == count
    wait_until(lambda: held_bytes(server) == 0)


def test_metadata_that_is_too_large_ends_its_call_alone(server):
    with channel(server, options=[("grpc.max_metadata_size", 1 << 20)]) as c:
        ask = c.unary_unary(INFER)
        ask(request_bytes(), timeout=30)
        found = ended(ask.future(request_bytes(), timeout=30, metadata=[("a", "b" * 50_000)]))
        assert found[0] == "RESOURCE_EXHAUSTED"
        ask(request_bytes(), timeout=30)


def test_clients_that_send_nothing(tmp_path, serving):
    """A call without its message, and a connection without a call, end."""
    server = serving(repository(tmp_path), "--read-timeout", 1, "--grpc-port", 0)
    host, _, port = server.grpc.rpartition(":")
    waiting = iter(lambda: time.sleep(30), None)
    with channel(server) as c, socket.create_connection((host, int(port)), timeout=20) as silent:
        found = ended(c.stream_unary(INFER).future(waiting, timeout=20))
        assert (found[0], "in time" in found[1]) == ("DEADLINE_EXCEEDED", True)
        with contextlib.suppress(ConnectionResetError):
            while silent.recv(4096):
                pass
    assert is_well(server)


def test_who_does_not_read_is_let_go(tmp_path, serving):
    """Answers of megabytes that nobody takes: the calls end."""
    server = serving(repository(tmp_path), "--read-timeout", 1, "--grpc-port", 0)
    data = request_bytes(np.zeros((400_000, 3), np.float32), "centred")
    options = [("grpc.http2.bdp_probe", 0), ("grpc.max_send_message_length", -1)]
    for path, messages in ((INFER, [data]), (STREAM, [data] * 5)):
        with channel(server, options=options) as c:
            call = c.stream_stream(path)(iter(messages), timeout=120)
            wait_until(lambda: held_bytes(server) > len(data))
            wait_until(lambda: held_bytes(server) == 0)
            assert not call.done()  # the client has not seen it, as it reads nothing
            call.cancel()
    assert is_well(server)


@pytest.mark.parametrize("sent", [
    b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 200,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\1\0\0\0\0\0\1x",
])  # fmt: skip
def test_what_is_hardly_http2(server, sent):
    host, _, port = server.grpc.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        with contextlib.suppress(ConnectionResetError):
            while connection.recv(4096):
                pass
    assert is_well(server)


def test_the_token_comes_before_the_message(tmp_path, serving):
    """Who has none is refused without being read."""
    (tmp_path / "token").write_text("secret")
    place(tmp_path / "models", "mlp", mlp())
    server = serving(tmp_path / "models", "--token-file", tmp_path / "token", "--grpc-port", 0)
    waiting = iter(lambda: time.sleep(30), None)
    with channel(server) as c:
        for call in (c.stream_unary(INFER), c.stream_unary(STREAM)):
            assert ended(call.future(waiting, timeout=5))[0] == "UNAUTHENTICATED"
        good = [("authorization", "Bearer secret")]
        c.unary_unary(INFER)(request_bytes(), timeout=30, metadata=good)
        found = ended(c.unary_unary(INFER).future(request_bytes(), timeout=30, metadata=good * 2))
        assert found[0] == "UNAUTHENTICATED"


def test_draining(tmp_path, serving):
    place(tmp_path, "mlp", mlp())
    server = serving(tmp_path, "--grpc-port", 0, "--linger", 0.2)
    host, _, port = server.grpc.rpartition(":")
    with client.InferenceServerClient(server.grpc) as triton:
        assert triton.is_server_ready()
        assert server.stop() == 0
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((host, int(port)), timeout=5)
