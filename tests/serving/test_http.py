"""The protocol over HTTP: Triton's own client, and requests written by hand."""

import asyncio
import gzip
import json

import numpy as np
import pytest
import tritonclient.http as client
import tritonclient.http.aio as aio

from tests.serving.models import CLASSES, ELEMENTS, WIDTH
from tests.serving.waiting import held_bytes, wait_until

X = np.random.default_rng(7).standard_normal((3, WIDTH)).astype(np.float32)
MLP = "/v2/models/mlp/infer"


@pytest.fixture
def triton(server):
    with client.InferenceServerClient(server.http) as found:
        yield found


def tensor(name, array, datatype="FP32", is_binary=True):
    found = client.InferInput(name, array.shape, datatype)
    found.set_data_from_numpy(array, binary_data=is_binary)
    return found


def as_json(array, name="x", datatype="FP32"):
    return {"name": name, "shape": list(array.shape), "datatype": datatype,
            "data": array.reshape(-1).tolist()}  # fmt: skip


def test_health_and_metadata(triton, server):
    assert triton.is_server_live()
    assert triton.is_server_ready()
    assert triton.is_model_ready("mlp")
    assert triton.is_model_ready("mlp", "1")
    assert not triton.is_model_ready("mlp", "7")
    assert not triton.is_model_ready("nothing")
    assert triton.get_server_metadata()["name"] == "flow2onnx"
    assert triton.get_model_metadata("mlp") == {
        "name": "mlp", "versions": ["1"], "platform": "onnxruntime_onnx",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}],
        "outputs": [{"name": "out/0", "datatype": "FP32", "shape": [-1, CLASSES]}],
    }  # fmt: skip
    assert triton.get_model_metadata("both", "1")["versions"] == ["1"]
    assert triton.get_model_config("mlp")["max_batch_size"] == 8
    assert triton.get_model_config("plain")["input"][0]["dims"] == [WIDTH]
    rows = {(r["name"], r["version"]): r for r in triton.get_model_repository_index()}
    assert {r["state"] for r in rows.values()} == {"READY"}
    assert ("both", "1") in rows
    assert ("both", "2") in rows
    assert "rows of y depend" in rows["centred", "1"]["reason"]


@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("out", [True, False])
def test_results_are_the_sessions_bit_for_bit(triton, expected, into, out):
    outputs = [client.InferRequestedOutput("out/0", binary_data=out)]
    answer = triton.infer("mlp", [tensor("x", X, is_binary=into)], outputs=outputs, request_id="a7")
    np.testing.assert_array_equal(answer.as_numpy("out/0"), expected("mlp", x=X)["out/0"])
    assert answer.get_response()["id"] == "a7"
    assert answer.get_response()["model_version"] == "1"


def test_versions(triton, expected):
    for given, version in (("", 2), ("1", 1), ("2", 2)):
        answer = triton.infer("both", [tensor("x", X)], model_version=given)
        wanted = expected("both", version, x=X)["out/0"]
        np.testing.assert_array_equal(answer.as_numpy("out/0"), wanted)
        assert answer.get_response()["model_version"] == str(version)


def draws(element):
    values = np.random.default_rng(3).integers(0, 2, (2, 3))
    return values.astype(np.uint16 if element == "bfloat16" else element)


@pytest.mark.parametrize("is_binary", [True, False])
def test_every_element_type(server, is_binary):
    arrays = {name: draws(name) for name in ELEMENTS}
    names = {m["name"]: m["datatype"]
             for m in json.loads(server.ask("/v2/models/types")[2])["inputs"]}  # fmt: skip
    entries, data = [], b""
    for name, array in arrays.items():
        if is_binary or name == "bfloat16":
            entries.append({"name": name, "shape": [2, 3], "datatype": names[name],
                            "parameters": {"binary_data_size": array.nbytes}})  # fmt: skip
            data += array.tobytes()
        else:
            entries.append(as_json(array, name, names[name]))
    head = json.dumps({"inputs": entries, "parameters": {"binary_data_output": True}}).encode()
    given = {"Inference-Header-Content-Length": str(len(head))}
    status, headers, body = server.ask("/v2/models/types/infer", head + data, given)
    assert status == 200, body
    length = int(headers["Inference-Header-Content-Length"])
    assert headers["Content-Type"] == "application/octet-stream"
    found = json.loads(body[:length])["outputs"]
    assert [o["datatype"] for o in found] == list(names.values())
    assert body[length:] == b"".join(a.tobytes() for a in arrays.values())


