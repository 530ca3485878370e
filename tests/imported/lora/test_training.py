"""Adapters trained on folders of language models, beside what torch made of the same."""

from dataclasses import replace

import numpy as np
import onnx
import pytest
from flow2onnx_runtime import Trainer, save_safetensors
from flow2onnx_runtime.adapters import Adapter, read_adapter, write_adapter
from flow2onnx_runtime.errors import BundleError

import flow2onnx as flow
from flow2onnx.errors import ArgumentError, StateError, UnsupportedError
from flow2onnx.imported import adapter_of, write_slots
from tests.imported.lora.folders import TINY, with_bits, write_folder
from tests.imported.lora.record_torch import (
    ALPHA,
    PLACE,
    RANK,
    SHAPES,
    batches,
    first_pairs,
    rate,
    recorded_modules,
)
from tests.imported.lora.sessions import active, batch, cross_entropy, feeds, open_folder

RECORDED = np.load(PLACE)
SLOW = [n for n in SHAPES if n not in ("llama", "qwen3-four-bits", "experts-four-bits")]
NAMES = [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in SHAPES]


@pytest.mark.parametrize("name", NAMES)
def test_ten_steps_equal_torch(name, tmp_path):
    shape = SHAPES[name]
    folder = write_folder(tmp_path / "m", shape)
    pairs = first_pairs(shape)
    start = Adapter(pairs=pairs, scales=dict.fromkeys(pairs, ALPHA / RANK))
    made = flow.lora(folder.path, start=start, lr=rate(shape), accumulate=False)
    trainer = made.trainer()
    losses = []
    for ids, labels in batches(shape):
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}
        losses.append(float(trainer.step(**given)["loss"]))
    np.testing.assert_allclose(losses, RECORDED[f"{name}/losses"], rtol=2e-5)
    end = adapter_of(trainer).pairs
    for module in recorded_modules(shape):
        for found, key in zip(end[module], "AB", strict=True):
            wanted = RECORDED[f"{name}/{module}/{key}"]
            np.testing.assert_allclose(found, wanted, atol=2e-4)


@pytest.fixture(scope="module")
def four_bits(tmp_path_factory):
    """A folder in 4 bits with slots, and an adapter trained on it for some steps."""
    shape = with_bits(replace(TINY, is_tied=True), 4)
    folder = write_folder(tmp_path_factory.mktemp("folder") / "m", shape)
    made = flow.lora(folder.path, rank=4, lr=1e-2)
    made.save(folder.path.parent / "bundle")
    return folder, folder.path.parent / "bundle", made


def test_the_runtime_serves_what_was_trained(four_bits, tmp_path):
    folder, bundle, _ = four_bits
    trainer = Trainer(bundle)
    given = batch(folder.shape)
    losses = [float(trainer.step(**given)["loss"]) for _ in range(12)]
    assert losses[-1] < 0.7 * losses[0]
    write_adapter(tmp_path / "x.onnx_adapter", adapter_of(trainer))
    write_slots(folder.path, tmp_path / "served")
    options, held = active(tmp_path / "x.onnx_adapter")
    session = open_folder(tmp_path / "served" / "model.onnx")
    logits = session.run(["logits"], feeds(folder, given["input_ids"]), options)[0]
    trained = float(trainer.evaluate(**given)["loss"])
    assert abs(cross_entropy(logits, given["labels"]) - trained) <= 1e-5 * trained
    assert (
        read_adapter(tmp_path / "x.onnx_adapter").ranks.keys() == adapter_of(trainer).pairs.keys()
    )
    del held


def test_frozen_weights_are_shared_and_nothing_is_in_the_state_but_adapters(four_bits):
    folder, bundle, made = four_bits
    files = [p / "model.onnx.data" for p in (folder.path, bundle)]
    assert files[0].stat().st_ino == files[1].stat().st_ino
    for path in bundle.glob("*.onnx"):
        graph = onnx.load(path, load_external_data=False).graph
        inside = [t for t in graph.initializer if t.data_location != t.EXTERNAL]
        assert sum(len(t.raw_data) for t in inside) < 16_000
    trainer = Trainer(bundle)
    variables = {s.name for s in trainer.manifest.state if s.role == "variable"}
    assert variables == set(made.trained)
    assert "com.microsoft::MatMulNBits" in trainer.manifest.metadata["flow2onnx.contrib_operators"]


