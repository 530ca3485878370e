"""The models of `folders` in torch, with adapters as PEFT computes them."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  # as torch's own examples call it


class Model:
    """A folder's model on its weights as real numbers; `pairs` are trained, (A, B) by module."""

    def __init__(self, folder, pairs, scales, dtype=torch.float32):
        self.shape, self.scales = folder.shape, scales
        self.weights = {n: torch.tensor(np.asarray(w)).to(dtype) for n, w in folder.weights.items()}
        self.pairs = {
            m: tuple(nn.Parameter(torch.tensor(np.asarray(v)).to(dtype)) for v in p)
            for m, p in pairs.items()
        }

    def parameters(self):
        return [v for pair in self.pairs.values() for v in pair]

    def product(self, module, x, parts=()):
        """A product, with the adapters of the modules that are packed in it."""
        y = x @ self.weights[module].T
        added = [self.change(part, x, width) for part, width in parts or [(module, y.shape[-1])]]
        return y + torch.cat(added, -1)

    def change(self, module, x, width):
        if module not in self.pairs:
            return x.new_zeros(*x.shape[:-1], width)
        a, b = self.pairs[module]
        return self.scales[module] * ((x @ a) @ b)

    def norm(self, name, x):
        rate = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.shape.epsilon)
        return x * rate * self.weights[name]

    def attention(self, i, x, segments=None):
        s, at = self.shape, f"model.layers.{i}.attn"
        widths = {"q": s.heads * s.head, "k": s.shared * s.head, "v": s.shared * s.head}
        if s.is_packed:
            parts = [(f"{at}.{n}_proj", w) for n, w in widths.items()]
            whole = self.product(f"{at}.qkv_proj", x, parts)
            if s.has_bias:
                whole = whole + self.weights[f"{at}.qkv_proj.bias"]
            parts = whole.split(list(widths.values()), -1)
        else:
            parts = [self.product(f"{at}.{n}_proj", x) for n in widths]
        q, k, v = (p.unflatten(-1, (-1, s.head)) for p in parts)
        if not s.is_packed:
            q, k = self.norm(f"{at}.q_norm", q), self.norm(f"{at}.k_norm", k)
        q, k, v = (t.transpose(1, 2) for t in (self.turn(q), self.turn(k), v))
        k, v = (t.repeat_interleave(s.heads // s.shared, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) * s.head**-0.5
        if s.softcap:
            scores = torch.tanh(scores / s.softcap) * s.softcap
        rows = torch.arange(x.shape[1])
        hidden = rows[None] > rows[:, None]
        if s.window > 0:
            hidden = hidden | (rows[:, None] - rows[None] >= s.window)
        scores = scores.masked_fill(hidden, float("-inf"))
        if segments is not None:
            apart = segments[:, None, :, None] != segments[:, None, None, :]
            scores = scores.masked_fill(apart, float("-inf"))
        y = scores.softmax(-1) @ v
        return self.product(f"{at}.o_proj", y.transpose(1, 2).flatten(2))

    def experts(self, at, x):
        """All experts of each token, by what it takes of them."""
        s, weights = self.shape, self.weights
        scores = self.product(f"{at}.router", x) + weights[f"{at}.router.bias"]
        best, places = scores.topk(s.chosen)
        gates = torch.zeros_like(scores).scatter(-1, places, best.softmax(-1))
        up, down = (f"{at}.experts.{n}" for n in ("gate_up_proj", "down_proj"))
        raw = torch.einsum("bth,enh->bten", x, weights[f"{up}.weight"]) + weights[f"{up}.bias"]
        gate, other = raw[..., ::2].clamp(max=s.limit), raw[..., 1::2].clamp(-s.limit, s.limit)
        inner = gate * torch.sigmoid(1.702 * gate) * (other + 1)
        y = torch.einsum("bten,ehn->bteh", inner, weights[f"{down}.weight"])
        return ((y + weights[f"{down}.bias"]) * gates[..., None]).sum(2)

    def turn(self, x):
        """Halves of each head, rotated by the place of the row."""
        cosine, sine = (self.weights[n][: x.shape[1], None] for n in ("cos", "sin"))
        near, far = x.chunk(2, -1)
        return torch.cat([near * cosine - far * sine, near * sine + far * cosine], -1)

    def logits(self, ids, segments=None):
        s = self.shape
        x = self.weights["model.embed_tokens"][ids]
        for i in range(s.layers):
            at = f"model.layers.{i}"
            x = x + self.attention(i, self.norm(f"{at}.input_layernorm", x), segments)
            y = self.norm(f"{at}.post_attention_layernorm", x)
            if s.experts:
                x = x + self.experts(f"{at}.moe", y)
                continue
            gate = F.silu(self.product(f"{at}.mlp.gate_proj", y))
            x = x + self.product(f"{at}.mlp.down_proj", gate * self.product(f"{at}.mlp.up_proj", y))
        y = self.norm(f"model.layers.{s.layers}.final_norm_layernorm", x)
        return y @ self.weights["lm_head"].T

    def loss(self, ids, labels, segments=None):
        scores = self.logits(ids, segments)
        return F.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-100)


def train(folder, pairs, scales, batches, rate=2e-4, decay=0.01):
    """The losses of AdamW's steps, and the adapters after them."""
    model = Model(folder, pairs, scales)
    rule = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay)
    losses = []
    for batch in batches:
        rule.zero_grad()
        loss = model.loss(*(torch.tensor(v) for v in batch))
        loss.backward()
        rule.step()
        losses.append(loss.item())
    return losses, {m: tuple(v.detach().numpy() for v in p) for m, p in model.pairs.items()}