def test_the_asyncio_client(server, expected):
    inputs = [X[:1] + i for i in range(16)]

    async def ask():
        async with aio.InferenceServerClient(server.http) as found:
            calls = [found.infer("centred", [tensor("x", x[:, :3].copy())]) for x in inputs]
            return await asyncio.gather(*calls)

    for x, answer in zip(inputs, asyncio.run(ask()), strict=True):
        wanted = expected("centred", x=x[:, :3])["y"]
        np.testing.assert_array_equal(answer.as_numpy("y"), wanted)


def test_many_at_once_are_batched(server, expected):
    inputs = [X[:1] + i for i in range(64)]

    async def ask():
        async with aio.InferenceServerClient(server.http, conn_limit=64) as found:
            return await asyncio.gather(*(found.infer("plain", [tensor("x", x)]) for x in inputs))

    for x, answer in zip(inputs, asyncio.run(ask()), strict=True):
        wanted = expected("plain", x=x)["out/0"]
        np.testing.assert_allclose(answer.as_numpy("out/0"), wanted, rtol=1e-5, atol=1e-5)
    with client.InferenceServerClient(server.http) as found:
        statistics = found.get_inference_statistics("plain")["model_stats"][0]
    assert statistics["inference_count"] >= 64
    assert statistics["execution_count"] < statistics["inference_count"]
    assert statistics["inference_stats"]["success"]["count"] >= 64


def test_one_bad_request_in_a_batch_fails_alone(server):
    async def ask():
        async with aio.InferenceServerClient(server.http, conn_limit=32) as found:
            given = [np.array([i], np.int64) for i in (*range(10), 10**6)] * 2
            calls = [found.infer("lookup", [tensor("i", a, "INT64")]) for a in given]
            return given, await asyncio.gather(*calls, return_exceptions=True)

    for array, answer in zip(*asyncio.run(ask()), strict=True):
        if array[0] < 10:
            np.testing.assert_array_equal(
                answer.as_numpy("row"), [[2 * array[0], 2 * array[0] + 1]]
            )
        else:
            assert isinstance(answer, client.InferenceServerException)
            assert "400" in answer.status()


def test_classes_with_labels(triton, expected):
    outputs = [client.InferRequestedOutput("out/0", class_count=2)]
    texts = triton.infer("mlp", [tensor("x", X)], outputs=outputs).as_numpy("out/0")
    values = expected("mlp", x=X)["out/0"]
    labels = ["ant", "bee", "cat", "dog"]
    for row, line in zip(values, texts, strict=True):
        best = np.argsort(-row)[:2]
        found = [f"{row[i]:f}:{i}" + (f":{labels[i]}" if i < 4 else "") for i in best]
        assert [t.decode() for t in line] == found


@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_compression(triton, expected, algorithm):
    answer = triton.infer("centred", [tensor("x", np.ones((100, 3), np.float32))],
                          request_compression_algorithm=algorithm,
                          response_compression_algorithm=algorithm)  # fmt: skip
    assert not answer.as_numpy("y").any()


def test_json_without_a_content_type(server, expected):
    status, found = server.post(MLP, {"inputs": [as_json(X)]}, {"Content-Type": ""})
    assert status == 200
    wanted = expected("mlp", x=X)["out/0"]
    np.testing.assert_array_equal(np.float32(found["outputs"][0]["data"]), wanted.reshape(-1))
    assert found["outputs"][0]["shape"] == [3, CLASSES]


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_scalar(triton, is_binary):
    x = np.array(3, np.float32)
    outputs = [client.InferRequestedOutput(n, binary_data=is_binary) for n in "yz"]
    answer = triton.infer("scalar", [tensor("x", x, is_binary=is_binary)], outputs=outputs)
    assert [answer.as_numpy(n).shape for n in "yz"] == [(), ()]
    assert [float(answer.as_numpy(n)) for n in "yz"] == [1.5, 9.0]


@pytest.mark.parametrize("path", ["systemsharedmemory/status", "cudasharedmemory/region/r/status"])
def test_shared_memory_is_refused(server, path):
    status, _, body = server.ask(f"/v2/{path}")
    assert (status, "shared memory is not served" in json.loads(body)["error"]) == (404, True)


def request(**changes):
    return {"inputs": [as_json(X) | changes]}


