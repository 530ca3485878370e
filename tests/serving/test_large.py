"""Requests and answers that are read and written beside the event loop: equal to small ones."""

import asyncio
import gzip
import json
import os
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
from flow2onnx_runtime import TensorInfo
from flow2onnx_serve.codec import Codec
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.grpc_encoding import split
from flow2onnx_serve.http_encoding import encode
from flow2onnx_serve.inference import Inference, RequestedOutput
from flow2onnx_serve.messages import MESSAGES
from flow2onnx_serve.ports import port
from flow2onnx_serve.settings import Settings
from flow2onnx_serve.workers import Workers

from tests.serving.models import WIDTH

DRAWS = np.random.default_rng(3)
X = DRAWS.standard_normal((4000, 3)).astype(np.float32).round(3)


def ports(name):
    """An input or output of three columns, as a model has it."""
    return {name: port(TensorInfo(name, ("n", 3), np.dtype("float32"), "float32"))}


PORTS = SimpleNamespace(inputs=ports("x"), outputs=ports("y"))


def ask_json(server, model, entry, **more):
    status, found = server.post(f"/v2/models/{model}/infer", {"inputs": [entry], **more})
    assert status == 200, found
    return found["outputs"][0]


def entry_of(array, **more):
    return {"name": "x", "shape": list(array.shape), "datatype": "FP32", **more}


@pytest.mark.parametrize("rows", [3, 4000])
def test_json_of_any_size_is_the_same(server, rows):
    x = X[:rows]
    found = ask_json(server, "centred", entry_of(x, data=x.tolist()))
    y = np.array(found["data"], np.float32).reshape(x.shape)
    np.testing.assert_allclose(y, x - x.mean(axis=0), atol=1e-5)


@pytest.mark.parametrize(("change", "text"), [
    ({"data": [[1, 2], [3]] * 9000}, "no array"),
    ({"data": [1.5] * 9000}, "elements of data"),
    ({"data": ["a"] * 12_000}, "not FP32"),
    ({"shape": [0.5], "data": [1.5] * 9000}, "no size"),
    ({"name": "z", "data": [1.5] * 9000}, "unexpected input 'z'"),
])  # fmt: skip
def test_large_json_is_refused_in_the_same_words(server, change, text):
    body = {"inputs": [entry_of(X) | change]}
    status, found = server.post("/v2/models/centred/infer", body)
    assert (status, text in found["error"]) == (400, True), found


def test_a_large_body_that_is_no_json(server):
    status, found = server.post("/v2/models/centred/infer", b"[" * 100_000)
    assert (status, "not valid JSON" in found["error"]) == (400, True)


def test_packed_both_ways(server):
    body = gzip.compress(json.dumps({"inputs": [entry_of(X, data=X.tolist())]}).encode())
    headers = {"Content-Encoding": "gzip", "Accept-Encoding": "gzip"}
    status, answer, packed = server.ask("/v2/models/centred/infer", body, headers)
    assert (status, answer["Content-Encoding"]) == (200, "gzip")
    assert len(json.loads(gzip.decompress(packed))["outputs"][0]["data"]) == X.size


def test_classes_of_many_rows(server):
    x = np.zeros((300, WIDTH), np.float32)
    wanted = [{"name": "out/0", "parameters": {"classification": 1}}]
    found = ask_json(server, "plain", entry_of(x, data=x.ravel().tolist()), outputs=wanted)
    assert (found["shape"], found["data"][0].split(":")[1]) == ([300, 1], "0")


@pytest.mark.parametrize("as_list", [True, False])
def test_large_messages(server, as_list):
    entry = {"name": "x", "datatype": "FP32", "shape": X.shape}
    if as_list:
        entry["contents"] = {"fp32_contents": X.ravel()}
    request = MESSAGES["ModelInferRequest"](
        model_name="centred", inputs=[entry], raw_input_contents=[] if as_list else [X.tobytes()]
    )
    with grpc_client.InferenceServerClient(server.grpc) as triton:
        call = triton._channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = MESSAGES["ModelInferResponse"].FromString(call(request.SerializeToString()))
    y = np.frombuffer(answer.raw_output_contents[0], np.float32).reshape(X.shape)
    np.testing.assert_allclose(y, X - X.mean(axis=0), atol=1e-5)


