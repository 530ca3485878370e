"""The body of a request over HTTP: JSON, or JSON and bytes; packed bodies before that.

The first byte says how long the JSON is: 0 for all of it, 255 for a packed body.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from flow2onnx_runtime import TensorInfo
from flow2onnx_serve.compression import inflate
from flow2onnx_serve.http_encoding import decode, encode
from flow2onnx_serve.inference import Inference, top_classes
from flow2onnx_serve.ports import port
from numpy.typing import NDArray

TOKENS = (b'"inputs"', b'"name"', b'"datatype"', b'"shape"', b'"data"',
          b'"parameters"', b'"binary_data_size"', b'"FP32"', b'"BOOL"', b'"INT8"',
          b'"UINT64"', b'"FP16"', b'"BF16"', b'"outputs"', b'"classification"',
          b'"binary_data_output"', b'"timeout"', b'"id"', b"[[", b"-1", b"1e309",
          b"18446744073709551616", b"NaN", b"\\ud800", b"null")  # fmt: skip
MOST = 1 << 20
TYPES = {"x": ("float32", ("batch", 3)), "i": ("int8", ("batch",)), "u": ("uint64", ()),
         "b": ("bool", ("batch", "?")), "h": ("float16", (2,)),
         "g": ("bfloat16", (2,))}  # fmt: skip


def _ports() -> dict[str, object]:
    kinds = {"bfloat16": np.uint16}
    infos = [
        TensorInfo(name, shape, np.dtype(kinds.get(element, element)), element)
        for name, (element, shape) in TYPES.items()
    ]
    return {info.name: port(info) for info in infos}


PORTS = _ports()


def seeds() -> Iterator[bytes]:
    """A request of each form: values in JSON, values behind it, packed."""
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2.5, -3]}
    i = {"name": "i", "datatype": "INT8", "shape": [1], "data": [7]}
    u = {"name": "u", "datatype": "UINT64", "shape": [], "data": [9]}
    b = {"name": "b", "datatype": "BOOL", "shape": [1, 2], "data": [True, False]}
    h = {"name": "h", "datatype": "FP16", "shape": [2], "data": [0.5, 1]}
    g = {"name": "g", "datatype": "BF16", "shape": [2], "parameters": {"binary_data_size": 4}}
    body = {"id": "1", "inputs": [x, i, u, b, h, g], "parameters": {"timeout": 5},
            "outputs": [{"name": "x", "parameters": {"classification": 2}}]}  # fmt: skip
    text = json.dumps(body, separators=(",", ":")).encode()
    yield b"\0" + text
    yield len(text).to_bytes(2, "big") + text + b"\0\0\x80\x3f"
    yield b"\xff" + zlib.compress(text)
    yield b"\0" + json.dumps({"inputs": [{**x, "data": [[1, 2], [3]]}]}).encode()


def run(data: bytes) -> None:
    """Decode a body, and answer it with its own inputs."""
    if data[:1] == b"\xff":
        assert len(inflate(data[1:], b"gzip" if data[1:2] == b"\x1f" else b"deflate", MOST)) <= MOST
        return
    is_split = data[:1] != b"\0"
    body, header = (data[2:], int.from_bytes(data[:2], "big")) if is_split else (data[1:], None)
    request = decode(body, header, PORTS, PORTS)
    arrays = dict(zip(PORTS, request.arrays, strict=True))
    encode("m", "1", request, results_of(request, arrays))


def results_of(
    request: Inference, arrays: Mapping[str, NDArray[Any]]
) -> list[tuple[str, str, NDArray[Any]]]:
    """The answer of a model that gives back its inputs."""
    found = []
    for wanted in request.wanted:
        array, kind = arrays[wanted.name], PORTS[wanted.name].datatype
        if wanted.classes:
            array, kind = top_classes(array, wanted.classes, ("a",), array.ndim > 1), "BYTES"
        found.append((wanted.name, kind, array))
    return found
