"""Optimizers that torch does not have, in float64 as their papers write them."""

import numpy as np


def gradients(w, x, y):
    """The gradient of the mean of ((tanh(x w1 + b1) w2 + b2) scale - y)² in each weight."""
    h = np.tanh(x @ w["w1"] + w["b1"])
    out = h @ w["w2"] + w["b2"]
    g = 2 * (out * w["scale"] - y) / y.size
    g_out, g_scale = g * w["scale"], (g * out).sum()
    g_h = (g_out @ w["w2"].T) * (1 - h * h)
    return {"w1": x.T @ g_h, "b1": g_h.sum(0), "w2": h.T @ g_out, "b2": g_out.sum(0),
            "scale": g_scale}  # fmt: skip


def run(update, w, batches):
    """The weights after all batches; `update` is given a weight, its gradient, its memory, t."""
    memories = {name: {} for name in w}
    for t, (x, y) in enumerate(batches, 1):
        g = gradients(w, x, y)
        w = {name: update(v, g[name], memories[name], t) for name, v in w.items()}
    return w


def lion(lr, beta1, beta2, decay):
    """Chen et al. 2023, algorithm 2."""

    def update(w, g, memory, t):
        m = memory.get("m", 0.0)
        c = beta1 * m + (1 - beta1) * g
        memory["m"] = beta2 * m + (1 - beta2) * g
        return w - lr * (np.sign(c) + decay * w)

    return lambda w, batches: run(update, w, batches)


def lamb(lr, beta1, beta2, eps, decay):
    """You et al. 2020, algorithm 2."""

    def update(w, g, memory, t):
        memory["m"] = m = beta1 * memory.get("m", 0.0) + (1 - beta1) * g
        memory["v"] = v = beta2 * memory.get("v", 0.0) + (1 - beta2) * g * g
        r = (m / (1 - beta1**t)) / (np.sqrt(v / (1 - beta2**t)) + eps)
        direction = r + decay * w
        return w - lr * np.linalg.norm(w) / np.linalg.norm(direction) * direction

    return lambda w, batches: run(update, w, batches)


def lars(lr, momentum, trust, decay, eps=1e-8):
    """You et al. 2017, algorithm 1."""

    def update(w, g, memory, t):
        norms = np.linalg.norm(g) + decay * np.linalg.norm(w) + eps
        local = trust * np.linalg.norm(w) / norms
        memory["v"] = v = momentum * memory.get("v", 0.0) + lr * local * (g + decay * w)
        return w - v

    return lambda w, batches: run(update, w, batches)


PAPERS = {
    "lion": ("lion", lion(1e-4, 0.9, 0.99, 0.0)),
    "lion_decay": ("lion(lr=0.01, beta1=0.8, beta2=0.9, weight_decay=0.1)",
                   lion(0.01, 0.8, 0.9, 0.1)),
    "lamb": ("lamb(lr=0.01)", lamb(0.01, 0.9, 0.999, 1e-6, 0.0)),
    "lamb_decay": ("lamb(lr=0.02, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.1)",
                   lamb(0.02, 0.8, 0.9, 1e-3, 0.1)),
    "lars": ("lars(lr=1.0)", lars(1.0, 0.9, 1e-3, 0.0)),
    "lars_decay": ("lars(lr=0.5, momentum=0.7, trust_coefficient=0.02, weight_decay=0.1)",
                   lars(0.5, 0.7, 0.02, 0.1)),
}  # fmt: skip
