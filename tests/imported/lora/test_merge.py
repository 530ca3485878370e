"""Adapters merged into weights: into real numbers and 8 bits; 4 bits are refused with a measure."""

from dataclasses import replace

import numpy as np
import pytest
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.errors import StateError

from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.imported import keep_adapter, merge_adapter, write_slots
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import feeds, open_folder

IDS = np.arange(14).reshape(2, 7)
TOLERANCE = {"real": 1e-5, "half": 2e-2, "bytes": 4e-2, "bytes-points": 4e-2}
SHAPES = {
    "real": TINY,
    "half": replace(TINY, dtype="float16"),
    "bytes": with_bits(TINY, 8),
    "bytes-points": with_bits(replace(TINY, family="qwen3"), 8, points=True),
}


def drawn(folder, tmp_path, size=0.1):
    slots = write_slots(folder.path, tmp_path / "slots")
    rng = np.random.default_rng(1)
    pairs = {
        s.module: tuple(
            (size * rng.standard_normal(shape)).astype(folder.shape.dtype)
            for shape in ((s.columns, 4), (4, s.rows))
        )
        for s in slots
        if not s.module.endswith("k_proj")  # a part of a packed weight stays as it is
    }
    return Adapter(pairs=pairs, scales=dict.fromkeys(pairs, 2.0))


@pytest.mark.parametrize("name", SHAPES)
def test_a_merged_model_computes_what_the_adapter_does(name, tmp_path):
    folder = write_folder(tmp_path / "m", SHAPES[name])
    adapter = drawn(folder, tmp_path)
    data = (folder.path / "model.onnx.data").read_bytes()
    merge_adapter(folder.path, adapter, tmp_path / "merged")
    assert (folder.path / "model.onnx.data").read_bytes() == data
    given = feeds(folder, IDS)
    before = open_folder(folder.model).run(["logits"], given)[0]
    found = open_folder(tmp_path / "merged" / "model.onnx").run(["logits"], given)[0]
    beside = open_folder(tmp_path / "slots" / "model.onnx")
    wanted = beside.run(["logits"], {**given, **adapter.parameters()})[0]
    effect = np.linalg.norm(wanted.astype(np.float64) - before)
    assert np.linalg.norm(found.astype(np.float64) - wanted) < TOLERANCE[name] * effect
    with pytest.raises(BundleError, match="is there already"):
        merge_adapter(folder.path, adapter, tmp_path / "merged")


def test_four_bits_are_refused_with_the_share_that_is_lost(tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    with pytest.raises(UnsupportedError, match=r"by [1-9]\d+% of what the adapter does"):
        merge_adapter(folder.path, drawn(folder, tmp_path, 0.02), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize("has_slots", [False, True])
def test_beside_four_bits_nothing_is_lost(tmp_path, has_slots):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    adapter = drawn(folder, tmp_path, 0.02)
    if has_slots:
        write_slots(folder.path)
    keep_adapter(folder.path, adapter, tmp_path / "kept")
    given = feeds(folder, IDS)
    wanted = open_folder(tmp_path / "slots" / "model.onnx").run(
        ["logits"], {**given, **adapter.parameters()}
    )
    kept = open_folder(tmp_path / "kept" / "model.onnx")
    np.testing.assert_allclose(kept.run(["logits"], given)[0], wanted[0], rtol=1e-4, atol=1e-5)
    assert [i.name for i in kept.get_inputs()] == list(given)
    data = [p / "model.onnx.data" for p in (folder.path, tmp_path / "kept")]
    assert data[0].samefile(data[1])
    with pytest.raises(BundleError, match="is there already"):
        keep_adapter(folder.path, adapter, tmp_path / "kept")


def test_an_adapter_of_another_model_is_refused(tmp_path):
    folder = write_folder(tmp_path / "m")
    other = Adapter(pairs={"encoder.q": (np.ones((4, 2), "f"), np.ones((2, 4), "f"))}, scales={})
    with pytest.raises(StateError, match="for another model"):
        merge_adapter(folder.path, other, tmp_path / "merged")
    with pytest.raises(StateError, match="for another model"):
        keep_adapter(folder.path, other, tmp_path / "merged")
