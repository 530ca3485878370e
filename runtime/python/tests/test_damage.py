"""Bundles and states with any part of them changed or cut off are refused, and change nothing."""

import hashlib
import os
import shutil
import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from flow2onnx_runtime import BundleError, Options, Predictor, Trainer, load_safetensors
from flow2onnx_runtime.safetensors import load_signed, save_safetensors

FOLDER = Path(__file__).parents[2] / "conformance" / "mlp"
OPTIONS = Options(intra_op_threads=1)
FILES = sorted(p.name for p in (FOLDER / "bundle").iterdir() if p.suffix not in (".md", ".config"))
FLIPS, CUTS = 50, 12  # in each file, beginning to end; 500 cases and more with the state's


def damages(content, flips, cuts):
    """Contents with one byte changed in each region, or the end missing, or something appended."""
    rng = np.random.default_rng(len(content))
    edges = np.linspace(0, len(content), flips + 1).astype(int)
    for start, end in pairwise(edges):
        place = int(rng.integers(start, max(end, start + 1)))
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(8))
        yield f"byte {place}", bytes(damaged)
    for size in np.linspace(0, len(content) - 1, cuts).astype(int):
        yield f"cut at {size}", content[:size]
    yield "appended", content + b"\0"


def refusal(act, what):
    """The message of the error that `act` ends in."""
    try:
        act()
    except BundleError as error:
        return str(error)
    return pytest.fail(f"{what}: accepted")


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(FOLDER / "bundle", tmp_path / "b")
    return tmp_path / "b"


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_of_a_bundle(copy, name):
    content = (copy / name).read_bytes()
    for what, damaged in damages(content, FLIPS, CUTS):
        (copy / name).write_bytes(damaged)
        assert name in refusal(lambda: Trainer(copy, OPTIONS), what)
    (copy / name).write_bytes(content)
    assert Trainer(copy, OPTIONS).steps == 0


def test_damaged_states(tmp_path):
    trainer = Trainer(FOLDER / "bundle", OPTIONS)
    path = tmp_path / "state.safetensors"
    trainer.save(path)
    content, before = path.read_bytes(), trainer.state_dict()
    for what, damaged in damages(content, 3 * FLIPS, 3 * CUTS):
        path.write_bytes(damaged)
        assert str(path) in refusal(lambda: trainer.load(path), what)
        for name, value in trainer.state_dict().items():
            np.testing.assert_array_equal(value, before[name])


def test_there_are_500_cases():
    assert len(FILES) * (FLIPS + CUTS) + 3 * (FLIPS + CUTS) >= 500


SPARSE = 2**40  # bytes of a file that takes no room


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
@pytest.mark.parametrize("name", ["manifest.json", "step.onnx", "weights.safetensors"])
def test_pipes_and_devices_are_not_waited_for(copy, name):
    (copy / name).unlink()
    os.mkfifo(copy / name)
    assert f"{name}: cannot be read: it is no regular file" in refusal(lambda: Trainer(copy), name)
    (copy / name).unlink()
    (copy / name).symlink_to("/dev/zero")
    assert f"{name}: cannot be read: it is no regular file" in refusal(lambda: Trainer(copy), name)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes in the file system")
def test_pipes_in_place_of_states_and_models(copy, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    trainer = Trainer(copy, OPTIONS)
    for act in (lambda: trainer.load(pipe), lambda: load_safetensors(pipe)):
        assert "pipe: cannot be read: it is no regular file" in refusal(act, "a pipe")
    assert "pipe is not there" in refusal(lambda: Predictor(pipe), "a pipe")


def test_sizes_come_before_hashes(copy, monkeypatch):
    os.truncate(copy / "step.onnx", SPARSE)
    hashed = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda f, how: hashed.append(f) or digest(f, how))
    assert f"step.onnx: has {SPARSE} bytes" in refusal(lambda: Trainer(copy), "too large")
    assert all(Path(file.name).name != "step.onnx" for file in hashed)


def test_a_manifest_of_any_size_is_not_read(copy):
    os.truncate(copy / "manifest.json", SPARSE)
    assert "bytes are no manifest" in refusal(lambda: Trainer(copy), "too large")


def test_a_state_is_checked_in_little_memory(tmp_path):
    path = tmp_path / "large.safetensors"
    save_safetensors(path, {"a": np.zeros(4 << 20, np.float32)}, signs=True)
    tracemalloc.start()
    try:
        values, _ = load_signed(path, dict)
        assert tracemalloc.get_traced_memory()[1] < values["a"].nbytes + (1 << 20)
    finally:
        tracemalloc.stop()
