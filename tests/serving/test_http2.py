"""gRPC's HTTP/2: clients that are large, slow, packed, many, or no clients at all."""

import asyncio
import contextlib
import random
import socket
import time

import grpc
import numpy as np
import pytest
import tritonclient.grpc as client
import tritonclient.grpc.aio as aio

from flow2onnx.server.frames import Fault, Flag, HeaderReader, Kind, block, frame, settings_frame
from flow2onnx.server.http2 import CallError, seconds
from flow2onnx.server.messages import MESSAGES
from tests.serving.models import WIDTH, mlp, place, repository

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADERS = [(":method", "POST"), (":scheme", "http"), (":authority", "x"),
           (":path", "/inference.GRPCInferenceService/ModelInfer"), ("te", "trailers"),
           ("content-type", "application/grpc")]  # fmt: skip
X = np.random.default_rng(7).standard_normal((3, WIDTH)).astype(np.float32)


def tensor(array, name="x"):
    found = client.InferInput(name, array.shape, "FP32")
    found.set_data_from_numpy(array)
    return found


def request_bytes(array=X):
    entry = {"name": "x", "datatype": "FP32", "shape": array.shape}
    message = MESSAGES["ModelInferRequest"](
        model_name="mlp", inputs=[entry], raw_input_contents=[array.tobytes()]
    ).SerializeToString()
    return b"\0" + len(message).to_bytes(4, "big") + message


def valid(stream=1, body=None):
    """All that a client sends for one call."""
    end = Flag.END_HEADERS
    body = request_bytes() if body is None else body
    return (frame(Kind.HEADERS, end, stream, block(HEADERS))
            + frame(Kind.DATA, Flag.END_STREAM, stream, body))  # fmt: skip


def connect(server):
    host, _, port = server.grpc.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=30)


def answered(connection, last=None):
    """The frames of a server until it closes, has no more to say, or has ended stream `last`."""
    data, frames = b"", []
    connection.settimeout(5)
    with contextlib.suppress(TimeoutError, ConnectionResetError):
        while part := connection.recv(65536):
            data += part
            while len(data) >= 9 and len(data) >= (end := 9 + int.from_bytes(data[:3], "big")):
                frames.append((data[3], data[4], int.from_bytes(data[5:9], "big"), data[9:end]))
                data = data[end:]
                kind, flags, stream, _ = frames[-1]
                if stream == last and kind in (0, 1) and flags & Flag.END_STREAM:
                    return frames
    return frames


def is_well(server):
    with client.InferenceServerClient(server.grpc) as triton:
        return triton.infer("mlp", [tensor(X)]).as_numpy("out/0").shape == (3, 5)


def test_what_is_larger_than_a_window(server):
    """Six megabytes each way, more than either side takes without being asked."""
    x = np.random.default_rng(0).standard_normal((500_000, 3)).astype(np.float32)
    with client.InferenceServerClient(server.grpc) as triton:
        found = triton.infer("centred", [tensor(x)]).as_numpy("y")
    np.testing.assert_allclose(found, x - x.mean(axis=0), atol=1e-4)


@pytest.mark.parametrize("packing", ["Gzip", "Deflate"])
def test_packed_messages(server, packing):
    x = np.ones((1000, 3), np.float32)
    with grpc.insecure_channel(server.grpc, compression=getattr(grpc.Compression, packing)) as c:
        ask = c.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        entry = {"name": "x", "datatype": "FP32", "shape": x.shape}
        message = MESSAGES["ModelInferRequest"](
            model_name="centred", inputs=[entry], raw_input_contents=[x.tobytes()]
        )
        answer = MESSAGES["ModelInferResponse"].FromString(
            ask(message.SerializeToString(), timeout=30)
        )
    assert answer.raw_output_contents[0] == bytes(x.nbytes)


def test_many_calls_on_one_connection(server, expected):
    inputs = [X + i for i in range(200)]

    async def ask():
        async with aio.InferenceServerClient(server.grpc) as triton:
            return await asyncio.gather(*(triton.infer("plain", [tensor(x)]) for x in inputs))

    for x, answer in zip(inputs, asyncio.run(ask()), strict=True):
        wanted = expected("plain", x=x)["out/0"]
        np.testing.assert_allclose(answer.as_numpy("out/0"), wanted, rtol=1e-5, atol=1e-5)


def test_a_deadline_and_a_cancelled_call(server):
    with client.InferenceServerClient(server.grpc) as triton:
        count = client.InferInput("n", [1], "INT64")
        count.set_data_from_numpy(np.array([2_000_000_000]))
        with pytest.raises(
            client.InferenceServerException, match=r"Deadline Exceeded|time is over"
        ):
            triton.infer("slow", [count], client_timeout=0.3)
        call = triton.async_infer("slow", [count], lambda result, error: None)
        time.sleep(0.2)
        call.cancel()
        count.set_data_from_numpy(np.array([10]))  # neither holds the model any longer
        assert triton.infer("slow", [count], client_timeout=20).as_numpy("y").shape == (64, 64)


