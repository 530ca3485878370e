"""Bundles and states with any part of them changed or cut off are refused, and change nothing."""

import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from flow2onnx_runtime import BundleError, Options, Trainer

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
    """What the error says that `act` ends in."""
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
