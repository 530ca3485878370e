"""Requests with something wrong, and the answers of us and of the real Triton.

Where the two differ, ours is the status that the protocol asks for: a request that is wrong gets
one of the four hundreds. Triton answers 500 to JSON that it cannot read.
"""

import json

import numpy as np
import pytest
import tritonclient.grpc
from tritonclient.grpc import service_pb2

from tests.serving.triton_pair import code_of, error_of

SIZE = 144
IMAGE = {"name": "images", "datatype": "FP32", "shape": [1, 1, 12, 12], "data": [0.5] * SIZE}
BINARY = {key: IMAGE[key] for key in ("name", "datatype", "shape")}
BYTES = bytes(4 * SIZE)
SCORES = {"name": "scores", "datatype": "FP32", "shape": [1, 5], "data": [1.0] * 5}
NUMBER = {"name": "number", "datatype": "INT64", "shape": [1, 5], "data": [1] * 5}
INDEX = {"name": "indices", "datatype": "INT32", "shape": [1, 1], "data": [1]}
LENGTH = "Inference-Header-Content-Length"


def one(**changes):
    return {"inputs": [IMAGE | changes]}


def rows(count, others=None):
    """Both inputs of `pair`."""
    second = count if others is None else others
    return {"inputs": [SCORES | {"shape": [count, 5], "data": [1.0] * 5 * count},
                       NUMBER | {"shape": [second, 5], "data": [1] * 5 * second}]}  # fmt: skip


def outputs(*items):
    return one() | {"outputs": list(items)}


def classes(count):
    return outputs({"name": "out/0", "parameters": {"classification": count}})


# name: path behind /v2/models/, JSON or text of the request, our status, Triton's
REQUESTS = {
    "unknown model": ("none/infer", one(), 404, 404),
    "unknown version": ("conv/versions/9/infer", one(), 404, 404),
    "no number": ("conv/versions/x/infer", one(), 404, 404),
    "other rank": ("conv/infer", one(shape=[1, SIZE]), 400, 400),
    "other size": ("conv/infer", one(shape=[1, 1, 12, 13], data=[0.5] * 156), 400, 400),
    "no batch": ("conv/infer", one(shape=[1, 12, 12]), 400, 400),
    "no column": ("lookup/infer", {"inputs": [INDEX | {"shape": [1]}]}, 400, 400),
    "negative size": ("conv/infer", one(shape=[-1, 1, 12, 12]), 400, 500),
    "shape of text": ("conv/infer", one(shape=["1", 1, 12, 12]), 400, 500),
    "batch of none": ("conv/infer", one(shape=[0, 1, 12, 12], data=[]), 400, 400),
    "batch too large": ("pair/infer", rows(5), 400, 400),
    "batches differ": ("pair/infer", rows(2, 3), 400, 400),
    "less data": ("conv/infer", one(data=[0.5] * (SIZE - 1)), 400, 500),
    "more data": ("conv/infer", one(data=[0.5] * (SIZE + 1)), 400, 500),
    "no list": ("conv/infer", one(data=None), 400, 500),
    "text for numbers": ("conv/infer", one(data=["a"] * SIZE), 400, 500),
    "fractions for whole": ("lookup/infer", {"inputs": [INDEX | {"data": [1.5]}]}, 400, 500),
    # Triton cuts off what does not fit, and looks up the row 0
    "number too large": ("lookup/infer", {"inputs": [INDEX | {"data": [2**40]}]}, 400, 200),
    "other datatype": ("conv/infer", one(datatype="INT32", data=[1] * SIZE), 400, 400),
    "unknown datatype": ("conv/infer", one(datatype="FP31"), 400, 400),
    "missing input": ("pair/infer", {"inputs": [SCORES]}, 400, 400),
    "extra input": ("conv/infer", {"inputs": [IMAGE, IMAGE | {"name": "more"}]}, 400, 400),
    "input twice": ("conv/infer", {"inputs": [IMAGE, IMAGE]}, 400, 400),
    "no inputs": ("conv/infer", {"inputs": []}, 400, 400),
    "no key of inputs": ("conv/infer", {}, 400, 500),
    "unknown output": ("conv/infer", outputs({"name": "more"}), 400, 400),
    # Triton gives it once
    "output twice": ("conv/infer", outputs({"name": "out/0"}, {"name": "out/0"}), 400, 200),
    "negative classes": ("conv/infer", classes(-1), 400, 500),
    "id a number": ("conv/infer", one() | {"id": 5}, 400, 500),
    "cut off": ("conv/infer", '{"inputs": [', 400, 500),
    "no object": ("conv/infer", "[]", 400, 500),
    "empty": ("conv/infer", "", 400, 400),
    # a backend in Python cannot tell a request's fault from the model's
    "values the model refuses": ("lookup/infer", {"inputs": [INDEX | {"data": [99]}]}, 400, 500),
    # Triton takes the number of a sequence for a model that knows none
    "sequence": ("conv/infer", one() | {"parameters": {"sequence_id": 3}}, 400, 200),
    "data twice": ("conv/infer", one(parameters={"binary_data_size": 4 * SIZE}), 400, 400),
}


def compare(both, path, body, headers, statuses):
    answers = [server.ask(path, body, headers) for server in both.each()]
    assert tuple(status for status, _ in answers) == statuses, answers
    for status, text in answers:
        if status >= 400:
            error_of(text)


