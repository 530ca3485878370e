"""Record torch on the models of `folders`: `python -m tests.imported.lora.record_torch`.

It needs torch, and neither the compiler nor the runtime.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.imported.lora.folders import Shape, with_bits, write_folder

STEPS, RANK, ALPHA = 10, 4, 16
SMALL = Shape(hidden=32, heads=2, shared=1, head=16, inner=48, words=96, places=64)
EXPERTS = replace(SMALL, family="gptoss", hidden=64, inner=64, experts=4, limit=1.0)
SHAPES = {
    "llama": SMALL,
    "llama-window-softcap": replace(SMALL, window=4, softcap=2.0),
    "qwen2-eight-bits": with_bits(replace(SMALL, family="qwen2"), 8),
    "qwen3-four-bits": with_bits(replace(SMALL, family="qwen3", is_tied=True), 4),
    "llama-four-bits-points": with_bits(replace(SMALL, is_tied=True), 4, points=True),
    "llama-half": replace(SMALL, dtype="float16"),
    "experts": EXPERTS,
    "experts-four-bits": with_bits(EXPERTS, 4),
    "experts-eight-bits": with_bits(EXPERTS, 8),
}
PLACE = Path(__file__).with_name("recorded.npz")


def batches(shape):
    """Tokens and labels of each step: the next token, none for the first three and the last."""
    rng = np.random.default_rng(5)
    for _ in range(STEPS):
        ids = rng.integers(0, shape.words, (2, 9))
        labels = np.roll(ids, -1, 1)
        labels[:, -1] = labels[:, :3] = -100
        yield ids, labels


def first_pairs(shape):
    """Adapters of all products, none of them zeros."""
    rng = np.random.default_rng(6)
    widths = {"q_proj": (shape.hidden, shape.heads * shape.head)}
    widths |= dict.fromkeys(("k_proj", "v_proj"), (shape.hidden, shape.shared * shape.head))
    widths |= {"o_proj": (shape.heads * shape.head, shape.hidden)}
    if shape.experts:
        widths |= {"router": (shape.hidden, shape.experts)}
    else:
        widths |= dict.fromkeys(("gate_proj", "up_proj"), (shape.hidden, shape.inner))
        widths |= {"down_proj": (shape.inner, shape.hidden)}
    own = "moe" if shape.experts else "mlp"
    return {
        f"model.layers.{i}.{'attn' if n[0] in 'qkvo' else own}.{n}": tuple(
            (0.1 * rng.standard_normal(s)).astype(np.float32) for s in ((c, RANK), (RANK, r))
        )
        for i in range(shape.layers)
        for n, (c, r) in widths.items()
    }


def rate(shape):
    """The rate of AdamW: with experts a lower one, as rounding decides between equal choices."""
    return 1e-3 if shape.experts else 1e-2


def recorded_modules(shape):
    """The modules whose matrices after the last step are recorded."""
    last = "moe.router" if shape.experts else "mlp.down_proj"
    return "model.layers.0.attn.k_proj", f"model.layers.1.{last}"


def main():
    from tests.imported.lora.torch_reference import train

    found = {}
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            pairs = first_pairs(shape)
            scales = dict.fromkeys(pairs, ALPHA / RANK)
            made = write_folder(folder, shape)
            losses, end = train(made, pairs, scales, list(batches(shape)), rate=rate(shape))
        found[f"{name}/losses"] = np.asarray(losses)
        for module in recorded_modules(shape):
            found |= {f"{name}/{module}/{n}": v for n, v in zip("AB", end[module], strict=True)}
    np.savez_compressed(PLACE, **found)


if __name__ == "__main__":
    main()