WRONG = [
    (b"", "not valid JSON"),
    (b"[1]", "no object"),
    (b"{" * 100_000, "not valid JSON"),
    (b"[" * 100_000, "not valid JSON"),
    (b'{"inputs": NaN}', "NaN is no JSON number"),
    (b'\xff{"inputs": []}', "not valid JSON"),
    ({}, "no list 'inputs'"),
    ({"inputs": []}, "input 'x' is missing"),
    ({"inputs": [3]}, "is no object"),
    (request(name="z"), "unexpected input 'z'"),
    (request(name="\ud800"), "unexpected input"),
    (request(name=None), "unexpected input None"),
    (request(datatype="FP64"), "is FP32, the request says 'FP64'"),
    (request(shape=None), "needs a shape"),
    (request(shape=[-1, 16]), "no size"),
    (request(shape=[True, 16]), "no size"),
    (request(shape=[2**60, 2**60]), "no size"),
    (request(shape=[2**40, 2**40]), "no array can have"),
    (request(shape=[0, 2**47, 2**47], data=[]), "no array can have"),
    (request(shape=[4, 16]), "elements of data"),
    (request(shape=[48]), "has shape [48], the model takes [-1, 16]"),
    (request(shape=[16, 3]), "has shape"),
    (request(data="x"), "a list"),
    (request(data=[1] * 47 + ["a"]), "not FP32"),
    (request(data=[[1, 2], [3]]), "no array"),
    (request(data=[True] * 48), "not FP32"),
    (request(parameters=3), "'parameters' is no object"),
    (request(parameters={"binary_data_size": 8}), "both data and"),
    (request(parameters={"shared_memory_region": "r"}), "shared memory"),
    ({"inputs": [as_json(X), as_json(X)]}, "given twice"),
    (request() | {"id": 3}, "not text"),
    (request() | {"outputs": 3}, "no list of objects"),
    (request() | {"outputs": [{"name": "z"}]}, "unexpected output 'z'"),
    (request() | {"outputs": [{"name": "out/0"}] * 2}, "names an output twice"),
    (request() | {"outputs": [{"name": "out/0", "parameters": {"binary_data": 1}}]}, "neither"),
    (request() | {"outputs": [{"name": "out/0", "parameters": {"classification": -1}}]}, "classes"),
    (request() | {"parameters": {"timeout": "soon"}}, "microseconds"),
    (request() | {"parameters": {"sequence_id": 3}}, "sequences"),
    ({"inputs": [as_json(np.zeros((9, WIDTH)))]}, "max_batch_size of 8"),
]


@pytest.mark.parametrize(("body", "text"), WRONG, ids=[t for _, t in WRONG])
def test_what_is_wrong_with_a_request(server, body, text):
    status, found = server.post(MLP, body)
    assert status == 400
    assert text in found["error"]
    assert list(found) == ["error"]


def test_integers_out_of_range(server):
    entry = as_json(np.array([2**63], np.uint64), "i", "INT64")
    status, found = server.post("/v2/models/lookup/infer", {"inputs": [entry]})
    assert (status, "outside the range" in found["error"]) == (400, True)
    entry["data"] = [2**70]
    assert server.post("/v2/models/lookup/infer", {"inputs": [entry]})[0] == 400
    entry["data"] = [0.5]
    status, found = server.post("/v2/models/lookup/infer", {"inputs": [entry]})
    assert (status, "not INT64" in found["error"]) == (400, True)


BYTES = {"name": "x", "shape": [1, WIDTH], "datatype": "FP32",
         "parameters": {"binary_data_size": 4 * WIDTH}}  # fmt: skip
HEAD = json.dumps({"inputs": [BYTES]}).encode()


@pytest.mark.parametrize(("length", "data", "text"), [
    (len(HEAD), b"", "has 0 bytes of data"),
    (len(HEAD), bytes(4 * WIDTH - 1), "bytes of data"),
    (len(HEAD), bytes(4 * WIDTH + 1), "bytes follow"),
    (len(HEAD) - 1, bytes(4 * WIDTH), "not valid JSON"),
    (10**6, bytes(4 * WIDTH), "exceeds"),
    ("-3", b"", "Inference-Header-Content-Length is"),
    ("many", b"", "Inference-Header-Content-Length is"),
])  # fmt: skip
def test_what_is_wrong_with_bytes(server, length, data, text):
    headers = {"Inference-Header-Content-Length": str(length)}
    status, found = server.post(MLP, HEAD + data, headers)
    assert status == 400
    assert text in found["error"]


