"""Adapters merged into weights: into real numbers and 8 bits; 4 bits are refused with a measure."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.errors import StateError

import flow2onnx as flow
from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.imported import adapter_of, keep_adapter, merge_adapter, write_slots
from flow2onnx.onnx_io.blocks import read_blocks, tensor_content
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.sessions import cross_entropy, feeds, open_folder

IDS = np.arange(14).reshape(2, 7)
LABELS = np.where(np.arange(7) < 6, np.roll(IDS, -1, 1), -100)
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


def test_what_keeps_an_adapter_takes_another(tmp_path):
    folder = write_folder(tmp_path / "m", replace(with_bits(TINY, 4), layers=1))
    adapter = drawn(folder, tmp_path, 0.02)
    q_proj = "model.layers.0.attn.q_proj"  # the other columns of its product have no adapter
    part = replace(adapter, pairs={q_proj: adapter.pairs[q_proj]})
    keep_adapter(folder.path, part, tmp_path / "once")
    keep_adapter(tmp_path / "once", adapter, tmp_path / "twice")
    write_slots(tmp_path / "twice")
    given = feeds(folder, IDS)
    summed = {  # ranks side by side: the whole adapter twice, q_proj three times
        name: np.concatenate([value] * (3 if q_proj in name else 2), int("lora_A" in name))
        for name, value in adapter.parameters().items()
    }
    slots = open_folder(tmp_path / "slots" / "model.onnx")
    wanted = slots.run(["logits"], given | summed)
    found = open_folder(tmp_path / "twice" / "model.onnx").run(
        ["logits"], given | adapter.parameters()
    )
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dora", [False, True])
def test_an_adapter_of_dora_that_is_kept_multiplies_the_next(tmp_path, dora):
    """What is trained is what is served, merged or kept in turn."""
    folder = write_folder(tmp_path / "m", replace(TINY, layers=1))
    keep_adapter(folder.path, trained(folder.path, dora=True)[0], tmp_path / "kept")
    adapter, wanted = trained(tmp_path / "kept", dora=dora)
    write_slots(tmp_path / "kept", tmp_path / "slots", factors=dora)
    merge_adapter(tmp_path / "kept", adapter, tmp_path / "merged")
    keep_adapter(tmp_path / "kept", adapter, tmp_path / "twice")
    for name, more in (("slots", adapter.parameters()), ("merged", {}), ("twice", {})):
        session = open_folder(tmp_path / name / "model.onnx")
        logits = session.run(["logits"], feeds(folder, IDS) | more)[0]
        assert abs(cross_entropy(logits, LABELS) - wanted) < 1e-5 * wanted


def trained(model, dora):
    """An adapter after some steps, and the loss then."""
    batch = {"input_ids": IDS, "attention_mask": np.ones_like(IDS), "labels": LABELS}
    trainer = flow.lora(model, rank=4, lr=2e-2, dora=dora, accumulate=False).trainer()
    for _ in range(4):
        trainer.step(**batch)
    return adapter_of(trainer), float(trainer.evaluate(**batch)["loss"])


@pytest.mark.parametrize("bits", [None, 8])
@pytest.mark.parametrize("dora", [False, True])
def test_an_adapter_of_another_model_is_merged_nowhere(tmp_path, bits, dora):
    shape = replace(TINY, layers=1)
    folder = write_folder(tmp_path / "m", shape if bits is None else with_bits(shape, bits))
    wide = (np.ones((96, 2), "f"), np.ones((2, 64), "f"))
    module = "model.layers.0.attn.q_proj"
    factors = {module: np.ones(64, "f")} if dora else {}
    other = Adapter(pairs={module: wide}, scales={}, factors=factors)
    for use in (merge_adapter, keep_adapter):
        with pytest.raises(StateError, match=r"another model: .* is \(96, 2\), .* takes \(64, 2\)"):
            use(folder.path, other, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("points", [False, True])
def test_four_bits_are_rounded_from_a_base(points, tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4, points=points))
    base = write_folder(tmp_path / "base", TINY)  # the same seed, the same numbers
    adapter = drawn(folder, tmp_path, 0.05)
    merge_adapter(folder.path, adapter, tmp_path / "merged", base.path)
    for stem in ("o_proj", "qkv_proj"):
        found, steps = stored(tmp_path / "merged", f"model.layers.0.attn.{stem}")
        names = [f"model.layers.0.attn.{n}" for n in
                 (["o_proj"] if stem == "o_proj" else ["q_proj", "k_proj", "v_proj"])]  # fmt: skip
        wanted = base.weights[f"model.layers.0.attn.{stem}"].copy()
        rows = 0
        for name in names:
            width = TINY.heads * TINY.head if name[-6] in "oq" else TINY.shared * TINY.head
            width = TINY.hidden if name.endswith("o_proj") else width
            if name in adapter.pairs:
                a, b = adapter.pairs[name]
                wanted[rows : rows + width] += 2.0 * (a @ b).T
            rows += width
        # half a step, and a step where the largest of both signs are alike
        assert np.all(np.abs(found - wanted) <= 1.01 * np.abs(steps))
        assert np.linalg.norm(found - wanted) < 0.12 * np.linalg.norm(wanted)


def stored(path, module):
    """The numbers that a folder's weight stands for, and the step of each."""
    model = onnx.load(path / "model.onnx", load_external_data=False)
    (node,) = (n for n in model.graph.node if n.input[1:2] == [f"{module}.MatMul.weight_Q4"])
    tensors = {t.name: tensor_content(t, str(path)) for t in model.graph.initializer}
    blocks = read_blocks(node, tensors)
    return blocks.real, np.repeat(blocks.steps, blocks.levels.shape[2], 1)[:, : blocks.columns]


def test_a_base_of_another_model_is_refused(tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    adapter = drawn(folder, tmp_path, 0.05)
    cases = {"but one of 64 x 64": replace(TINY, inner=64), "no weight of": with_bits(TINY, 4)}
    for match, shape in cases.items():
        base = write_folder(tmp_path / match.replace(" ", ""), shape)
        with pytest.raises(BundleError, match=match):
            merge_adapter(folder.path, adapter, tmp_path / "merged", base.path)
        assert not (tmp_path / "merged").exists()


def test_an_adapter_of_another_model_is_refused(tmp_path):
    folder = write_folder(tmp_path / "m")
    other = Adapter(pairs={"encoder.q": (np.ones((4, 2), "f"), np.ones((2, 4), "f"))}, scales={})
    with pytest.raises(StateError, match="for another model"):
        merge_adapter(folder.path, other, tmp_path / "merged")
    with pytest.raises(StateError, match="for another model"):
        keep_adapter(folder.path, other, tmp_path / "merged")
