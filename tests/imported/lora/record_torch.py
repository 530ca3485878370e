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
SHAPES = {
    "llama": SMALL,
    "llama-window-softcap": replace(SMALL, window=4, softcap=2.0),
    "qwen2-eight-bits": with_bits(replace(SMALL, family="qwen2"), 8),
    "qwen3-four-bits": with_bits(replace(SMALL, family="qwen3", is_tied=True), 4),
    "llama-four-bits-points": with_bits(replace(SMALL, is_tied=True), 4, points=True),
    "llama-half": replace(SMALL, dtype="float16"),
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
    widths |= dict.fromkeys(("gate_proj", "up_proj"), (shape.hidden, shape.inner))
    widths |= {"down_proj": (shape.inner, shape.hidden)}
    return {
        f"model.layers.{i}.{'attn' if n[0] in 'qkvo' else 'mlp'}.{n}": tuple(
            (0.1 * rng.standard_normal(s)).astype(np.float32) for s in ((c, RANK), (RANK, r))
        )
        for i in range(shape.layers)
        for n, (c, r) in widths.items()
    }


def main():
    from tests.imported.lora.torch_reference import train

    found = {}
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            pairs = first_pairs(shape)
            scales = dict.fromkeys(pairs, ALPHA / RANK)
            made = write_folder(folder, shape)
            losses, end = train(made, pairs, scales, list(batches(shape)), rate=1e-2)
        found[f"{name}/losses"] = np.asarray(losses)
        for module in ("model.layers.0.attn.k_proj", "model.layers.1.mlp.down_proj"):
            found |= {f"{name}/{module}/{n}": v for n, v in zip("AB", end[module], strict=True)}
    np.savez_compressed(PLACE, **found)


if __name__ == "__main__":
    main()