def test_calls_that_are_none(server):
    for path, kind, wanted in [
        ("/inference.GRPCInferenceService/Nothing", "application/grpc", b"12"),
        ("/etc/passwd", "application/grpc+proto", b"12"),
        (HEADERS[3][1], "text/html", b"415"),
    ]:
        fields = dict(HEADERS) | {":path": path, "content-type": kind}
        with connect(server) as connection:
            head = frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, 1, block(fields.items()))
            connection.sendall(PREFACE + settings_frame({}) + head)
            payloads = [p for _, _, stream, p in answered(connection, 1) if stream == 1]
        assert wanted in payloads[0]


@pytest.mark.parametrize(("body", "text"), [
    (b"", b"cut off"), (b"\0\0\0", b"cut off"), (request_bytes()[:-1], b"cut off"),
    (request_bytes() + b"x", b"more than one"), (b"\0\0\0\0\x03\xff\xff\xff", b"cannot be read"),
    (b"\1\0\0\0\1x", b"grpc-encoding"), (b"\0\xff\xff\xff\xff", b"larger than"),
])  # fmt: skip
def test_messages_that_are_none(server, body, text):
    with connect(server) as connection:
        connection.sendall(PREFACE + settings_frame({}) + valid(1, body) + valid(3))
        frames = answered(connection, 3)
    assert text in next(p for _, _, stream, p in frames if stream == 1)
    assert any(stream == 3 and kind == Kind.DATA for kind, _, stream, _ in frames)


@pytest.mark.parametrize("sent", [
    b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00",
    PREFACE + b"\xff" * 200,
    PREFACE + frame(Kind.DATA, 0, 1, b"x"),
    PREFACE + frame(Kind.HEADERS, 4, 2, block(HEADERS)),
    PREFACE + frame(Kind.HEADERS, 4, 1, b"\xff\xff\xff\xff\xff\xff"),
    PREFACE + frame(Kind.HEADERS, 4 | Flag.PADDED, 1, b"\xff"),
    PREFACE + frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.PING, 0, 0, bytes(8)),
    PREFACE + frame(Kind.HEADERS, 0, 1, b"") + frame(Kind.CONTINUATION, 0, 1, b"a" * 60_000) * 2,
    PREFACE + frame(Kind.CONTINUATION, 4, 1, b""),
    PREFACE + frame(Kind.SETTINGS, 0, 0, b"123"), PREFACE + frame(Kind.SETTINGS, 0, 5),
    PREFACE + settings_frame({4: 2**31}),
    PREFACE + frame(Kind.PING, 0, 0, b"1"), PREFACE + frame(Kind.PUSH, 0, 1, b""),
    PREFACE + frame(Kind.WINDOW, 0, 0, bytes(4)), PREFACE + frame(Kind.RESET, 0, 9, bytes(4)),
    PREFACE + frame(Kind.WINDOW, 0, 0, b"\x7f\xff\xff\xff") * 2,
    PREFACE + frame(Kind.PING, 0, 0, bytes(8)) * 21_000,
    PREFACE + b"\xff\xff\xff\0\0\0\0\0\1",
])  # fmt: skip
def test_what_is_hardly_http2(server, sent):
    with connect(server) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(sent)
        frames = answered(connection)
    assert frames[-1][0] == Kind.GOAWAY or not frames[2:]
    assert is_well(server)


def test_thousands_of_malformed_calls(server):
    draws, count = random.Random(5), 0
    while count < 2000:
        sent = bytearray(valid(1) + valid(3) + valid(5))
        for _ in range(draws.randrange(1, 4)):
            at = draws.randrange(len(sent))
            if draws.random() < 0.7:
                sent[at] = draws.randrange(256)
            else:
                del sent[at : at + draws.randrange(1, 20)]
        gone = contextlib.suppress(ConnectionResetError, BrokenPipeError)
        with connect(server) as connection, gone:
            connection.sendall(PREFACE + settings_frame({}) + sent)
            connection.shutdown(socket.SHUT_WR)
        count += 3
    assert server.process.poll() is None
    assert is_well(server)
    assert not [line for line in server.lines if line["message"] == "a request failed"]


def test_clients_of_one_byte_a_second(tmp_path, serving):
    server = serving(repository(tmp_path), "--read-timeout", 1.5, "--grpc-port", 0)
    whole = PREFACE + settings_frame({}) + valid()
    cuts = [1, 20, 30, 40, len(whole) - 40, len(whole) - 1]
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(connect(server)) for _ in cuts]
        for connection, cut in zip(connections, cuts, strict=True):
            connection.sendall(whole[:cut])
        for step in range(3):
            for connection, cut in zip(connections, cuts, strict=True):
                if cut + step < len(whole) - 1:
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(whole[cut + step : cut + step + 1])
            assert is_well(server)
            time.sleep(1)
        for connection in connections[:-2]:
            assert Kind.DATA not in [kind for kind, *_ in answered(connection)]
        late = [p for kind, _, s, p in answered(connections[-1]) if (kind, s) == (Kind.HEADERS, 1)]
        assert not late or b"in time" in late[0]
    assert is_well(server)
    assert b"flow2onnx_held_bytes 0.0\n" in server.ask("/metrics")[2]


