"""Adapters as files: of the runtime, of PEFT, and from one to the other without a loss."""

import json

import numpy as np
import pytest
from flow2onnx_runtime import TensorInfo, load_safetensors, save_safetensors
from flow2onnx_runtime.adapters import Adapter, read_adapter, write_adapter
from flow2onnx_runtime.errors import BundleError, StateError
from flow2onnx_runtime.slots import adapter_arrays

MODULES = ("model.layers.0.attn.q_proj", "model.layers.0.mlp.up_proj")


def drawn(scale=2.0, ranks=(4, 4), dtype=np.float32):
    rng = np.random.default_rng(0)
    pairs = {
        m: (rng.standard_normal((6, r)).astype(dtype), rng.standard_normal((r, 5)).astype(dtype))
        for m, r in zip(MODULES, ranks, strict=True)
    }
    return Adapter(pairs=pairs, scales=dict.fromkeys(MODULES, scale))


def same(x, y):
    x, y = x.parameters(), y.parameters()
    assert x.keys() == y.keys()
    for name in x:
        assert x[name].dtype == y[name].dtype
        np.testing.assert_array_equal(x[name], y[name])


@pytest.mark.parametrize("scale", [2.0, 1.0, 16 / 12, 0.3])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_round_trips(tmp_path, scale, dtype):
    adapter = drawn(scale, ranks=(3, 12), dtype=dtype)
    write_adapter(tmp_path / "a.onnx_adapter", adapter)
    runtimes = read_adapter(tmp_path / "a.onnx_adapter")
    same(runtimes, adapter)
    write_adapter(tmp_path / "peft", adapter)
    pefts = read_adapter(tmp_path / "peft").named_for(MODULES)
    same(pefts, adapter)
    for module in MODULES:  # B itself too, not only what it is with the scale
        np.testing.assert_array_equal(pefts.pairs[module][1], adapter.pairs[module][1])
    write_adapter(tmp_path / "back", runtimes)
    same(read_adapter(tmp_path / "back").named_for(MODULES), runtimes)


@pytest.mark.parametrize("module", ["transformer.h.0.attn.c_attn", "model.layers.0.self_attn.q"])
def test_modules_of_other_models_keep_their_names(tmp_path, module):
    one = drawn()
    pairs = {module: one.pairs[MODULES[0]]}
    write_adapter(tmp_path / "peft", Adapter(pairs=pairs, scales={}))
    tensors, _ = load_safetensors(tmp_path / "peft" / "adapter_model.safetensors")
    assert sorted(tensors) == [f"base_model.model.{module}.lora_{n}.weight" for n in "AB"]


def test_pefts_files_say_what_peft_says(tmp_path):
    write_adapter(tmp_path / "peft", drawn(2.0, (4, 8)), base="some/model")
    tensors, _ = load_safetensors(tmp_path / "peft" / "adapter_model.safetensors")
    shapes = {n: a.shape for n, a in tensors.items()}
    at = "base_model.model.model.layers.0."
    assert shapes == {
        f"{at}self_attn.q_proj.lora_A.weight": (4, 6),
        f"{at}self_attn.q_proj.lora_B.weight": (5, 4),
        f"{at}mlp.up_proj.lora_A.weight": (8, 6),
        f"{at}mlp.up_proj.lora_B.weight": (5, 8),
    }
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 4, 8)
    assert config["rank_pattern"] == {"model.layers.0.mlp.up_proj": 8}
    assert config["alpha_pattern"] == {"model.layers.0.mlp.up_proj": 16}
    assert config["target_modules"] == ["q_proj", "up_proj"]


def test_the_name_of_the_adapter_and_rank_stabilised_scales_are_understood(tmp_path):
    a, b = np.ones((4, 6), np.float32), np.ones((5, 4), np.float32)
    at = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
    tensors = {f"{at}A.default.weight": a, f"{at}B.default.weight": b}
    save_safetensors(tmp_path / "adapter_model.safetensors", tensors)
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "use_rslora": True}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    adapter = read_adapter(tmp_path).named_for(MODULES)
    assert adapter.scales == {MODULES[0]: 4.0}
    assert adapter.ranks == {MODULES[0]: 4}


def test_bits_of_bfloat16_are_numbers(tmp_path):
    bits = np.full((2, 2), 0x3FC0, np.uint16)  # 1.5
    tensors = {f"m.lora_{x}.weight": bits for x in "AB"}
    save_safetensors(
        tmp_path / "adapter_model.safetensors", tensors,
        elements=dict.fromkeys(tensors, "bfloat16"),
    )  # fmt: skip
    (tmp_path / "adapter_config.json").write_text('{"r": 2, "lora_alpha": 2}')
    np.testing.assert_array_equal(read_adapter(tmp_path).pairs["m"][0], np.full((2, 2), 1.5))


