"""Saving and loading: what goes in comes out, and the bytes are OneFlow's."""

import os
import struct
from datetime import datetime

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flow2onnx.checkpoint.store import latest, list_checkpoints, load, new_snapshot_name, save
from flow2onnx.dtypes import bool_, dtypes, float32, float64, int8, uint8
from flow2onnx.errors import CheckpointError

# OneFlow's own files, as text_format and a plain write leave them
RECORDED = {
    "w/out": struct.pack("<6f", 0, 1, 2, 3, 4, 5),
    "w/meta": b"shape {\n  dim: 2\n  dim: 3\n}\ndata_type: kFloat\n",
    "hidden-bias/out": struct.pack("<2d", 1.5, -2),
    "hidden-bias/meta": b"shape {\n  dim: 2\n}\ndata_type: kDouble\n",
    "System-Train-TrainStep-job/out": b"\x07" + 7 * b"\0",
    "System-Train-TrainStep-job/meta": b"shape {\n  dim: 1\n}\ndata_type: kInt64\n",
    "scale/out": b"\x00\x3c",
    "scale/meta": b"shape {\n}\ndata_type: kFloat16\n",
    "mask/out": b"\x01\xff",
    "mask/meta": b"shape {\n  dim: 2\n}\ndata_type: kInt8\n",
    "pixels/out": b"\x01\xff",
    "pixels/meta": b"shape {\n  dim: 2\n}\ndata_type: kUInt8\n",
    "ids/out": b"\x01\x02\x00\x00",
    "ids/meta": b"shape {\n  dim: 1\n}\ndata_type: kInt32\n",
    "half/out": b"\x80\x3f",
    "half/meta": b"shape {\n  dim: 1\n}\ndata_type: kBFloat16\n",
    "snapshot_done": b"",
}
RECORDED_VALUES = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "hidden-bias": np.array([1.5, -2]),
    "System-Train-TrainStep-job": np.array([7]),
    "scale": np.array(1, np.float16),
    "mask": np.array([1, -1], np.int8),
    "pixels": np.array([1, 255], np.uint8),
    "ids": np.array([513], np.int32),
    "half": np.array([1], ml_dtypes.bfloat16),
}


def write(root, files):
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def assert_holds(loaded, values):
    assert sorted(loaded) == sorted(values)
    for name, value in values.items():
        saved = loaded[name]
        assert (saved.name, saved.shape, saved.dtype.numpy) == (name, value.shape, value.dtype)
        assert saved.numpy().dtype == value.dtype
        assert saved.numpy().shape == value.shape
        assert saved.numpy().tobytes() == value.tobytes()


def test_every_dtype_and_shape_survives(target, values):
    save(target, values)
    assert_holds(load(target), values)
    assert_holds(load(str(target)), values)


def test_the_directory_layout_is_oneflows(tmp_path):
    save(tmp_path / "new", RECORDED_VALUES)
    root = tmp_path / "new"
    written = {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}
    assert written == RECORDED


def test_oneflows_files_are_read(tmp_path):
    loaded = load(write(tmp_path, RECORDED))
    assert_holds(loaded, RECORDED_VALUES)
    assert loaded["w"].file_path == str(tmp_path / "w" / "out")
    assert loaded["mask"].dtype is int8


@pytest.mark.parametrize(
    ("meta", "dtype"),
    [
        ("shape { dim: 2 dim: 1 } data_type: kChar", int8),
        ("data_type: kUInt8, shape < dim: [2, 1] >  # a comment", uint8),
        ("shape{dim:2;dim:0x1}data_type:4", int8),
        ("shape: { dim: 2 dim: 1 } data_type: kBool", bool_),
    ],
)
def test_every_text_form_of_meta_is_read(tmp_path, meta, dtype):
    write(tmp_path, {"w/out": b"\1\0", "w/meta": meta.encode(), "snapshot_done": b""})
    assert load(tmp_path)["w"].dtype == dtype
    assert load(tmp_path)["w"].numpy().tolist() == [[1], [0]]


def test_a_variables_directory_is_one_object(tmp_path, monkeypatch):
    write(tmp_path, RECORDED)
    single = load(tmp_path / "w")
    assert (single.name, single.numpy().tolist()) == ("w", [[0, 1, 2], [3, 4, 5]])
    monkeypatch.chdir(tmp_path / "w")
    assert load(".").name == "w"


def test_a_variable_may_have_the_name_of_a_part(tmp_path):
    values = {
        name: np.ones(2, np.float32) for name in ("out", "meta", "a b", "Größe", "..."[:0] + "x.y")
    }
    save(tmp_path / "new", values)
    assert_holds(load(tmp_path / "new"), values)


def test_without_meta_shape_and_dtype_are_given_later(tmp_path):
    files = {name: data for name, data in RECORDED.items() if not name.endswith("meta")}
    saved = load(write(tmp_path, files))["w"]
    assert (saved.shape, saved.dtype) == (None, None)
    assert np.array_equal(saved.numpy_as([2, 3], float32), RECORDED_VALUES["w"])
    with pytest.raises(CheckpointError, match="its shape and dtype are not known") as info:
        saved.numpy()
    assert "numpy_as(shape, dtype)" in str(info.value)
    with pytest.raises(CheckpointError, match=r"24 bytes, float32 values of shape \(2, 2\)"):
        saved.numpy_as((2, 2), float32)