def test_who_does_not_read_is_let_go(tmp_path, serving):
    """Answers of megabytes, and no window to send them: the call ends, its bytes are freed."""
    server = serving(repository(tmp_path), "--read-timeout", 1, "--grpc-port", 0)
    x = np.zeros((200_000, 3), np.float32)
    entry = {"name": "x", "datatype": "FP32", "shape": x.shape}
    message = MESSAGES["ModelInferRequest"](
        model_name="centred", inputs=[entry], raw_input_contents=[x.tobytes()]
    ).SerializeToString()
    body = b"\0" + len(message).to_bytes(4, "big") + message
    parts = [body[i : i + 16384] for i in range(0, len(body), 16384)]
    with connect(server) as connection:
        connection.sendall(PREFACE + settings_frame({}) + frame(1, 4, 1, block(HEADERS)))
        for part in parts[:-1]:
            connection.sendall(frame(Kind.DATA, 0, 1, part))
        connection.sendall(frame(Kind.DATA, Flag.END_STREAM, 1, parts[-1]))
        frames = answered(connection)
    assert sum(len(p) for kind, _, _, p in frames if kind == Kind.DATA) == 65535
    assert (Kind.RESET, 1) in [(kind, stream) for kind, _, stream, _ in frames]
    assert b"flow2onnx_held_bytes 0.0\n" in server.ask("/metrics")[2]


def test_padding_priority_and_a_small_window(server):
    """What a client may do that gRPC's own do not."""
    head, body = block(HEADERS), request_bytes()
    flags = Flag.END_HEADERS | Flag.PADDED | Flag.PRIORITY
    with connect(server) as connection:
        connection.sendall(
            PREFACE + settings_frame({4: 10})
            + frame(Kind.PRIORITY, 0, 1, bytes(5))
            + frame(Kind.HEADERS, flags, 1, b"\3" + bytes(5) + head + bytes(3))
            + frame(Kind.DATA, Flag.PADDED, 1, b"\2" + body[:50] + bytes(2))
            + frame(Kind.DATA, 0, 1, b"")
            + frame(99, 0, 1, b"of a kind that does not exist")
            + frame(Kind.DATA, Flag.END_STREAM, 1, body[50:])
            + frame(Kind.WINDOW, 0, 1, (10**6).to_bytes(4, "big"))
        )  # fmt: skip
        frames = answered(connection, 1)
    data = b"".join(p for kind, _, stream, p in frames if (kind, stream) == (Kind.DATA, 1))
    answer = MESSAGES["ModelInferResponse"].FromString(data[5:])
    assert answer.model_name == "mlp"
    assert frames[-1][1] & Flag.END_STREAM


def test_draining(tmp_path, serving):
    place(tmp_path, "mlp", mlp())
    server = serving(tmp_path, "--grpc-port", 0, "--linger", 0.2)
    with client.InferenceServerClient(server.grpc) as triton:
        assert triton.is_server_ready()
        assert server.stop() == 0
    with pytest.raises(OSError, match="refused"):
        connect(server)


def test_header_blocks():
    reader = HeaderReader(1000)
    plain = block([("a", "b"), ("a", "c")])
    assert reader.read(plain) == reader.read(plain) == {"a": "b,c"}
    stored = b"\x40\x01k\x01v"  # literal that enters the table
    assert reader.read(stored) == {"k": "v"}
    assert reader.read(b"\xbe") == {"k": "v"}
    assert reader.read(b"\x40\x01k\x01w") == {"k": "w"}
    assert reader.read(b"\xbe") == {"k": "w"}  # the same bytes mean something else now
    assert reader.read(block([("x", "y" * 300)]))["x"] == "y" * 300
    with pytest.raises(Fault):
        reader.read(block([("x", "y" * 2000)]))


@pytest.mark.parametrize(("text", "value"), [
    (None, None), ("20S", 20.0), ("1500m", 1.5), ("2H", 7200.0), ("3u", 3e-6), ("9n", 9e-9),
    ("1M", 60.0),
])  # fmt: skip
def test_timeouts(text, value):
    assert seconds(text) == (None if value is None else pytest.approx(value))


@pytest.mark.parametrize("text", ["S", "-1S", "1", "1x", "123456789S", "1.5S"])
def test_timeouts_that_are_none(text):
    with pytest.raises(CallError, match="grpc-timeout"):
        seconds(text)