def test_a_message_is_split_as_it_is_read_whole():
    entry = {"name": "x", "datatype": "FP32", "shape": [2], "contents": {"fp64_contents": [1, 2]}}
    request = MESSAGES["ModelInferRequest"](
        model_name="a", model_version="3", id="q", inputs=[entry, entry],
        raw_input_contents=[b"abc", b""],
    )  # fmt: skip
    found = split(request.SerializeToString())
    names = found.message
    assert (names.model_name, names.model_version, names.id) == ("a", "3", "q")
    assert [bytes(tensor) for tensor in found.tensors] == [b"abc", b""]
    rest = MESSAGES["ModelInferRequest"].FromString(b"".join(found.head))
    del request.raw_input_contents[:]
    assert rest == request


@pytest.mark.parametrize(("data", "status"), [
    (b"\x2a\x00" * 10_000, 413), (b"\x2a\x05ab", 400), (b"\x0b", 400), (b"\xff" * 12, 400),
    (b"\x0a\x01\xff", 400), (b"\x3a", 400),
])  # fmt: skip
def test_messages_that_cannot_be_split(data, status):
    with pytest.raises(RequestError) as caught:
        split(data)
    assert caught.value.status == status


def test_long_lists_are_written_as_short_ones(monkeypatch):
    results = [("y", "FP32", X), ("k", "INT64", np.arange(7)), ("z", "FP32", X[:2])]
    wanted = (RequestedOutput("y"), RequestedOutput("k", True), RequestedOutput("z"))
    asked = Inference("id", [], wanted)
    whole, length = encode("m", "1", asked, results)
    monkeypatch.setattr("flow2onnx_serve.http_encoding._PART", 100)
    parts, other = encode("m", "1", asked, results)
    assert json.loads(whole[:length]) == json.loads(parts[:other])
    assert whole[length:] == parts[other:] == np.arange(7).tobytes()


def drive(scenario, **settings):
    async def main():
        codec = Codec(replace(Settings("nowhere"), **settings))
        try:
            return await scenario(codec)
        finally:
            codec.close()

    return asyncio.run(asyncio.wait_for(main(), 60))


def test_what_takes_too_much_memory_is_refused():
    """Empty lists take twenty times the room of their text, which is more than is allowed."""
    body = b'{"inputs":[' + b"[]," * 300_000 + b"[]]}"

    async def scenario(codec):
        with pytest.raises(RequestError) as caught:
            await codec.read_http(body, None, PORTS, lambda size: None)
        with pytest.raises(RequestError, match="no object"):
            await codec.read_http(b"[" + b"1," * 30_000 + b"1]", None, PORTS, lambda size: None)
        return caught.value

    error = drive(scenario, max_body=1 << 20, max_held=4 << 20)
    assert (error.status, "too much memory" in error.message) == (413, True)


def test_what_is_read_apart_is_counted():
    held = []

    async def scenario(codec):
        body = json.dumps({"inputs": [entry_of(X, data=X.tolist())]}).encode()
        return await codec.read_http(bytearray(body), None, PORTS, held.append)

    found = drive(scenario)
    np.testing.assert_array_equal(found.arrays[0], X)
    assert held == [X.nbytes]


def test_nobody_works_for_who_has_left():
    """A call that is given up ends its process; the next one has another."""

    async def main():
        workers = Workers(1, 1 << 28)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await workers.call(time.sleep, 3600)
        assert await workers.call(len, "four") == 4
        with pytest.raises(RequestError, match="ended"):
            await workers.call(os._exit, 3)
        with pytest.raises(RequestError, match="internal error: TypeError"):
            await workers.call(len, 4)
        workers.close()

    asyncio.run(asyncio.wait_for(main(), 60))