def test_what_is_asked_for_must_be_what_was_saved(target):
    save(target, {"w": RECORDED_VALUES["w"]})
    saved = load(target)["w"]
    assert np.array_equal(saved.numpy_as((2, 3), float32), RECORDED_VALUES["w"])
    with pytest.raises(AssertionError, match=r"\(3, 3\) vs \(2, 3\)"):
        saved.numpy_as((3, 3), float32)
    with pytest.raises(AssertionError, match=r"oneflow\.float64 vs oneflow\.float32"):
        saved.numpy_as((2, 3), float64)


def test_a_loaded_array_belongs_to_the_caller(target):
    save(target, {"w": RECORDED_VALUES["w"]})
    saved = load(target)["w"]
    saved.numpy()[:] = -1
    assert np.array_equal(saved.numpy(), RECORDED_VALUES["w"])


def test_any_memory_layout_is_saved(target):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    values = {"fortran": np.asfortranarray(x), "slice": x[::2, ::-1], "big": x.astype(">f4")}
    save(target, values)
    loaded = load(target)
    assert all(np.array_equal(loaded[name].numpy(), value) for name, value in values.items())
    assert loaded["big"].dtype is float32


def test_a_checkpoint_may_be_empty(target):
    save(target, {})
    assert load(target) == {}


def test_a_safetensors_file_is_replaced(tmp_path):
    path = tmp_path / "model.safetensors"
    for number in (1, 2):
        save(path, {f"w{number}": np.full(3, number, np.float32)})
    assert_holds(load(path), {"w2": np.full(3, 2, np.float32)})
    assert os.listdir(tmp_path) == ["model.safetensors"]


def test_a_file_replaced_while_it_is_read_is_read_again(tmp_path, monkeypatch):
    from flow2onnx.checkpoint import store

    path = tmp_path / "model.safetensors"
    save(path, {"old": np.ones(3, np.float32)})
    read = store.load_safetensors

    def replaced_before(name):
        monkeypatch.setattr(store, "load_safetensors", read)
        save(path, {"new": np.ones((2, 2), ml_dtypes.bfloat16)})
        return read(name)

    monkeypatch.setattr(store, "load_safetensors", replaced_before)
    assert_holds(load(path), {"new": np.ones((2, 2), ml_dtypes.bfloat16)})


def test_files_of_the_safetensors_library_are_read(tmp_path):
    safetensors = pytest.importorskip("safetensors.numpy")
    values = {"a/b": np.arange(4, dtype=np.int32), "c": np.ones((2, 2), np.float16)}
    safetensors.save_file(values, tmp_path / "model.safetensors")
    assert_holds(load(tmp_path / "model.safetensors"), values)
    save(tmp_path / "again.safetensors", values)
    again = safetensors.load_file(tmp_path / "again.safetensors")
    assert all(np.array_equal(again[name], value) for name, value in values.items())


names = st.text(st.characters(codec="utf-8", exclude_characters="/\\\0"), min_size=1, max_size=20)
arrays = st.sampled_from(dtypes()).flatmap(
    lambda d: hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3).flatmap(
        lambda shape: st.binary(
            min_size=int(np.prod(shape)) * d.numpy.itemsize,
            max_size=int(np.prod(shape)) * d.numpy.itemsize,
        ).map(lambda raw: np.frombuffer(raw, d.numpy).reshape(shape))
    )
)


@settings(deadline=None)  # waits for the disk
@given(values=st.dictionaries(names.filter(lambda n: n[0] != "."), arrays, max_size=4))
@pytest.mark.parametrize("name", ["folder", "file.safetensors"])
def test_save_and_load_is_the_identity(tmp_path_factory, name, values):
    target = tmp_path_factory.mktemp("identity") / name
    save(target, values)
    assert_holds(load(target), values)


def test_only_finished_snapshots_are_listed(tmp_path):
    for name in (
        "snapshot_2",
        "snapshot_10",
        "other_1",
        ".snapshot_3",
        ".snapshot_4.0123456789ab.tmp",
    ):
        save(tmp_path / name, {})
    (tmp_path / "snapshot_half").mkdir()
    (tmp_path / "snapshot_file").touch()
    assert list_checkpoints(tmp_path) == ["snapshot_10", "snapshot_2"]
    assert latest(tmp_path) == "snapshot_2"
    assert list_checkpoints(str(tmp_path), "other") == ["other_1"]
    assert list_checkpoints(tmp_path, "") == ["other_1", "snapshot_10", "snapshot_2"]
    assert latest(tmp_path, "none") is None
    assert list_checkpoints(tmp_path / "missing") == []


def test_snapshot_names_sort_by_time():
    early, late = datetime(2020, 6, 15, 8, 15, 30, 42), datetime(2020, 6, 15, 8, 15, 31)
    assert new_snapshot_name("snapshot_", early) == "snapshot_20200615_081530_000042"
    assert new_snapshot_name("s", early) < new_snapshot_name("s", late)