def test_what_json_cannot_carry(server):
    entry = as_json(np.zeros((1, 3)))
    entry["data"] = [1e308, 0, 0]  # infinite as FP32, so its difference to the mean is none
    status, found = server.post("/v2/models/centred/infer", {"inputs": [entry]})
    assert (status, "NaN or infinity" in found["error"]) == (400, True)
    entry = {"name": "bfloat16", "shape": [2, 3], "datatype": "BF16", "data": [0] * 6}
    status, found = server.post("/v2/models/types/infer", {"inputs": [entry]})
    assert (status, "JSON cannot carry" in found["error"]) == (400, True)


@pytest.mark.parametrize(("path", "method", "status"), [
    ("/v2/models/nothing", "GET", 404),
    ("/v2/models/nothing/infer", "POST", 404),
    ("/v2/models/mlp/versions/9/infer", "POST", 404),
    ("/v2/models/mlp/versions/01/infer", "POST", 404),
    ("/v2/models/..%2F..%2Fetc/infer", "POST", 404),
    ("/v2/models/mlp%2F1/infer", "POST", 404),
    ("/v2/models/%00/infer", "POST", 404),
    ("/v2/models/%ff/ready", "GET", 404),
    ("/v2/models//infer", "POST", 404),
    ("/v2/repository/models/..%2Fmlp/load", "POST", 404),
    ("/v2/repository/models/nothing/unload", "POST", 404),
    ("/nowhere", "GET", 404),
    ("/v2/", "GET", 404),
    ("/v2/models/mlp/infer", "GET", 404),
    ("/v2", "DELETE", 405),
    ("/v2/repository/index", "GET", 405),
])  # fmt: skip
def test_paths_that_lead_nowhere(server, path, method, status):
    found, headers, body = server.ask(path, b"{}" if method == "POST" else None, method=method)
    assert found == status
    assert list(json.loads(body)) == ["error"]
    assert headers["Content-Type"] == "application/json"


def test_bodies_that_are_not_what_they_say(server):
    for encoding, body, text in [
        ("br", b"x", "not known"),
        ("gzip", b"not gzip", "not gzip"),
        ("gzip", gzip.compress(b"{}" * 1000)[:-9], "cut off"),
    ]:
        status, found = server.post(MLP, body, {"Content-Encoding": encoding})
        assert (status, text in found["error"]) == (400, True), found
    bomb = gzip.compress(bytes(100 << 20))
    assert server.post(MLP, bomb, {"Content-Encoding": "gzip"})[0] == 413


def test_metrics(server):
    server.post(MLP, {"inputs": [as_json(X)]})
    server.post(MLP, {"inputs": [as_json(np.zeros((9, WIDTH)))]})
    wait_until(lambda: held_bytes(server) == 0)
    status, headers, body = server.ask("/metrics")
    text = body.decode()
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    for wanted in ('flow2onnx_requests_total{code="200",model="mlp"}',
                   'flow2onnx_requests_total{code="400",model="mlp"}',
                   'flow2onnx_request_seconds_bucket{le="0.001",model="mlp"}',
                   'flow2onnx_queue_seconds_count{model="mlp"}',
                   'flow2onnx_batch_rows_bucket{le="4.0",model="mlp"}',
                   'flow2onnx_queue_length{model="mlp"} 0.0',
                   'flow2onnx_model_version{model="both"} 2.0',
                   'flow2onnx_held_bytes 0.0'):  # fmt: skip
        assert wanted in text


@pytest.mark.parametrize("path", [
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/mlp", "/v2/models/mlp/ready",
    "/v2/models/mlp/config", "/v2/models/mlp/stats", "/v2/models/both/versions/1", "/metrics",
    "/v2/models/stats", "/openapi.json", "/v2/models/nothing", "/nowhere",
])  # fmt: skip
def test_head_is_get_without_a_body(server, path):
    status, headers, body = server.ask(path, method="HEAD")
    wanted = server.ask(path)
    assert (status, headers["Content-Type"], body) == (wanted[0], wanted[1]["Content-Type"], b"")


@pytest.mark.parametrize("path", ["/v2/models/mlp/infer", "/v2/repository/index"])
def test_head_where_there_is_no_get(server, path):
    assert server.ask(path, method="HEAD")[0] in (404, 405)
