"""DoRA: magnitudes beside the matrices; served by factors, kept in PEFT's files as magnitudes."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime import load_safetensors
from flow2onnx_runtime.adapters import Adapter, read_adapter, write_adapter
from flow2onnx_runtime.errors import BundleError, StateError
from flow2onnx_runtime.slots import adapter_arrays

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.imported import adapter_of, keep_adapter, merge_adapter, write_slots
from flow2onnx.imported.low_rank.dora import complete_dora
from flow2onnx.imported.low_rank.folder import open_language_model
from flow2onnx.onnx_io.adapter_slots import slot_inputs
from tests.imported.lora.folders import with_bits, write_folder
from tests.imported.lora.record_torch import SMALL
from tests.imported.lora.sessions import active, batch, cross_entropy, feeds, open_folder

SHAPES = {"real": SMALL, "bytes": with_bits(SMALL, 8), "four-bits": with_bits(SMALL, 4)}
LOST = {"real": 1e-5, "bytes": 5e-2}


def trained(folder, steps=4, **options):
    """A trainer after some steps, and its batch."""
    made = flow.lora(folder.path, rank=4, dora=True, lr=2e-2, accumulate=False, **options)
    trainer, given = made.trainer(), batch(folder.shape)
    for _ in range(steps):
        trainer.step(**given)
    return trainer, given


def logits(path, folder, ids, options=None):
    return open_folder(path / "model.onnx").run(["logits"], feeds(folder, ids), options)[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_served_kept_and_merged_is_what_was_trained(name, tmp_path):
    folder = write_folder(tmp_path / "m", SHAPES[name])
    trainer, given = trained(folder)
    ids, loss = given["input_ids"], float(trainer.evaluate(**given)["loss"])
    adapter = adapter_of(trainer)
    write_adapter(tmp_path / "x.onnx_adapter", adapter)
    write_adapter(tmp_path / "peft", adapter)
    write_slots(folder.path, tmp_path / "slots", factors=True)
    base = logits(folder.path, folder, ids)
    np.testing.assert_array_equal(logits(tmp_path / "slots", folder, ids), base)
    options, held = active(tmp_path / "x.onnx_adapter")
    served = logits(tmp_path / "slots", folder, ids, options)
    assert abs(cross_entropy(served, given["labels"]) - loss) < 1e-5 * loss
    keep_adapter(folder.path, read_adapter(tmp_path / "peft"), tmp_path / "kept")
    np.testing.assert_allclose(logits(tmp_path / "kept", folder, ids), served, atol=1e-4)
    if name in LOST:
        merge_adapter(folder.path, read_adapter(tmp_path / "peft"), tmp_path / "merged")
        apart = np.linalg.norm(logits(tmp_path / "merged", folder, ids) - served)
        assert apart < LOST[name] * np.linalg.norm(served - base)
    del held


@pytest.mark.slow
def test_it_goes_on_from_either_form(tmp_path):
    folder = write_folder(tmp_path / "m", SMALL)
    trainer, given = trained(folder, targets=["q_proj", "down_proj"])
    loss = float(trainer.evaluate(**given)["loss"])
    adapter = adapter_of(trainer)
    write_adapter(tmp_path / "x.onnx_adapter", adapter)
    write_adapter(tmp_path / "peft", adapter)
    options = {"targets": ["q_proj", "down_proj"], "accumulate": False}
    for path in ("x.onnx_adapter", "peft"):
        start = read_adapter(tmp_path / path)
        again = flow.lora(folder.path, dora=True, start=start, **options).trainer()
        assert abs(float(again.evaluate(**given)["loss"]) - loss) < 1e-5 * loss
    with pytest.raises(ArgumentError, match="an adapter of DoRA"):
        flow.lora(folder.path, start=start, **options)


def test_files_and_conversion(tmp_path):
    folder = write_folder(tmp_path / "m", SMALL)
    adapter = adapter_of(trained(folder, targets=["v_proj"])[0])
    write_adapter(tmp_path / "peft", adapter)
    tensors, _ = load_safetensors(tmp_path / "peft" / "adapter_model.safetensors")
    name = "base_model.model.model.layers.0.self_attn.v_proj.lora_magnitude_vector"
    assert tensors[name].shape == (16,)
    assert json.loads((tmp_path / "peft" / "adapter_config.json").read_text())["use_dora"] is True
    convert = ["lora", "convert", str(tmp_path / "peft"), str(tmp_path / "x.onnx_adapter")]
    found = CliRunner().invoke(app, convert)
    assert (found.exit_code, "--model FOLDER" in found.output) == (1, True), found.output
    found = CliRunner().invoke(app, [*convert, "--model", str(folder.path)])
    assert found.exit_code == 0, found.output
    served = read_adapter(tmp_path / "x.onnx_adapter")
    for module, wanted in adapter.factors.items():
        np.testing.assert_allclose(served.factors[module], wanted, rtol=1e-5)
    with pytest.raises(BundleError, match="has factors alone"):
        write_adapter(tmp_path / "back", served)
    back = complete_dora(served, folder.path)
    for module, wanted in adapter.magnitudes.items():
        np.testing.assert_allclose(back.magnitudes[module], wanted, rtol=1e-5)


def test_what_cannot_be_is_said(tmp_path):
    folder = write_folder(tmp_path / "m", SMALL)
    with pytest.raises(UnsupportedError, match="lm_head makes the scores"):
        flow.lora(folder.path, rank=4, dora=True, targets="lm_head")
    write_slots(folder.path, tmp_path / "plain")
    with pytest.raises(UnsupportedError, match="slots without the factors"):
        flow.lora(tmp_path / "plain", rank=4, dora=True)
    with pytest.raises(BundleError, match="slots of the other kind"):
        write_slots(tmp_path / "plain", factors=True)
    pair = (np.ones((32, 2), "f"), np.ones((2, 32), "f"))
    module = "model.layers.0.attn.q_proj"
    adapter = Adapter(pairs={module: pair}, scales={}, factors={module: np.ones(32, "f")})
    slots = slot_inputs(open_language_model(tmp_path / "plain").proto)
    with pytest.raises(StateError, match="one of DoRA, and the model has no slot"):
        adapter_arrays(slots, adapter)
