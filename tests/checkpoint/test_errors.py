"""Refusals to save or load: one kind of error that names the file and the reason."""

import errno
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flow2onnx.checkpoint.meta import parse_meta
from flow2onnx.checkpoint.store import list_checkpoints, load, save
from flow2onnx.errors import CheckpointError

W = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "saved", {"w": W, "b": W[0]})
    return tmp_path / "saved"


def load_failure(path):
    """The text of the error, which also is what OneFlow raised."""
    with pytest.raises(CheckpointError) as info:
        load(path)
    assert isinstance(info.value, AssertionError)
    assert info.value.hint
    return str(info.value)


def save_failure(path, values):
    with pytest.raises(CheckpointError) as info:
        save(path, values)
    assert info.value.hint
    return str(info.value)


def content(root):
    return {p.relative_to(root): p.is_file() and p.read_bytes() for p in root.rglob("*")}


def test_a_missing_directory(tmp_path):
    path = tmp_path / "missing"
    assert f"Directory {path} doesn't exist!" in load_failure(path)
    assert "doesn't exist!" in load_failure("a\0b")


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "a file whose name ends in .safetensors" in load_failure(tmp_path / "file")


def test_a_folder_that_is_no_checkpoint(tmp_path):
    (tmp_path / "empty").mkdir()
    assert "it is an empty folder" in load_failure(tmp_path / "empty")
    for name in "abcd":
        (tmp_path / f"{name}.txt").write_text("")
    assert "it holds a.txt, b.txt, c.txt and more" in load_failure(tmp_path)


def test_a_half_written_checkpoint(folder):
    (folder / "snapshot_done").unlink()
    text = load_failure(folder)
    assert f"{folder} has no snapshot_done: it was only half written" in text
    assert "load an earlier checkpoint" in text


def test_a_missing_value(folder):
    (folder / "w" / "out").unlink()
    assert f"{folder / 'w'} has no file 'out': the checkpoint is incomplete" in load_failure(folder)
    assert "half written" in load_failure(folder / "w")


@pytest.mark.parametrize("size", [0, 23, 25, 48])
def test_a_value_of_another_size(folder, size):
    path = folder / "w" / "out"
    path.write_bytes(bytes(size))
    wanted = f"{path} has {size} bytes, float32 values of shape (2, 3) take 24"
    assert wanted in load_failure(folder)
    assert wanted in load_failure(folder / "w")


def test_a_value_that_shrinks_after_loading(folder):
    saved = load(folder)["w"]
    (folder / "w" / "out").write_bytes(b"")
    with pytest.raises(CheckpointError, match="has 0 bytes"):
        saved.numpy()
    (folder / "w" / "out").unlink()
    with pytest.raises(CheckpointError, match="could not be read"):
        saved.numpy()


@pytest.mark.parametrize(
    ("meta", "reason"),
    [
        (b"", "shape or data_type is missing"),
        (b"shape { dim: 2 dim: 3 }", "shape or data_type is missing"),
        (b"data_type: kFloat", "shape or data_type is missing"),
        (b"shape { dim: 2 dim: 3 } data_type: kComplex64", "no value named kComplex64"),
        (b"shape { dim: 2 dim: 3 } data_type: 99", "no value with number 99"),
        (b"shape { dim: 2 dim: 3 } data_type: kOFRecord", "data_type 8 is no type of a variable"),
        (b"shape { dim: 2 dim: 3 } data_type: kInvalidDataType", "data_type 0 is no type"),
        (b"shape { dim: -2 dim: -3 } data_type: kFloat", "(-2, -3) is no shape"),
        (b"shape { dim: 6" + 32 * b" dim: 1" + b" } data_type: kFloat", "is no shape"),
        (b"shape { dim: 99999999999999999999 } data_type: kFloat", "out of range"),
        (b"shape { dim: 2 dim: 3", "Expected"),
        (b"{}", "Expected"),
        (b"\xff\xfe", "decode"),
        (b"\0", "Expected"),
    ],
)
def test_a_meta_that_says_nothing_useful(folder, meta, reason):
    path = folder / "w" / "meta"
    path.write_bytes(meta)
    text = load_failure(folder)
    assert f"{path} does not tell shape and data_type" in text
    assert reason in text