@pytest.mark.parametrize("name", REQUESTS)
def test_json(both, name):
    path, request, *statuses = REQUESTS[name]
    body = request if isinstance(request, str) else json.dumps(request)
    compare(both, f"/v2/models/{path}", body.encode(), {}, tuple(statuses))


# name: binary_data_size, bytes, the length that the header gives (None: the right one), statuses
BINARIES = {
    "fewer bytes": (4 * SIZE, BYTES[1:], None, 400, 400),
    "more bytes": (4 * SIZE, BYTES + b"abcd", None, 400, 400),
    "another size": (4 * SIZE - 4, BYTES[4:], None, 400, 400),
    "negative size": (-1, BYTES, None, 400, 500),
    "size of text": ("576", BYTES, None, 400, 500),
    "header behind the end": (4 * SIZE, BYTES, "99999", 400, 400),
    "header cuts the JSON": (4 * SIZE, BYTES, "10", 400, 500),
    "header no number": (4 * SIZE, BYTES, "abc", 400, 400),
    "no header": (4 * SIZE, BYTES, "", 400, 400),
}


@pytest.mark.parametrize("name", BINARIES)
def test_bytes(both, name):
    size, data, length, *statuses = BINARIES[name]
    head = json.dumps({"inputs": [BINARY | {"parameters": {"binary_data_size": size}}]}).encode()
    length = str(len(head)) if length is None else length
    headers = {LENGTH: length} if length else {}
    compare(both, "/v2/models/conv/infer", head + data, headers, tuple(statuses))


PATHS = {
    "metadata of no model": ("/v2/models/none", 404, 404),
    "metadata of no version": ("/v2/models/conv/versions/7", 404, 404),
    "configuration of no model": ("/v2/models/none/config", 404, 404),
    "nothing": ("/v2/nothing", 404, 404),
    "no protocol": ("/nothing", 404, 404),
    # the protocol asks for one of the four hundreds
    "readiness of no model": ("/v2/models/none/ready", 404, 400),
    "readiness of no version": ("/v2/models/conv/versions/7/ready", 404, 400),
    "statistics of no model": ("/v2/models/none/stats", 404, 400),
}


@pytest.mark.parametrize("name", PATHS)
def test_paths(both, name):
    path, *statuses = PATHS[name]
    compare(both, path, None, {}, tuple(statuses))


def message(model="conv", version="", inputs=None, data=(BYTES,), names=(), **parameters):
    item = BINARY if inputs is None else None
    found = service_pb2.ModelInferRequest(
        model_name=model, model_version=version, inputs=[item] if item else inputs,
        raw_input_contents=data, outputs=[{"name": name} for name in names],
    )  # fmt: skip
    for name, value in parameters.items():
        found.parameters[name].int64_param = value
    return found


def sized(item, *shape):
    return {key: item[key] for key in ("name", "datatype")} | {"shape": shape}


MESSAGES = {
    "right": (message(), "OK", "OK"),
    "unknown model": (message("none"), "NOT_FOUND", "NOT_FOUND"),
    "unknown version": (message(version="9"), "NOT_FOUND", "NOT_FOUND"),
    "no number": (message(version="x"), "NOT_FOUND", "INVALID_ARGUMENT"),
    "other rank": (message(inputs=[sized(IMAGE, 1, SIZE)]),) + ("INVALID_ARGUMENT",) * 2,
    "other datatype": (
        message(inputs=[BINARY | {"datatype": "INT32"}]), "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ),
    "unknown datatype": (
        message(inputs=[BINARY | {"datatype": "FP31"}]), "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ),
    "fewer bytes": (message(data=[BYTES[1:]]), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "no bytes": (message(data=[]), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    # Triton leaves what is too much unread
    "bytes of two": (message(data=[BYTES, BYTES]), "INVALID_ARGUMENT", "OK"),
    "no inputs": (message(inputs=[], data=[]), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "missing input": (
        message("pair", inputs=[sized(SCORES, 1, 5)], data=[bytes(20)]),
        "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ),
    "extra input": (
        message(inputs=[BINARY, BINARY | {"name": "more"}], data=[BYTES, BYTES]),
        "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ),
    "batch too large": (
        message("pair", inputs=[sized(SCORES, 5, 5), sized(NUMBER, 5, 5)],
                data=[bytes(100), bytes(200)]),
        "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ),
    "negative size": (
        message(inputs=[sized(IMAGE, -1, 1, 12, 12)]), "INVALID_ARGUMENT", "INVALID_ARGUMENT",
    ),
    "unknown output": (message(names=["more"]), "INVALID_ARGUMENT", "INVALID_ARGUMENT"),
    "values the model refuses": (
        message("lookup", inputs=[sized(INDEX, 1, 1)], data=[np.int32([99]).tobytes()]),
        "INVALID_ARGUMENT", "INTERNAL",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MESSAGES)
def test_messages(both, name):
    request, *wanted = MESSAGES[name]
    found = []
    for server in both.each():
        with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
            call = client._client_stub.ModelInfer.future(request, timeout=60)
            found.append(call.code().name)
            assert call.details() or call.code().name == "OK"
    assert found == wanted


CALLS = ["get_model_metadata", "get_model_config", "get_inference_statistics"]


@pytest.mark.parametrize("method", CALLS)
def test_calls_about_no_model(both, method):
    codes = [code_of(server, "grpc", method, "none") for server in both.each()]
    assert codes[0] == "NOT_FOUND"
    # Triton's statistics say that the model is not available
    assert codes[1] == ("INVALID_ARGUMENT" if "statistics" in method else "NOT_FOUND")
