"""Networks of Hugging Face's transformers, from tiny configurations without any download."""

import torch
import transformers
from transformers import AutoConfig

from tests.zoo.origins import Architecture
from tests.zoo.torch_origin import First, origins

__all__ = ["ARCHITECTURES", "origins"]

# What configurations call their sizes; those that one has are set.
_SIZES = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size"), 16),
    **dict.fromkeys(("embed_dim", "projection_dim", "emb_dim", "word_embed_proj_dim"), 16),
    "encoder_hidden_size": 16,
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_decoder_layers"), 1),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 2),
    **dict.fromkeys(("num_key_value_heads", "encoder_attention_heads"), 2),
    "decoder_attention_heads": 2,
    **dict.fromkeys(("intermediate_size", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim"), 24),
    **dict.fromkeys(("hidden_dim", "ffn_dim", "n_inner", "shared_expert_intermediate_size"), 24),
    "moe_intermediate_size": 24, "num_experts": 4, "num_local_experts": 4,
    "vocab_size": 37, "head_dim": 8, "d_kv": 8, "n_positions": 32, "max_position_embeddings": 32,
    "image_size": 16, "patch_size": 4, "num_channels": 3, "num_labels": 5, "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "tie_word_embeddings": True, "sliding_window": 4, "tie_encoder_decoder": False,
}  # fmt: skip


def tiny(kind, **more):
    """A configuration of a kind with small sizes."""
    config = AutoConfig.for_model(kind)
    for name, size in {**_SIZES, **more}.items():
        if hasattr(config, name) or name in more:
            setattr(config, name, size)
    config._attn_implementation = "eager"
    return config


def words(*names):
    def draw():
        return tuple(torch.randint(3, 37, (2, 6)) for _ in names or ("input_ids",))

    return draw


def pictures():
    return (torch.randn(2, 3, 16, 16),)


def model(head, kind, draw, names=("input_ids",), **more):
    """An architecture: a class `AutoModelFor…` over a tiny configuration."""

    def make():
        net = getattr(transformers, head).from_config(tiny(kind, **more))
        return First(ByName(net, names)), draw()

    return make


class ByName(torch.nn.Module):
    """A network whose inputs are given by position."""

    def __init__(self, net, names):
        super().__init__()
        self.net, self.names = net, names

    def forward(self, *inputs):
        return self.net(**dict(zip(self.names, inputs, strict=True)), return_dict=True)


_PAIR = ("input_ids", "decoder_input_ids")
_HEADS = {
    "AutoModelForCausalLM": (
        "gpt2 gpt_neox gptj gpt_bigcode llama mistral qwen2 qwen3 phi phi3 gemma gemma2 "
        "gemma3_text olmo olmo2 cohere stablelm starcoder2 opt bloom biogpt ctrl openai-gpt "
        "xglm granite smollm3 helium glm glm4 nemotron ernie4_5 persimmon mixtral qwen2_moe "
        "mamba rwkv apertus arcee exaone4 seed_oss hunyuan_v1_dense"
    ),
    "AutoModelForMaskedLM": (
        "bert roberta distilbert albert electra camembert xlm-roberta mpnet convbert deberta "
        "deberta-v2 esm fnet squeezebert mobilebert megatron-bert roformer ibert ernie "
        "nystromformer modernbert layoutlm"
    ),
}  # fmt: skip
_OWN = {
    "albert": {"embedding_size": 16},
    "electra": {"embedding_size": 16},
    "mobilebert": {"hidden_size": 16, "true_hidden_size": 8, "intra_bottleneck_size": 8,
                   "embedding_size": 16, "num_feedforward_networks": 1},
    "gptj": {"rotary_dim": 4}, "codegen": {"rotary_dim": 4},
    "roformer": {"embedding_size": 16}, "bloom": {"hidden_size": 16},
    "ctrl": {"dff": 24}, "biogpt": {"hidden_size": 16}, "squeezebert": {"embedding_size": 16},
    "mamba": {"state_size": 4, "time_step_rank": 2}, "rwkv": {"attention_hidden_size": 16},
    "fnet": {"tpu_short_seq_length": 6},
}  # fmt: skip

_TEXTS = [
    Architecture(kind, model(head, kind, words(), **_OWN.get(kind, {})), "mse", ("torch",))
    for head, kinds in _HEADS.items()
    for kind in kinds.split()
]
_PAIRS = [
    Architecture(
        kind, model("AutoModelForSeq2SeqLM", kind, words(*_PAIR), _PAIR), "mse", ("torch",)
    )
    for kind in ("t5", "mt5", "bart", "mbart", "pegasus", "blenderbot", "m2m_100", "umt5")
]
_IMAGES = {
    "vit": {}, "deit": {}, "beit": {"use_mask_token": False},
    "dinov2": {"reshape_hidden_states": False},
    "convnext": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "convnextv2": {"hidden_sizes": [8, 16], "depths": [1, 1], "num_stages": 2},
    "resnet": {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]},
    "poolformer": {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1], "image_size": 32},
    "swin": {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 2},
    "mobilenet_v1": {"image_size": 32}, "mobilevit": {"hidden_sizes": [16, 16, 24],
                                                      "neck_hidden_sizes": [8, 8, 8, 8, 8, 8, 16]},
    "segformer": {}, "hiera": {}, "ijepa": {}, "focalnet": {"embed_dim": 8, "depths": [1, 1]},
    "levit": {"hidden_sizes": [16, 16, 16]}, "regnet": {"embedding_size": 8,
                                                      "hidden_sizes": [8, 8, 16, 16],
                                                      "depths": [1, 1, 1, 1], "groups_width": 8},
}  # fmt: skip
_PICTURES = [
    Architecture(
        kind,
        model("AutoModelForImageClassification", kind, pictures, ("pixel_values",), **more),
        "cross_entropy",
        ("torch",),
    )
    for kind, more in _IMAGES.items()
]


def clip():
    config = tiny("clip")
    for part in (config.text_config, config.vision_config):
        for name, size in _SIZES.items():
            if hasattr(part, name):
                setattr(part, name, size)
    net = transformers.CLIPModel(config)
    names = ("input_ids", "pixel_values")
    return First(ByName(net, names)), (words()()[0], torch.randn(2, 3, 16, 16))


ARCHITECTURES = [
    *_TEXTS,
    *_PAIRS,
    *_PICTURES,
    Architecture("clip", clip, "mse", ("torch",)),
    Architecture("bert, three exporters", model("AutoModelForMaskedLM", "bert", words())),
    Architecture("gpt2, three exporters", model("AutoModelForCausalLM", "gpt2", words())),
    Architecture("vit, three exporters", model("AutoModelForImageClassification", "vit", pictures,
                                               ("pixel_values",)), "cross_entropy"),
]  # fmt: skip
