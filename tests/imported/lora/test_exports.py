"""Language models as torch's exporters and optimum write them, trained beside PEFT.

It needs torch, onnxscript, transformers and peft, for some optimum-onnx with its transformers 4.
"""

import inspect
import json

import numpy as np
import pytest
from click.testing import CliRunner
from flow2onnx_runtime.adapters import write_adapter

import flow2onnx as flow
from flow2onnx.cli.app import app
from flow2onnx.imported import adapter_of
from tests.imported.lora.words import chat, write_tokenizer

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
pytest.importorskip("onnxscript")
from tests.imported.lora import peft_reference as reference  # noqa: E402  # it needs torch

# what these packages say of their own futures is none of ours
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

LAYERS, SIZE = 2, 16
GPT2 = {
    "vocab_size": reference.WORDS, "n_embd": 64, "n_layer": LAYERS, "n_head": 4,
    "n_positions": 256, "bos_token_id": 1, "eos_token_id": 2, "attn_pdrop": 0.0,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0,
}  # fmt: skip
TIED = {**reference.SIZES, "tie_word_embeddings": True}
UNTIED = {**TIED, "tie_word_embeddings": False}
FAMILIES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", UNTIED),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", GPT2),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", TIED),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", {**TIED, "head_dim": SIZE}),
    "mistral": ("MistralForCausalLM", "MistralConfig", {**UNTIED, "head_dim": SIZE,
                                                        "sliding_window": None}),
    # a token reads the eight before it, fewer than a text has
    "window": ("MistralForCausalLM", "MistralConfig", {**UNTIED, "head_dim": SIZE,
                                                       "sliding_window": 8}),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", {**TIED, "head_dim": SIZE}),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", {**TIED, "head_dim": SIZE,
               "sliding_window": 8, "query_pre_attn_scalar": SIZE}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", {**TIED, "head_dim": SIZE,
               "sliding_window": 8, "query_pre_attn_scalar": SIZE}),
    "phi": ("PhiForCausalLM", "PhiConfig", {**UNTIED, "num_key_value_heads": 4,
                                            "partial_rotary_factor": 0.5}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", {**UNTIED, "original_max_position_embeddings": 256,
                                               "sliding_window": None}),
}  # fmt: skip
ATTENTION = {"gemma2": "eager"}  # its scores have a soft cap, which sdpa has not
TEXTS = {0: "batch", 1: "sequence"}


@pytest.fixture(scope="module")
def source(request, tmp_path_factory):
    """A folder of transformers with random weights."""
    place = tmp_path_factory.mktemp("hf") / request.param
    reference.random_model(*FAMILIES[request.param]).save_pretrained(place)
    return place


def opened(source):
    found = transformers.AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32, attn_implementation=ATTENTION.get(source.name, "sdpa")
    )
    return found.eval()


def texts(before=0):
    ids = torch.randint(3, reference.WORDS, (2, 9))
    return {"input_ids": ids, "attention_mask": torch.ones(2, 9 + before, dtype=torch.int64)}


def pasts(model):
    config = model.config
    heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
    return [torch.randn(2, heads, 5, SIZE) for _ in range(2 * LAYERS)]


def cache_of(model, values):
    has_config = "config" in inspect.signature(transformers.DynamicCache).parameters
    cache = transformers.DynamicCache(**({"config": model.config} if has_config else {}))
    for i in range(LAYERS):
        cache.update(values[2 * i], values[2 * i + 1], i)
    return cache


def dynamo(source, path):
    model = opened(source)
    model.config.use_cache = False
    torch.onnx.export(
        model, (), path, kwargs=texts(), dynamo=True, verbose=False,
        dynamic_shapes={"input_ids": TEXTS, "attention_mask": TEXTS},
    )  # fmt: skip


def dynamo_without_mask(source, path):
    model = opened(source)
    model.config.use_cache = False
    ids = texts()["input_ids"]
    torch.onnx.export(model, (ids,), path, dynamo=True, verbose=False, dynamic_shapes=(TEXTS,))


