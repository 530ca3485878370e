"""Safetensors files: what is written is read, by others too; what is wrong is refused."""

import json
import random
import tracemalloc

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from flow2onnx_runtime import BundleError, load_safetensors, save_safetensors
from flow2onnx_runtime.safetensors import read_header

TENSORS = {
    "weight": np.arange(6, dtype=np.float32).reshape(2, 3),
    "half": np.array([1.5, -2], np.float16),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float64),
    "flags": np.array([True, False, True]),
    "naïve/β": np.array([[1], [2]], np.uint8),
}
METADATA = {"format": "test", "note": "ä"}


@pytest.fixture
def path(tmp_path):
    save_safetensors(tmp_path / "t.safetensors", TENSORS, METADATA)
    return tmp_path / "t.safetensors"


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def test_what_is_written_is_read(path):
    found, metadata = load_safetensors(path)
    assert_same(found, TENSORS)
    assert metadata == METADATA
    assert all(array.flags.writeable for array in found.values())


def test_the_safetensors_package_reads_it(path):
    assert_same(safetensors.numpy.load_file(path), TENSORS)


def test_it_reads_what_the_safetensors_package_wrote(tmp_path):
    safetensors.numpy.save_file(TENSORS, tmp_path / "s", METADATA)
    found, metadata = load_safetensors(tmp_path / "s")
    assert_same(found, TENSORS)
    assert metadata == METADATA


def test_equal_content_gives_equal_bytes(path, tmp_path):
    turned = dict(reversed(TENSORS.items()))
    save_safetensors(
        tmp_path / "u", turned | {"weight": np.asfortranarray(TENSORS["weight"])}, METADATA
    )
    assert (tmp_path / "u").read_bytes() == path.read_bytes()


def test_bfloat16(tmp_path):
    values = np.array([1.5, -3], ml_dtypes.bfloat16)
    tensors = {"named": values, "bits": values.view(np.uint16)}
    save_safetensors(tmp_path / "b", tensors, elements={"bits": "bfloat16"})
    found, _ = load_safetensors(tmp_path / "b")
    assert found["named"].tolist() == found["bits"].tolist() == values.view(np.uint16).tolist()
    header = read_header(tmp_path / "b")
    assert {t.element for t in header.tensors.values()} == {"bfloat16"}


def test_offsets_count_from_the_start_of_the_file(path):
    stored = read_header(path).tensors["weight"]
    assert path.read_bytes()[stored.start : stored.end] == TENSORS["weight"].tobytes()


def test_no_tensors(tmp_path):
    save_safetensors(tmp_path / "n", {})
    assert load_safetensors(tmp_path / "n") == ({}, {})


def test_what_cannot_be_written(tmp_path):
    for tensors, elements, says in (
        ({"a": np.array(["x"])}, {}, "element type <U1"),
        ({"a": np.zeros(2)}, {"a": "bfloat16"}, "cannot be bfloat16"),
        ({"__metadata__": np.zeros(2)}, {}, "no tensor can be named"),
    ):
        with pytest.raises(BundleError, match=says):
            save_safetensors(tmp_path / "bad", tensors, elements=elements)
    with pytest.raises(BundleError, match="no folder"):
        save_safetensors(tmp_path / "none" / "bad", {})
    assert not list(tmp_path.iterdir())


def craft(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    path.write_bytes(size.to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HUGE = 10**18  # bytes
WRONG = {
    "no safetensors file": (b"", b"", -1),
    "header should be": ({}, b"", HUGE),
    "not begin with an object": (b"[]", b"", None),
    "not valid JSON": (b"{nonsense}", b"", None),
    "appears twice": (b'{"a":1,"a":2}', b"", None),
    "NaN is no JSON number": (b'{"a":NaN}', b"", None),
    "-Infinity is no JSON number": (b'{"__metadata__":{},"a":{"x":-Infinity}}', b"", None),
    "is a float, not an object": (b'{"a":-0}', b"", None),
    "not valid JSON.*can't encode": (b'{"\\ud800":1}', b"", None),
    "can't decode": (b'{"\xff":1}', b"", None),
    "is an object of|not an object of texts": ({"__metadata__": {"a": 1}}, b"", None),
    "is a number, not an object": ({"a": 1}, b"", None),
    "dtype is missing": ({"a": {"shape": [], "data_offsets": [0, 4]}}, b"1234", None),
    "dtype is F8_E4M3": ({"a": entry("F8_E4M3")}, b"12345678", None),
    "dtype is a number": ({"a": entry(3)}, b"12345678", None),
    "shape holds -1": ({"a": entry(shape=(-1,))}, b"12345678", None),
    "shape holds -0.0": (b'{"a":{"dtype":"F32","shape":[-0],"data_offsets":[0,0]}}', b"", None),
    "shape holds 2.0": ({"a": entry(shape=(2.0,))}, b"12345678", None),
    "shape holds True": ({"a": entry(shape=(True,))}, b"12345678", None),
    "shape has 65 sizes": ({"a": entry(shape=[1] * 65)}, b"12345678", None),
    "data_offsets 3": ({"a": entry(offsets=(0, 4, 8))}, b"12345678", None),
    "not the size of": ({"a": entry(shape=(3,))}, b"12345678", None),
    "not the size of float32": ({"a": entry(shape=(2**52, 2**52))}, b"12345678", None),
    "is \\[8, 0\\]": ({"a": entry(offsets=(8, 0))}, b"12345678", None),
    "tensors take 8 bytes, the file holds 7": ({"a": entry()}, b"1234567", None),
    "the file holds 9": ({"a": entry()}, b"123456789", None),
    "starts at byte 4, expected 0": ({"a": entry(offsets=(4, 12))}, b"1" * 12, None),
    "starts at byte 4, expected 8": (
        {"a": entry(), "b": entry(offsets=(4, 12))},
        b"1" * 12,
        None,
    ),
    "bytes other than 0 and 1": ({"a": entry("BOOL", offsets=(0, 2))}, b"\1\2", None),
    "no array can have shape": ({"a": entry(shape=(2**52, 2**52, 0), offsets=(0, 0))}, b"", None),
}


@pytest.mark.parametrize("says", WRONG)
def test_defects_are_named(tmp_path, says):
    header, data, length = WRONG[says]
    path = tmp_path / "w.safetensors"
    if length == -1:
        path.write_bytes(b"1234")
    else:
        craft(path, header, data, length)
    with pytest.raises(BundleError, match=f"w.safetensors: .*({says})"):
        load_safetensors(path)


def test_deep_nesting_is_refused(tmp_path):
    path = craft(tmp_path / "deep", b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}")
    with pytest.raises(BundleError, match="not valid JSON"):
        load_safetensors(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(BundleError, match="none: cannot be read: No such file"):
        load_safetensors(tmp_path / "none")


def test_every_truncation_is_refused(path):
    content = path.read_bytes()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(BundleError):
            load_safetensors(path)


def test_flipped_bytes_never_crash_or_blow_up(path, tmp_path):
    content, random_ = path.read_bytes(), random.Random(11)
    tracemalloc.start()
    try:
        for _ in range(600):
            damaged = bytearray(content)
            for _ in range(random_.choice((1, 1, 2, 8))):
                damaged[random_.randrange(len(damaged))] = random_.randrange(256)
            path.write_bytes(damaged)
            try:
                found, _ = load_safetensors(path)
            except BundleError:
                continue
            assert sum(a.nbytes for a in found.values()) <= len(content)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
