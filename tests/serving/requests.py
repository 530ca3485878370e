"""A request that the perceptron of a repository answers, and whether it still does."""

import json

from tests.serving.models import WIDTH

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


def is_well(server):
    """True if the server gives a right answer."""
    status, _, body = server.ask("/v2/models/mlp/infer", BODY, LENGTH)
    return status == 200 and json.loads(body)["outputs"][0]["data"] == [0.0] * 5


def loops(count):
    """The request of the slow model that keeps it busy for so many rounds."""
    return {"inputs": [{"name": "n", "shape": [1], "datatype": "INT64", "data": [count]}]}
