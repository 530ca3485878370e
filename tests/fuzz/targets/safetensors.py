"""Safetensors files: read here, and whatever is accepted by the format's own reader too."""

from collections.abc import Iterator

import ml_dtypes
import numpy as np
from flow2onnx_runtime import load_safetensors, save_safetensors
from safetensors import deserialize

from tests.fuzz.target import scratch

TOKENS = (b'"__metadata__"', b'"dtype"', b'"shape"', b'"data_offsets"', b'"F32"',
          b'"BF16"', b'"BOOL"', b'"I64"', b"[0,0]", b"[]", b"-0", b"0.0", b"\\ud800",
          b"NaN", b"\x02\0\0\0\0\0\0\0{}")  # fmt: skip


def seeds() -> Iterator[bytes]:
    """Files of our own writer: no tensors, one, several of several types, with metadata."""
    path = scratch() / "seed.safetensors"
    several = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.zeros((0, 4), np.int64),
        "d": np.array(7, np.uint8),
        "e": np.ones(2, ml_dtypes.bfloat16),
    }
    for tensors, metadata in (({}, {}), ({"x": several["a"]}, {}), (several, {"format": "pt"})):
        save_safetensors(path, tensors, metadata)
        yield path.read_bytes()
    save_safetensors(path, several, {"steps": "3"}, signs=True)
    yield path.read_bytes()


def run(data: bytes) -> None:
    """Read a file; the format's own reader has the same tensors."""
    path = scratch() / "tensors.safetensors"
    path.write_bytes(data)
    tensors, _ = load_safetensors(path)
    others = {name: entry for name, entry in deserialize(data)}  # its error is none of ours
    assert tensors.keys() == others.keys(), "another reader finds other tensors"
    for name, array in tensors.items():
        assert list(array.shape) == others[name]["shape"]
        assert array.tobytes() == bytes(others[name]["data"])
