"""Folders that onnxruntime-genai's own builder makes, trained beside transformers and PEFT.

It needs onnxruntime-genai, torch, transformers and peft; models are tiny ones with random weights.
"""

import json

import numpy as np
import pytest
from flow2onnx_runtime.adapters import read_adapter, write_adapter

import flow2onnx as flow
from flow2onnx.imported import adapter_of
from flow2onnx.imported.low_rank.folder import open_language_model
from flow2onnx.onnx_io.adapter_slots import products
from flow2onnx.onnx_io.merge_weights import module_weights
from tests.imported.lora.words import write_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
builder = pytest.importorskip("onnxruntime_genai.models.builder")
from tests.imported.lora import peft_reference as reference  # noqa: E402  # it needs torch

# what these packages say of their own futures is none of ours
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

WIDE = {"head_dim": 16}
WINDOW = {**WIDE, "sliding_window": 8, "query_pre_attn_scalar": 16}
# by name: what transformers calls the architecture, and its settings beside the sizes
FAMILIES = {
    "llama": ("Llama", {"tie_word_embeddings": False}),
    "smollm": ("Llama", {"tie_word_embeddings": True}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {**WIDE, "tie_word_embeddings": True}),
    "mistral": ("Mistral", {**WIDE, "sliding_window": None}),
    "gemma": ("Gemma", {**WIDE, "hidden_activation": "gelu_pytorch_tanh"}),
    "gemma2": ("Gemma2", WINDOW),
    # the builder takes this epsilon, whatever the configuration says
    "phi": ("Phi", {"hidden_size": 128, "num_key_value_heads": 4, "partial_rotary_factor": 0.5,
                    "layer_norm_eps": 1e-6}),
    "phi3": ("Phi3", {"original_max_position_embeddings": 256, "sliding_window": None}),
    "smollm3": ("SmolLM3", {"tie_word_embeddings": True}),
    "llama32": ("Llama", {"tie_word_embeddings": True, "rope_parameters": {
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 32.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}),
    "qwen25": ("Qwen2", {"tie_word_embeddings": False, "rope_theta": 1e6}),
    # five layers of six see a window
    "gemma3": ("Gemma3", {**WINDOW, "num_hidden_layers": 6, "sliding_window": 5}),
    "gptoss": ("GptOss", {**WIDE, "num_local_experts": 4, "num_experts_per_tok": 2,
                          "sliding_window": 8, "layer_types": [
                              "sliding_attention", "full_attention"]}),
    "granite": ("Granite", {"embedding_multiplier": 12.0, "logits_scaling": 8.0,
                            "residual_multiplier": 0.22, "attention_multiplier": 0.125}),
}  # fmt: skip
CONFIGS = {"Gemma3": "Gemma3Text"}  # where they are not called as the model is
TARGETS = {"gptoss": ["[qkvo]_proj"]}  # those that PEFT knows; its router is no module of torch's
PRECISIONS = {
    "fp32": ("fp32", []),
    "fp16": ("fp16", []),
    "int4": ("int4", []),
    "points": ("int4", ["is_symmetric=false"]),
    "block16": ("int4", ["int4_block_size=16"]),
    "mixed": ("int4", ["int4_algo_config=k_quant_mixed"]),
}
CASES = [
    *((family, precision) for family in FAMILIES for precision in ("fp32", "int4")),
    *((family, precision) for family in ("llama", "qwen3", "phi3")
      for precision in ("fp16", "points", "block16", "mixed")),
]  # fmt: skip
CASES.remove(("gptoss", "int4"))  # which reads weights of another form: test_training has them
CASES.remove(("qwen3", "points"))  # of a tied head, for which the builder writes no valid model


@pytest.fixture(scope="module", params=FAMILIES)
def family(request, tmp_path_factory):
    """A family's name, and a folder of transformers with random weights."""
    place = tmp_path_factory.mktemp("hf") / request.param
    kind, settings = FAMILIES[request.param]
    config = f"{CONFIGS.get(kind, kind)}Config"
    model = reference.random_model(f"{kind}ForCausalLM", config, {**reference.SIZES, **settings})
    model.save_pretrained(place)
    write_tokenizer(place, [f"w{i}" for i in range(100)])
    path = place / "tokenizer_config.json"
    said = json.loads(path.read_text()) | {"pad_token": "<pad>"}
    path.write_text(json.dumps(said | {"tokenizer_class": "PreTrainedTokenizerFast"}))
    return request.param, place


@pytest.mark.parametrize("precision", PRECISIONS)
def test_ten_steps_equal_those_of_peft(family, precision, tmp_path, monkeypatch):
    name, source = family
    if (name, precision) not in CASES:
        pytest.skip("one family of each kind has all precisions")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "m"
    kind, extra = PRECISIONS[precision]
    given = (str(source), str(source), str(folder), kind, "cpu", str(tmp_path / "cache"))
    options = builder.parse_extra_options(*given, extra)
    join_rotations(options["hf_details"]["hf_config"])
    builder.create_model(*given, **options)
    options = {"accumulate": False, "lr": reference.RATE, "targets": TARGETS.get(name)}
    first = flow.lora(folder, rank=4, **options)
    start = reference.drawn_start(adapter_of(first.trainer()))
    write_adapter(tmp_path / "peft", start, family=first.model.family)
    trainer = flow.lora(folder, start=start, **options).trainer()
    losses = [float(trainer.step(**batch)["loss"]) for batch in reference.batches()]
    model = peft_model(source, folder, tmp_path / "peft", is_half=precision == "fp16")
    tolerance = 1e-4 if precision == "fp16" else 2e-5
    np.testing.assert_allclose(losses, reference.peft_losses(model), rtol=tolerance)
    again = flow.lora(folder, start=read_adapter(tmp_path / "peft"), **options).trainer()
    batch = next(reference.batches())
    found, wanted = (
        float(flow_trainer.evaluate(**batch)["loss"])
        for flow_trainer in (again, flow.lora(folder, start=start, **options).trainer())
    )
    assert abs(found - wanted) < 1e-6 * wanted


def join_rotations(config):
    """Say rotations by kind of layer as transformers did when the builder was written."""
    by_kind = getattr(config, "rope_parameters", None) or {}
    if "sliding_attention" in by_kind:
        config.rope_local_base_freq = by_kind["sliding_attention"]["rope_theta"]
        config.rope_parameters = by_kind["full_attention"]


def peft_model(source, folder, adapter, *, is_half):
    """PEFT's model of the numbers that a folder's weights stand for, with an adapter."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, attn_implementation="eager"
    )
    language = open_language_model(folder)
    known = [m for p in products(language.proto) for m in p.modules]
    weights = {s.module: w for s, w in module_weights(language.proto, str(folder), known)}
    if is_half:
        with torch.no_grad():
            for value in model.parameters():
                value.copy_(value.half().float())
        # the folder's cosines and sines are of half precision, too
        model.model.rotary_emb.register_forward_hook(
            lambda module, given, angles: tuple(v.half().float() for v in angles)
        )
    modules = dict(model.named_modules())
    stems = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
    for name, module in modules.items():
        if not isinstance(module, torch.nn.Linear):
            continue
        own = name.replace(".self_attn.", ".attn.").replace(".dense", ".o_proj")
        stem, _, last = own.rpartition(".")
        parts = [f"{stem}.{p}" for p in stems.get(last, ())] or [own]
        whole = np.concatenate([weights[p] for p in parts], 1)
        with torch.no_grad():
            module.weight.copy_(torch.tensor(whole.T.copy()))
    return peft.PeftModel.from_pretrained(model, adapter, is_trainable=True)
