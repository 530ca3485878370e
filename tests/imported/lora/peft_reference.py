"""Models of transformers with random weights, and steps of PEFT's adapters of them."""

import numpy as np
import torch
import transformers

WORDS, STEPS, RATE = 160, 10, 1e-3
SIZES = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


def random_model(model, config, settings):
    """A model of a class of transformers, whose weights are drawn so that each counts."""
    found = getattr(transformers, model)(getattr(transformers, config)(**settings))
    torch.manual_seed(0)
    with torch.no_grad():
        for name, value in found.named_parameters():
            scale = 0.5 if "embed" in name or "wte" in name else value.shape[-1] ** -0.5
            if value.ndim == 1:
                value.add_(0.1 * torch.randn_like(value))
            else:
                value.normal_(0, scale)
    return found


def batches():
    """Tokens, masks and labels of each step."""
    rng = np.random.default_rng(5)
    for _ in range(STEPS):
        ids = rng.integers(3, WORDS, (2, 24))
        labels = np.roll(ids, -1, 1)
        labels[:, -1] = labels[:, :3] = -100
        yield {"input_ids": ids, "attention_mask": np.ones_like(ids), "labels": labels}


def peft_losses(model):
    """The losses of AdamW's steps; packed modules have one pair, whose zeros stay zeros."""
    trained = {n: v for n, v in model.named_parameters() if v.requires_grad}
    kept = {n: v.detach() != 0 for n, v in trained.items()}
    rule = torch.optim.AdamW(trained.values(), RATE, weight_decay=0.01)
    losses = []
    for batch in batches():
        rule.zero_grad()
        scores = model(input_ids=torch.tensor(batch["input_ids"]), use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            scores.flatten(0, 1), torch.tensor(batch["labels"]).flatten(), ignore_index=-100
        )
        loss.backward()
        for name, value in trained.items():
            value.grad *= kept[name]
        rule.step()
        losses.append(loss.item())
    return losses


def drawn_start(adapter, seed=6):
    """The adapter with all numbers drawn anew, so that both matrices have gradients."""
    rng = np.random.default_rng(seed)
    for pair in adapter.pairs.values():
        for matrix in pair:
            matrix[:] = 0.1 * rng.standard_normal(matrix.shape)
    return adapter