def dynamo_with_past(source, path):
    executorch = pytest.importorskip("transformers.integrations.executorch")
    if not hasattr(executorch, "register_dynamic_cache_export_support"):
        pytest.skip("transformers registers the cache itself, under other names")
    executorch.register_dynamic_cache_export_support()
    model, rows = opened(source), {0: "batch", 2: "past"}
    torch.onnx.export(
        model, (), path, dynamo=True, verbose=False,
        kwargs={**texts(5), "past_key_values": cache_of(model, pasts(model))},
        dynamic_shapes={"input_ids": TEXTS, "attention_mask": {0: "batch", 1: "total"},
                        "past_key_values": [[rows] * LAYERS, [rows] * LAYERS]},
    )  # fmt: skip


class Flat(torch.nn.Module):
    """A model around another, whose past is plain tensors."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, input_ids, attention_mask, *past):
        given = {"input_ids": input_ids, "attention_mask": attention_mask}
        if not past:
            return self.inner(**given, use_cache=False).logits
        cache = cache_of(self.inner, past)
        made = self.inner(**given, past_key_values=cache, use_cache=True)
        return made.logits, *(t for layer in cache.layers for t in (layer.keys, layer.values))


def script(source, path, past=()):
    if int(transformers.__version__.partition(".")[0]) < 5:
        pytest.skip("the older exporter cannot follow the masks of transformers 4")
    names = [f"{i}.{kind}" for i in range(LAYERS) for kind in ("key", "value")] if past else []
    axes = {f"past_key_values.{n}": {0: "batch", 2: "past"} for n in names}
    axes |= {"input_ids": TEXTS, "attention_mask": {0: "batch", 1: "total"}}
    torch.onnx.export(
        Flat(opened(source)), (*texts(5 if past else 0).values(), *past), path, dynamo=False,
        input_names=["input_ids", "attention_mask", *(f"past_key_values.{n}" for n in names)],
        output_names=["logits", *(f"present.{n}" for n in names)], dynamic_axes=axes,
        opset_version=17,
    )  # fmt: skip


def script_with_past(source, path):
    script(source, path, pasts(opened(source)))


def optimum(source, path, task="text-generation"):
    try:
        from optimum.exporters.onnx import main_export
    except ImportError:
        pytest.skip("needs optimum-onnx, which asks for transformers 4")
    main_export(
        str(source), output=path.parent, task=task, do_validation=False, no_post_process=True,
        device="cpu",
    )  # fmt: skip


def optimum_with_past(source, path):
    optimum(source, path, "text-generation-with-past")


FORMS = (dynamo, dynamo_without_mask, dynamo_with_past, script, script_with_past, optimum,
         optimum_with_past)  # fmt: skip


# the first families in all forms, the others in that of today's exporter
CASES = [(family, export) for family in FAMILIES for export in FORMS
         if family in ("llama", "gpt2", "qwen2", "qwen3") or export is dynamo]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "export"), CASES, indirect=["source"], ids=lambda v: getattr(v, "__name__", v)
)
def test_ten_steps_equal_those_of_peft(source, export, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    path = tmp_path / "model.onnx"
    export(source, path)
    first = flow.lora(path, rank=4, accumulate=False)
    start = reference.drawn_start(adapter_of(first.trainer()))
    write_adapter(tmp_path / "peft", start)
    trainer = flow.lora(path, start=start, accumulate=False, lr=reference.RATE).trainer()
    names = [f.name for f in trainer.feeds]
    batches = ({n: batch[n] for n in names} for batch in reference.batches())
    losses = [float(trainer.step(**batch)["loss"]) for batch in batches]
    model = peft.PeftModel.from_pretrained(opened(source), tmp_path / "peft", is_trainable=True)
    modules = {n.removeprefix("base_model.model.") for n, m in model.named_modules()
               if hasattr(m, "lora_A")}  # fmt: skip
    assert set(start.pairs) == modules
    np.testing.assert_allclose(losses, reference.peft_losses(model), rtol=2e-5)
    run_command(path)


def run_command(path):
    """`flow2onnx lora` with nothing but what it asks for, and samples."""
    write_tokenizer(path.parent, [f"w{i}" for i in range(100)])
    data, out = path.parent / "chat.jsonl", path.parent / "out"
    data.write_text("".join(chat(f"w{i}", f"w{i + 1} w{i + 2}") for i in range(6)))
    args = ["lora", path, "--data", data, "-o", out, "--sample", "w1", "--json"]
    found = CliRunner().invoke(app, list(map(str, args)))
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert np.isfinite(told["epochs"][0]["loss"])
    assert len(told["samples"]) == 1
    assert (out / "adapter.onnx_adapter").exists()