def test_what_is_no_adapter_is_said(tmp_path):
    (tmp_path / "a.onnx_adapter").write_bytes(b"nothing of the kind")
    with pytest.raises(BundleError, match="is no adapter"):
        read_adapter(tmp_path / "a.onnx_adapter")
    with pytest.raises(BundleError):
        read_adapter(tmp_path / "b.onnx_adapter")
    (tmp_path / "chat.jsonl").write_text('{"text": "a chat"}')
    with pytest.raises(BundleError, match="is no adapter: it does not begin as"):
        read_adapter(tmp_path / "chat.jsonl")
    with pytest.raises(BundleError, match="no name of an adapter"):
        write_adapter(tmp_path / "a.bin", drawn())
    half = {"m.lora_A.weight": np.ones((2, 3), np.float32)}
    save_safetensors(tmp_path / "adapter_model.safetensors", half)
    with pytest.raises(BundleError, match="no half of a pair"):
        read_adapter(tmp_path)
    write_adapter(tmp_path / "peft", drawn())
    config = tmp_path / "peft" / "adapter_config.json"
    for said, match in (
        ("use_dora", "has magnitudes of 0 modules"), ("lora_bias", "lora_bias is not supported"),
    ):  # fmt: skip
        config.write_text(json.dumps({said: True}))
        with pytest.raises(BundleError, match=match):
            read_adapter(tmp_path / "peft")
    config.unlink()
    with pytest.raises(BundleError, match="adapter_config"):
        read_adapter(tmp_path / "peft")
    with pytest.raises(StateError, match="for another model: here is no module"):
        drawn().named_for(["model.layers.0.attn.k_proj"])


PHI = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
ROWS = {"q_proj": 5, "k_proj": 3, "v_proj": 3, "gate_proj": 4, "up_proj": 4}


@pytest.mark.parametrize("dora", [False, True])
def test_modules_that_peft_has_in_one(tmp_path, dora):
    rng = np.random.default_rng(1)
    at = {n: f"model.layers.0.{'attn' if n[0] in 'qkv' else 'mlp'}.{n}" for n in ROWS}
    pairs = {
        m: tuple(rng.standard_normal(s).astype("f") for s in ((6, 2), (2, ROWS[n])))
        for n, m in at.items()
    }
    rows = {m: ROWS[n] for n, m in at.items()}
    sizes = {m: np.arange(1, rows[m] + 1, dtype="f") for m in pairs} if dora else {}
    adapter = Adapter(pairs=pairs, scales=dict.fromkeys(pairs, 2.0), magnitudes=sizes)
    write_adapter(tmp_path / "peft", adapter, family="phi3")
    tensors, _ = load_safetensors(tmp_path / "peft" / "adapter_model.safetensors")
    at_layer = "base_model.model.model.layers.0"
    for whole, parts in PHI.items():
        module = f"{at_layer}.{'mlp' if whole[0] == 'g' else 'self_attn'}.{whole}"
        a, b = (tensors[f"{module}.lora_{n}.weight"] for n in "AB")
        wanted = [np.matmul(*pairs[at[p]]) for p in parts]
        np.testing.assert_allclose((b @ a).T, np.concatenate(wanted, 1), rtol=1e-5, atol=1e-6)
    back = read_adapter(tmp_path / "peft").named_for(rows)
    assert back.ranks == adapter.ranks
    for module, (a, b) in pairs.items():
        np.testing.assert_array_equal(back.pairs[module][0], a)
        np.testing.assert_array_equal(back.pairs[module][1], b)
        assert back.scale(module) == 2.0
        if dora:
            np.testing.assert_array_equal(back.magnitudes[module], sizes[module])
    few = Adapter(pairs={at["q_proj"]: pairs[at["q_proj"]]}, scales={})
    with pytest.raises(BundleError, match=r"has none of model.layers.0.attn.k_proj"):
        write_adapter(tmp_path / "few", few, family="phi3")


def test_modules_of_other_exporters_are_called_as_in_peft(tmp_path):
    """Such as those of ModernBERT, whose attention is `attn`; the builder says so of all."""
    pair = (np.ones((6, 2), "f"), np.ones((2, 6), "f"))
    module = "model.layers.0.attn.Wo"
    for family, wanted in (("llama", "model.layers.0.self_attn.Wo"), (None, module)):
        folder = tmp_path / str(family)
        write_adapter(folder, Adapter(pairs={module: pair}, scales={}), family=family)
        found = read_adapter(folder)
        assert list(found.pairs) == [wanted]
        assert found.named_for([module]).ranks == {module: 2}


def test_slots_say_what_they_take():
    names = {"m.lora_A.weight": (6, "lora_r/m"), "m.lora_B.weight": ("lora_r/m", 4)}
    slots = {n: TensorInfo(n, shape, np.dtype("f"), "float32") for n, shape in names.items()}
    pairs = {"m": (np.ones((6, 2), "f"), np.ones((2, 4), "f"))}
    assert adapter_arrays(slots, Adapter(pairs=pairs, scales={})).keys() == names.keys()
    pairs = {"m": (np.ones((5, 2), "f"), np.ones((2, 4), "f"))}
    with pytest.raises(StateError, match="weight is 5 x 2, the model takes 6 x its rank"):
        adapter_arrays(slots, Adapter(pairs=pairs, scales={}))


def test_a_family_may_have_other_names_in_peft(tmp_path):
    pair = (np.ones((6, 2), "f"), np.ones((2, 6), "f"))
    module = "model.layers.0.attn.o_proj"
    write_adapter(tmp_path / "peft", Adapter(pairs={module: pair}, scales={}), family="phi")
    config = json.loads((tmp_path / "peft" / "adapter_config.json").read_text())
    assert config["target_modules"] == ["dense"]
    assert read_adapter(tmp_path / "peft").named_for([module]).ranks == {module: 2}