def test_padding_and_batches_of_other_lengths(four_bits):
    folder, bundle, _ = four_bits
    trainer = Trainer(bundle)
    given = batch(folder.shape)
    wanted = float(trainer.evaluate(**given)["loss"])
    filler = {"input_ids": 7, "attention_mask": 0, "labels": -100}
    padded = {n: np.pad(v, ((0, 0), (0, 5)), constant_values=filler[n]) for n, v in given.items()}
    assert abs(float(trainer.evaluate(**padded)["loss"]) - wanted) < 1e-5 * wanted
    ignored = {**given, "labels": np.full_like(given["labels"], -100)}
    assert float(trainer.evaluate(**ignored)["loss"]) == 0


def test_accumulated_batches_are_one_step_of_their_mean(four_bits):
    folder, bundle, _ = four_bits
    one, several = Trainer(bundle), Trainer(bundle)
    given = batch(folder.shape, rows=4)
    one.step(**given)
    for half in (slice(2), slice(2, 4)):
        several.accumulate(**{n: v[half] for n, v in given.items()})
    several.update()
    for name, value in one.state_dict().items():
        found = several.state_dict()[name]
        np.testing.assert_allclose(found, value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_going_on_from_an_interrupted_run_is_bit_equal(four_bits, tmp_path):
    folder, bundle, _ = four_bits
    rows = {n: np.concatenate([v, v[:, ::-1]]) for n, v in batch(folder.shape, rows=6).items()}
    whole, first = Trainer(bundle), Trainer(bundle)
    whole.fit(rows, epochs=2, batch_size=2, progress=False)
    first.fit(rows, epochs=1, batch_size=2, checkpoint=tmp_path / "run", progress=False)
    again = Trainer(bundle)
    again.fit(
        rows, epochs=2, batch_size=2, checkpoint=tmp_path / "run", resume=True, progress=False
    )
    for name, value in whole.state_dict().items():
        np.testing.assert_array_equal(again.state_dict()[name], value, err_msg=name)


def test_a_folder_with_slots_trains_too(four_bits, tmp_path):
    folder, bundle, _ = four_bits
    write_slots(folder.path, tmp_path / "slots")
    made = flow.lora(tmp_path / "slots", rank=4, lr=1e-2, accumulate=False)
    given = batch(folder.shape)
    wanted = Trainer(bundle).step(**given)["loss"]
    assert made.trainer().step(**given)["loss"] == wanted


def test_options(tmp_path):
    folder = write_folder(tmp_path / "m")
    made = flow.lora(
        folder.path, {"q_proj": 2, "*": 4}, 8, ["q_proj", "down_proj"], rslora=True, dropout=0.2,
        up_rate=4, schedule="cosine(total_steps=20, warmup_steps=2)", accumulate=False, seed=3,
    )  # fmt: skip
    assert set(made.scales.values()) == {8 / 2**0.5, 4.0}
    assert "rank 2, 4" in repr(made)
    trainer = made.trainer()
    given = batch(folder.shape)
    losses = [float(trainer.step(**given)["loss"]) for _ in range(6)]
    assert losses[-1] < losses[0]
    again = made.trainer()
    assert [float(again.step(**given)["loss"]) for _ in range(6)] == losses  # drawn by step


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"rank": 0}, ArgumentError, "rank is 0"),
        ({"rank": 40}, ArgumentError, "a matrix of 64 x 32"),
        ({"rank": {"q_proj": 4}}, ArgumentError, "says nothing of k_proj"),
        ({"alpha": 0}, ArgumentError, "alpha is 0"),
        ({"targets": ["wq"]}, ArgumentError, "'wq' matches no product"),
        ({"targets": []}, ArgumentError, "targets names nothing"),
        ({"dropout": 1.0}, ArgumentError, "dropout is 1.0"),
        ({"chunks": 0}, ArgumentError, "chunks is 0"),
        ({"logits": "scores"}, UnsupportedError, "no output 'scores'"),
        ({"up_rate": 2, "groups": {"*": {"lr": 1.0}}}, ArgumentError, "up_rate goes with"),
    ],
)
def test_wrong_settings_are_named(tmp_path, options, error, match):
    folder = write_folder(tmp_path / "m")
    with pytest.raises(error, match=match):
        flow.lora(folder.path, **options)


