"""OFRecord files: every record, every feature, and what the decoders make of them."""

from collections.abc import Iterator

import numpy as np

from flow2onnx.data.decoding import Bytes, Raw
from flow2onnx.data.ofrecord import encode_record, read_records
from flow2onnx.dtypes import float32
from tests.fuzz.target import scratch

TOKENS = (b"\x12", b"\x0a", b"\x1a", b"\x22", b"\x2a", b"\xff\xff\xff\xff\x0f",
          b"image", b"\x10\0\0\0\0\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\x7f")  # fmt: skip
LIMIT = 1 << 20


def seeds() -> Iterator[bytes]:
    """Files of one and of several records, with each kind of list."""
    kinds = {
        "bytes": b"\xff\xd8\xff",
        "texts": ["a", "b"],
        "float": np.array([1.5, -2.0], np.float32),
        "double": np.array([1.5], np.float64),
        "int32": np.array([1, -1], np.int32),
        "int64": np.array([2**40], np.int64),
    }
    records = [encode_record({name: value}) for name, value in kinds.items()]
    yield from records
    yield encode_record(kinds)
    yield b"".join(records)


def run(data: bytes) -> None:
    """Read a file whole."""
    path = scratch() / "part-0"
    path.write_bytes(data)
    for record in read_records(path, LIMIT):
        for name, feature in record.features().items():
            assert len(feature) == len(feature.values)
            assert record.feature(name).kind == feature.kind
            decode = Bytes(name) if feature.kind == "bytes" else Raw(name, (len(feature),), float32)
            if feature.kind != "bytes" or len(feature) == 1:
                decode((0, 0), record)
