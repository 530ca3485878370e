"""Write torch_losses.npz: the weights after twenty steps of torch by each loss, in float64.

Losses that torch does not have are written here as their papers have them.

    python -m tests.ops.record_losses    # in an environment with torch
"""

from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F  # noqa: N812  # as torch's users call it

from tests.ops.loss_cases import CASES, RATE, STEPS, operands, weights

PATH = Path(__file__).with_name("torch_losses.npz")


def tensor(settings, name):
    """A list of numbers as a tensor; torch takes them so."""
    given = settings.get(name)
    return None if given is None else torch.tensor(given)


def of_classes(function):
    def loss(settings, output, labels):
        known = {k: v for k, v in settings.items() if k not in ("weight", "probabilities")}
        return function(output, labels, weight=tensor(settings, "weight"), **known)

    return loss


def focal(settings, x, y):
    p = torch.sigmoid(x)
    p_t = torch.where(y == 1, p, 1 - p)
    gamma, alpha = settings.get("gamma", 2.0), settings.get("alpha", 0.25)
    alpha_t = 1.0 if alpha is None else torch.where(y == 1, alpha, 1 - alpha)
    return (-alpha_t * (1 - p_t) ** gamma * torch.log(p_t)).mean()


def softmax_focal(settings, x, y):
    p_t = torch.softmax(x, 1)[range(len(y)), y]
    alpha = torch.tensor(settings["weight"])[y]
    return (-alpha * (1 - p_t) ** settings["gamma"] * torch.log(p_t)).mean()


def dice(settings, x, y):
    p = torch.sigmoid(x) if settings.get("sigmoid", True) else x
    smooth, power = settings.get("smooth", 1.0), 2 if settings.get("squared", True) else 1
    below = (p**power).sum(1) + (y**power).sum(1) + smooth
    return (1 - (2 * (p * y).sum(1) + smooth) / below).mean()


def info_nce(settings, x, y):
    if settings.get("normalize", True):
        x, y = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=1, keepdim=True)
    s = x @ y.T / settings["temperature"]
    rows = -torch.log(torch.softmax(s, 1)).diagonal().mean()
    if not settings.get("symmetric"):
        return rows
    return (rows - torch.log(torch.softmax(s, 0)).diagonal().mean()) / 2


def ctc(settings, output, labels, times, lengths):
    own = dict(settings)
    output = output.log_softmax(-1) if own.pop("logits", False) else output
    return F.ctc_loss(output, labels.clamp(min=0), times, lengths, **own)


def plain(function):
    return lambda settings, *values: function(*values, **settings)


LOSSES = {
    "cross_entropy": of_classes(F.cross_entropy),
    "nll": of_classes(F.nll_loss),
    "multi_margin": of_classes(F.multi_margin_loss),
    "mse": plain(F.mse_loss),
    "l1": plain(F.l1_loss),
    "huber": plain(F.huber_loss),
    "smooth_l1": plain(F.smooth_l1_loss),
    "bce": plain(F.binary_cross_entropy),
    "bce_with_logits": lambda s, x, y: F.binary_cross_entropy_with_logits(
        x, y, pos_weight=tensor(s, "pos_weight")
    ),
    "kl": lambda s, x, y: F.kl_div(x, y, **{"reduction": "batchmean", **s}),
    "hinge_embedding": plain(F.hinge_embedding_loss),
    "soft_margin": plain(F.soft_margin_loss),
    "poisson_nll": lambda s, x, y: F.poisson_nll_loss(x, y, log_input=s.get("log_input", True)),
    "gaussian_nll": lambda s, x, v, y: F.gaussian_nll_loss(x, y, v),
    "cosine_embedding": plain(F.cosine_embedding_loss),
    "cosine": lambda s, x, y: F.cosine_embedding_loss(x, y, torch.ones(len(x))),
    "triplet": plain(F.triplet_margin_loss),
    "margin_ranking": plain(F.margin_ranking_loss),
    "ctc": ctc,
    "focal": focal,
    "softmax_focal": softmax_focal,
    "dice": dice,
    "hinge": lambda s, x, y: (1 - x * y).clamp(min=0).mean(),
    "info_nce": info_nce,
}
HEADS = {
    "scores": lambda x: x,
    "time": lambda x: x,
    "log_softmax": lambda x: x.log_softmax(-1),
    "time_log_softmax": lambda x: x.log_softmax(-1),
    "sigmoid": torch.sigmoid,
    "positive": torch.exp,
}


def trained():
    """All weights after twenty steps, and the losses of every step by ``loss/case``."""
    given = {n: torch.tensor(v) for n, v in operands().items()}
    w = {n: torch.tensor(v, requires_grad=True) for n, v in weights().items()}
    optimizer = torch.optim.SGD(w.values(), RATE)
    seen = {case: [] for case in CASES}
    for _ in range(STEPS):
        optimizer.zero_grad()
        for case, (name, settings, heads, labels) in CASES.items():
            outputs = [
                HEADS[h](given["x_time" if h.startswith("time") else "x"] @ w[f"{case}-{i}"])
                for i, h in enumerate(heads)
            ]
            loss = LOSSES[name](settings, *outputs, *(given[n] for n in labels))
            loss.backward()
            seen[case].append(loss.item())
        optimizer.step()
    losses = {f"loss/{case}": np.array(values) for case, values in seen.items()}
    return {n: v.detach().numpy() for n, v in w.items()} | losses


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    np.savez_compressed(PATH, **trained())