def test_an_adapter_of_another_model_is_refused(tmp_path):
    folder = write_folder(tmp_path / "m")
    other = Adapter(pairs={"encoder.q": (np.ones((4, 2), "f"), np.ones((2, 4), "f"))}, scales={})
    with pytest.raises(Exception, match="for another model"):
        flow.lora(folder.path, start=other)
    narrow = {"model.layers.0.attn.q_proj": (np.ones((4, 2), "f"), np.ones((2, 4), "f"))}
    with pytest.raises(StateError, match=r"another model: model.layers.0.attn.q_proj is \(4, 2\)"):
        flow.lora(folder.path, targets="*0.attn.q_proj", start=Adapter(pairs=narrow, scales={}))
    save_safetensors(tmp_path / "w.safetensors", {"w": np.ones(2, np.float32)})
    with pytest.raises(BundleError):
        read_adapter(tmp_path / "w.safetensors")


def test_packed_texts_do_not_see_each_other(tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(TINY, 4))
    apart = flow.lora(folder.path, rank=2, accumulate=False, lr=1e-2).trainer()
    packed = flow.lora(folder.path, rank=2, accumulate=False, lr=1e-2, packs=True).trainer()
    given = batch(folder.shape, rows=3, length=8)
    joined = {n: v.reshape(1, -1) for n, v in given.items()}
    joined["documents"] = np.repeat([[1, 2, 3]], 8, axis=1)
    for _ in range(3):
        wanted = float(apart.step(**given)["loss"])
        assert abs(float(packed.step(**joined)["loss"]) - wanted) < 1e-5 * wanted
    one = {**joined, "documents": np.ones_like(joined["documents"])}
    assert (
        abs(float(packed.evaluate(**one)["loss"]) - float(apart.evaluate(**given)["loss"])) > 1e-3
    )


def test_recomputed_activations_change_no_bit(tmp_path):
    folder = write_folder(tmp_path / "m", with_bits(replace(TINY, layers=3), 4))
    kept = flow.lora(folder.path, rank=2, accumulate=False, lr=1e-2)
    again = flow.lora(folder.path, rank=2, accumulate=False, lr=1e-2, recompute=True)
    names = [n["name"] for n in again.step.structure()]
    assert {n.split("/")[3] for n in names if n.startswith("again//model")} >= {
        "layers.0", "layers.1",
    }  # fmt: skip
    given = batch(folder.shape)
    trainers = kept.trainer(), again.trainer()
    for _ in range(3):
        assert len({float(t.step(**given)["loss"]) for t in trainers}) == 1


@pytest.mark.parametrize("packs", [False, True])
def test_weights_that_attention_gives_change_rounding_alone(tmp_path, packs):
    folder = write_folder(tmp_path / "m", with_bits(replace(TINY, layers=3), 4))
    lean, kept = (
        flow.lora(folder.path, rank=2, accumulate=False, lr=1e-2, packs=packs, recompute=how)
        for how in ("cheap", False)
    )
    given = batch(folder.shape, rows=2, length=8)
    given["attention_mask"][1, 5:] = 0
    given["labels"][1, 4:] = -100
    if packs:
        given["documents"] = np.repeat([[1, 1, 1, 2, 2, 2, 2, 2]], 2, axis=0)
    trainers = lean.trainer(), kept.trainer()
    for _ in range(3):
        losses = [float(t.step(**given)["loss"]) for t in trainers]
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    states = [t.state_dict() for t in trainers]
    for name in states[0]:
        if ".lora_" in name and "-" not in name:
            assert np.abs(states[0][name] - states[1][name]).max() < 1e-4
    attention = [n for n in kept.step.model.graph if n.op_type == "GroupQueryAttention"]
    assert [len(n.outputs) for n in attention] == [4] * 3


@pytest.mark.parametrize(
    ("targets", "is_one"),
    [(None, True), (["q_proj", "v_proj"], False), (["k_proj"], False)],
)
def test_modules_side_by_side_are_one_product_where_all_are_trained(tmp_path, targets, is_one):
    folder = write_folder(tmp_path / "m", with_bits(replace(TINY, layers=1), 4))
    made = flow.lora(folder.path, rank=2, targets=targets, accumulate=False, lr=1e-2)
    assert any(n.op_type == "Pad" for n in made.step.model.graph) == is_one
    given, trainer = batch(folder.shape), made.trainer()
    losses = [float(trainer.step(**given)["loss"]) for _ in range(3)]
    assert losses[2] < losses[0]
    assert float(trainer.evaluate(**given)["loss"]) < losses[0]