def test_a_shape_too_large_for_numpy(folder):
    (folder / "w" / "out").write_bytes(b"")
    (folder / "w" / "meta").write_text(
        f"shape {{ dim: 0 {9 * f'dim: {2**62} '}}} data_type: kFloat"
    )
    with pytest.raises(CheckpointError, match="could not be read"):
        load(folder)["w"].numpy()


@pytest.mark.parametrize("part", ["w", "w/out", "w/meta"])
def test_links_stay_inside(folder, tmp_path, part):
    os.rename(folder / part, tmp_path / "elsewhere")
    (folder / part).symlink_to(tmp_path / "elsewhere")
    text = load_failure(folder)
    assert "is no file inside the checkpoint" in text
    assert "cp -rL" in text


@pytest.mark.parametrize("part", ["w/out", "w/meta"])
def test_parts_that_are_no_files(folder, part):
    for replace in (Path.mkdir, os.mkfifo, lambda p: p.symlink_to(p)):
        (folder / part).unlink()
        replace(folder / part)
        assert "is no file inside the checkpoint" in load_failure(folder)
        if (folder / part).is_dir():
            (folder / part).rmdir()
            (folder / part).touch()


def test_links_inside_are_followed(folder, tmp_path):
    (folder / "copy").symlink_to(folder / "w")
    (tmp_path / "link").symlink_to(folder)
    assert np.array_equal(load(tmp_path / "link")["copy"].numpy(), W)


def test_hidden_folders_and_files_are_no_variables(folder):
    (folder / ".cache").mkdir()
    (folder / "notes.txt").touch()
    assert sorted(load(folder)) == ["b", "w"]


def test_a_missing_or_corrupt_safetensors_file(tmp_path):
    path = tmp_path / "model.safetensors"
    assert "cannot be read: No such file" in _first_line(path)
    for raw in (b"", b"12345678", b"\xff" * 50, (2).to_bytes(8, "little") + b"[]"):
        path.write_bytes(raw)
        assert _first_line(path).count(str(path)) == 1
    path.unlink()
    path.mkdir()
    assert "cannot be read: Is a directory" in _first_line(path)


def _first_line(path):
    with pytest.raises(CheckpointError) as info:
        load(path)
    return str(info.value).splitlines()[0]


def test_an_element_type_without_counterpart(tmp_path):
    header = b'{"w":{"dtype":"U16","shape":[1],"data_offsets":[0,2]}}'
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0\0")
    assert f"{path}: no element type is named 'uint16'" in _first_line(path)


def test_a_target_that_is_taken(folder, tmp_path):
    before = content(tmp_path)
    text = save_failure(folder, {"w": W})
    assert f"{folder} is a file or non-empty directory!" in text
    assert "is a file or non-empty directory!" in save_failure(folder / "w" / "out", {})
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    assert "is a file or non-empty directory!" in save_failure(tmp_path / "link", {})
    (tmp_path / "link").unlink()
    assert content(tmp_path) == before


def test_an_empty_target_is_filled_and_parents_are_made(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (
        tmp_path / "empty",
        tmp_path / "a" / "b" / "new",
        tmp_path / "c" / "x.safetensors",
    ):
        save(path, {"w": W})
        assert np.array_equal(load(path)["w"].numpy(), W)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "/etc/x", "a/b", "../x", "a\\b", "a\0b", "snapshot_done"]
)
def test_a_name_that_leads_elsewhere(tmp_path, name):
    text = save_failure(tmp_path / "new", {"w": W, name: W})
    assert f"variable name {name!r} cannot be the name of a directory" in text
    assert content(tmp_path) == {}


@pytest.mark.parametrize("name", ["\ud800", 3, None])
def test_a_name_that_is_no_text(target, name):
    assert "is no text" in save_failure(target, {name: W})


@pytest.mark.parametrize("value", [np.array(["x"]), np.array([None]), np.ones(2, np.complex64)])
def test_a_value_of_an_unknown_type(target, value):
    assert "variable 'w': element type" in save_failure(target, {"w": value})
    assert content(target.parent) == {}


def test_a_name_that_the_file_system_refuses(tmp_path):
    text = save_failure(tmp_path / "new", {"a": W, "x" * 300: W})
    assert "could not be written: [Errno 36] File name too long" in text
    assert "could not be written" in save_failure(tmp_path / "a\0b", {})
    assert content(tmp_path) == {}


