"""The message of a request over gRPC: parsed, decoded, answered with its own inputs."""

from collections.abc import Iterator

import numpy as np
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.grpc_encoding import decode, encode
from flow2onnx_serve.messages import MESSAGES
from google.protobuf.message import DecodeError

from tests.fuzz.targets.http_request import PORTS, results_of

TOKENS = (b"FP32", b"INT8", b"UINT64", b"BOOL", b"FP16", b"BF16", b"classification",
          b"timeout", b"sequence_id", b"\x3a", b"\x2a",
          b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")  # fmt: skip
REQUEST = MESSAGES["ModelInferRequest"]


def seeds() -> Iterator[bytes]:
    """Requests with bytes, with typed lists, and with parameters."""
    content = {"x": np.ones((1, 3), np.float32), "i": np.ones(1, np.int8),
               "u": np.array(9, np.uint64), "b": np.ones((1, 2), bool),
               "h": np.ones(2, np.float16), "g": np.ones(2, np.uint16)}  # fmt: skip
    inputs = [{"name": name, "datatype": PORTS[name].datatype, "shape": array.shape}
              for name, array in content.items()]  # fmt: skip
    raw = [array.tobytes() for array in content.values()]
    yield REQUEST(model_name="m", id="1", inputs=inputs, raw_input_contents=raw).SerializeToString()
    listed = [{**inputs[0], "contents": {"fp32_contents": [1, 2, 3]}},
              {**inputs[1], "contents": {"int_contents": [300]}}]  # fmt: skip
    yield REQUEST(inputs=listed).SerializeToString()
    yield REQUEST(
        inputs=inputs, raw_input_contents=raw, parameters={"timeout": {"int64_param": 5}},
        outputs=[{"name": "x", "parameters": {"classification": {"int64_param": 2}}}],
    ).SerializeToString()  # fmt: skip


def run(data: bytes) -> None:
    """Decode a message."""
    try:
        message = REQUEST.FromString(data)
    except DecodeError as error:
        raise RequestError(f"the message cannot be read: {error}") from error
    request = decode(message, PORTS, PORTS)
    arrays = dict(zip(PORTS, request.arrays, strict=True))
    encode("m", "1", request.id, results_of(request, arrays)).SerializeToString()
