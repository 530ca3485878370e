"""config.pbtxt of a model repository: read, and told again in the protocol's JSON."""

import json
from collections.abc import Iterator

from flow2onnx_runtime.model_config import read_config

from tests.fuzz.target import scratch

TOKENS = (b"max_batch_size", b"dynamic_batching", b"instance_group",
          b"version_policy", b"specific", b"versions", b"input", b"dims",
          b"TYPE_FP32", b"reshape", b"model_warmup", b"key", b"value", b"parameters",
          b"label_filename", b"default_model_filename", b"-1",
          b"9223372036854775807", b"2147483648", b"nan", b"\\377")  # fmt: skip
TEXT = b"""backend: "onnxruntime" max_batch_size: 8
dynamic_batching { max_queue_delay_microseconds: 5 }
input [{ name: "x" data_type: TYPE_FP32 dims: [3] },
{ name: "n" data_type: TYPE_INT64 dims: [1] reshape { shape: [] } }]
output { name: "y" data_type: TYPE_BOOL dims: [-1] label_filename: "l" }
instance_group { count: 2 } version_policy { specific { versions: [1, 3] } }
model_warmup { name: "w" batch_size: 1 inputs { key: "x" value { dims: [3] zero_data: true } } }
parameters { key: "a" value { string_value: "b" } }
optimization { execution_accelerators { gpu_execution_accelerator { name: "tensorrt" } } }"""


def seeds() -> Iterator[bytes]:
    """Configurations with everything, and with nothing."""
    yield TEXT
    yield b'platform: "onnxruntime_onnx" version_policy { all {} }'
    yield b""


def run(data: bytes) -> None:
    """Read a configuration."""
    path = scratch() / "config.pbtxt"
    path.write_bytes(data)
    json.dumps(read_config(path).to_dict())
