"""Slots: models with inputs for adapters compute what they did, until an adapter is given."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from flow2onnx_runtime.adapters import Adapter, write_adapter

from flow2onnx.errors import ArgumentError, BundleError, UnsupportedError
from flow2onnx.imported import write_slots
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import active, feeds, open_folder

IDS = np.arange(14).reshape(2, 7)
SHAPES = {
    "llama": TINY,
    "qwen2": replace(TINY, family="qwen2"),
    "qwen3": replace(TINY, family="qwen3", is_tied=True),
    "half": replace(TINY, dtype="float16"),
    "four-bits": with_bits(TINY, 4),
    "four-bits-points": with_bits(replace(TINY, is_tied=True), 4, points=True),
    "eight-bits": with_bits(TINY, 8),
}
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def results(path, folder, options=None):
    return open_folder(path).run(None, feeds(folder, IDS), options)


def drawn(slots, dtype, rank=4):
    rng = np.random.default_rng(1)
    pairs = {
        s.module: tuple(
            (0.1 * rng.standard_normal(shape)).astype(dtype)
            for shape in ((s.columns, rank), (rank, s.rows))
        )
        for s in slots
    }
    return Adapter(pairs=pairs, scales={m: 0.5 for m in pairs})


@pytest.mark.parametrize("name", SHAPES)
def test_without_adapter_bit_equal_and_with_one_as_by_hand(name, tmp_path):
    shape = SHAPES[name]
    folder = write_folder(tmp_path / "m", shape)
    data = (folder.path / "model.onnx.data").read_bytes()
    wanted = results(folder.model, folder)
    slots = write_slots(folder.path)
    assert [s.module for s in slots[:7]] == [
        f"model.layers.0.{'mlp' if n in ALL[4:] else 'attn'}.{n}" for n in ALL
    ]
    assert len(slots) == 7 * shape.layers
    assert (folder.path / "model.onnx.data").read_bytes() == data
    for x, y in zip(wanted, results(folder.model, folder), strict=True):
        np.testing.assert_array_equal(x, y)
    adapter = drawn(slots, shape.dtype)
    write_adapter(tmp_path / "x.onnx_adapter", adapter)
    options, held = active(tmp_path / "x.onnx_adapter")
    by_file = results(folder.model, folder, options)
    given = {**feeds(folder, IDS), **adapter.parameters()}
    by_feeds = open_folder(folder.model).run(None, given)
    for x, y in zip(by_file, by_feeds, strict=True):
        np.testing.assert_array_equal(x, y)
    assert np.abs(by_file[0] - wanted[0]).max() > 0.05
    del held


def test_ranks_may_differ_and_slots_stay_empty(tmp_path):
    folder = write_folder(tmp_path / "m", SHAPES["qwen3"])
    slots = write_slots(folder.path)
    few = [s for s in slots if not s.module.endswith(("k_proj", "down_proj"))]
    pairs = {}
    for i, slot in enumerate(few):
        pairs |= drawn([slot], "float32", rank=1 + i % 3).pairs
    adapter = Adapter(pairs=pairs, scales={})
    write_adapter(tmp_path / "x.onnx_adapter", adapter)
    options, held = active(tmp_path / "x.onnx_adapter")
    found = results(folder.model, folder, options)[0]
    zeros = drawn(slots, "float32", rank=2).pairs
    whole = {m: (0 * a, b) for m, (a, b) in zeros.items()} | dict(pairs)
    given = {**feeds(folder, IDS), **Adapter(pairs=whole, scales={}).parameters()}
    wanted = open_folder(folder.model).run(None, given)[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    del held


def test_some_parts_of_a_packed_product(tmp_path):
    folder = write_folder(tmp_path / "m")
    wanted = results(folder.model, folder)
    slots = write_slots(folder.path, targets=["v_proj", "model.layers.1.attn.q_proj"])
    assert [s.module[13:] for s in slots] == ["0.attn.v_proj", "1.attn.q_proj", "1.attn.v_proj"]
    for x, y in zip(wanted, results(folder.model, folder), strict=True):
        np.testing.assert_array_equal(x, y)


def test_a_folder_of_its_own_shares_the_data(tmp_path):
    folder = write_folder(tmp_path / "m")
    before = folder.model.read_bytes()
    write_slots(folder.path, tmp_path / "out", "q_proj")
    assert folder.model.read_bytes() == before
    shared = [p / "model.onnx.data" for p in (folder.path, tmp_path / "out")]
    assert shared[0].stat().st_ino == shared[1].stat().st_ino
    assert (tmp_path / "out" / "genai_config.json").exists()
    results(tmp_path / "out" / "model.onnx", folder)
    with pytest.raises(BundleError, match="is there already"):
        write_slots(folder.path, tmp_path / "out")


def test_twice_is_once_and_the_old_model_is_kept(tmp_path):
    folder = write_folder(tmp_path / "m")
    before = folder.model.read_bytes()
    write_slots(folder.path)
    once = folder.model.read_bytes()
    write_slots(folder.path)
    assert folder.model.read_bytes() == once != before
    assert (folder.path / "model.onnx.before-slots").read_bytes() == before
    with pytest.raises(BundleError, match="slots for other modules"):
        write_slots(folder.path, targets="q_proj")


def test_what_cannot_be_done_is_said(tmp_path):
    folder = write_folder(tmp_path / "m")
    with pytest.raises(ArgumentError, match="'wq' matches no product"):
        write_slots(folder.path, targets=["q_proj", "wq"])
    (folder.path / "genai_config.json").write_text('{"model": {"type": "mamba", "decoder": {}}}')
    with pytest.raises(UnsupportedError, match="type 'mamba' are not known"):
        write_slots(folder.path)
    (folder.path / "genai_config.json").write_text('{"model": {"type": "llama", "decoder": 3}}')
    with pytest.raises(BundleError, match="says nothing of a decoder"):
        write_slots(folder.path)
    (folder.path / "genai_config.json").unlink()
    with pytest.raises(BundleError, match="genai_config"):
        write_slots(folder.path)
    nothing = onnx.helper.make_model(
        onnx.helper.make_graph(
            [onnx.helper.make_node("Relu", ["x"], ["y"])],
            "g",
            [onnx.helper.make_tensor_value_info("x", 1, [2])],
            [onnx.helper.make_tensor_value_info("y", 1, [2])],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 21)],
    )
    onnx.save(nothing, tmp_path / "relu.onnx")
    with pytest.raises(UnsupportedError, match="no product with a weight"):
        write_slots(tmp_path / "relu.onnx")
