"""A checkpoint folder as OneFlow writes it: the `meta` of a variable, and the value it tells of."""

from collections.abc import Iterator

from flow2onnx.checkpoint.meta import meta_text
from flow2onnx.checkpoint.store import SavedVariable, load
from flow2onnx.dtypes import bfloat16, float32, int8
from tests.fuzz.target import scratch

TOKENS = (b"shape", b"dim", b"data_type", b"kFloat", b"kOFRecord", b"kBFloat16",
          b": ", b"{", b"}", b"-1", b"0", b"4611686018427387904",
          b"9223372036854775808", b"#", b"\\377")  # fmt: skip
VALUE = bytes(range(16))


def seeds() -> Iterator[bytes]:
    """Texts of variables of 16 bytes, and of none."""
    for shape, dtype in (((2, 2), float32), ((16,), int8), ((8,), bfloat16), ((0, 3), float32)):
        yield meta_text(shape, dtype).encode()


def run(data: bytes) -> None:
    """Load a variable with this `meta`, and a value that is empty where a size is said to be."""
    home = scratch() / "snapshot_1" / "w"
    home.mkdir(parents=True, exist_ok=True)
    (home / "out").write_bytes(b"" if b"dim: 0" in data else VALUE)
    (home / "meta").write_bytes(data)
    found = load(home)
    assert isinstance(found, SavedVariable)
    assert found.numpy().shape == found.shape