def test_names_that_the_file_system_takes_for_the_same(tmp_path, monkeypatch):
    mkdir = Path.mkdir

    def ignoring_case(self, *args, **kwargs):
        for other in self.parent.iterdir():
            if other.name.lower() == self.name.lower() and other != self:
                raise FileExistsError(errno.EEXIST, "File exists", str(self))
        mkdir(self, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", ignoring_case)
    text = save_failure(tmp_path / "new", {"w": W, "W": W})
    assert "File exists" in text
    assert "/W'" in text
    assert content(tmp_path) == {}


def test_a_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").touch()
    for name in ("new", "new.safetensors"):
        assert "could not be written" in save_failure(tmp_path / "file" / name, {"w": W})


def test_a_full_disk_leaves_the_old_state(target, monkeypatch):
    if target.suffix:
        save(target, {"w": W})
    before = content(target.parent)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert "No space left on device" in save_failure(target, {"w": W + 1})
    assert content(target.parent) == before


def test_a_folder_cannot_become_a_safetensors_file(tmp_path):
    (tmp_path / "x.safetensors").mkdir()
    with pytest.raises(CheckpointError, match="is a folder, not a file"):
        save(tmp_path / "x.safetensors", {})


def test_an_unreadable_root(tmp_path, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(CheckpointError, match="Permission denied"):
        list_checkpoints(tmp_path)


# Damage: every changed byte is noticed, or cannot be noticed because no format has checksums.


def damaged(data, random_):
    """`data` with a flipped bit, cut off, or with something behind; and where it changed."""
    kind = random_.choice(["flip", "flip", "cut", "append"]) if data else "append"
    at = random_.randrange(len(data)) if data else 0
    if kind == "cut":
        return data[:at], None
    if kind == "append":
        return data + random_.randbytes(random_.randint(1, 9)), None
    return data[:at] + bytes([data[at] ^ 1 << random_.randrange(8)]) + data[at + 1 :], at


def with_elements(values):
    """Those arrays whose size tells something about their shape."""
    return {name: value for name, value in values.items() if value.size}


def values_or_none(path):
    try:
        return {name: saved.numpy() for name, saved in load(path).items()}
    except CheckpointError:
        return None


def same(a, b):
    return a.keys() == b.keys() and all(
        a[n].dtype == b[n].dtype and a[n].shape == b[n].shape and a[n].tobytes() == b[n].tobytes()
        for n in a
    )


def test_damage_to_a_directory_is_noticed(tmp_path, values):
    values = with_elements(values)
    save(tmp_path / "new", values)
    random_ = random.Random(0)
    files = sorted(p for p in (tmp_path / "new").rglob("*") if p.is_file())
    noticed = 0
    for round_ in range(600):
        path = files[round_ % len(files)]
        data = path.read_bytes()
        changed, at = damaged(data, random_)
        path.write_bytes(changed)
        loaded = values_or_none(tmp_path / "new")
        noticed += loaded is None
        if path.name == "out" and at is not None:
            assert loaded is not None  # a flipped bit is another number
        elif loaded is not None:
            assert same(loaded, values), (round_, path, changed)
        path.write_bytes(data)
    assert noticed > 200


def test_damage_to_a_safetensors_file_is_noticed(tmp_path, values):
    path, values = tmp_path / "model.safetensors", with_elements(values)
    save(path, values)
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    places = [data.index(f'"{name}"'.encode()) for name in values]
    silent = {at + i for at, name in zip(places, values, strict=True) for i in range(len(name) + 2)}
    random_ = random.Random(0)
    noticed = 0
    for _ in range(600):
        changed, at = damaged(data, random_)
        path.write_bytes(changed)
        loaded = values_or_none(path)
        noticed += loaded is None
        # a flipped bit in a name is another name, one in a value another number
        if loaded is not None and at is not None and at < start and at not in silent:
            assert same(loaded, values), at
        assert loaded is None or at is not None
    assert noticed > 200


@given(
    st.text()
    | st.binary()
    | st.from_regex(r"(shape ?[{<]( ?dim: ?-?\d+)*[}>] ?|data_type: ?k?\w* ?)*")
)
def test_no_text_breaks_the_meta_parser(text):
    raw = text if isinstance(text, bytes) else text.encode(errors="surrogatepass")
    try:
        shape, _dtype = parse_meta(raw, "meta")
    except CheckpointError:
        return
    assert all(dim >= 0 for dim in shape)
