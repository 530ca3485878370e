"""Losses by name with settings, their operands, and what is trained by them for twenty steps."""

import numpy as np

STEPS, RATE = 20, 0.25
# Name, settings, what the outputs x w go through, each of a weight of its own, and the labels.
CASES = {
    "cross_entropy": ("cross_entropy", {}, ["scores"], ["classes"]),
    "cross_entropy_weights": (
        "cross_entropy",
        {"weight": [0.5, 2.0, 1.0], "label_smoothing": 0.2, "ignore_index": 1},
        ["scores"], ["classes"],
    ),
    "cross_entropy_smooth": ("cross_entropy", {"label_smoothing": 0.3, "ignore_index": 2},
                             ["scores"], ["classes"]),
    "cross_entropy_sum": ("cross_entropy", {"weight": [1.0, 0.0, 3.0], "reduction": "sum"},
                          ["scores"], ["classes"]),
    "cross_entropy_soft": (
        "cross_entropy",
        {"probabilities": True, "label_smoothing": 0.1, "weight": [0.5, 2.0, 1.0]},
        ["scores"], ["distribution"],
    ),
    "nll": ("nll", {}, ["log_softmax"], ["classes"]),
    "nll_weights": ("nll", {"weight": [0.5, 2.0, 1.0], "ignore_index": 0}, ["log_softmax"],
                    ["classes"]),
    "multi_margin": ("multi_margin", {"margin": 0.7}, ["scores"], ["classes"]),
    "multi_margin_square": ("multi_margin", {"p": 2, "weight": [0.5, 2.0, 1.0]}, ["scores"],
                            ["classes"]),
    "mse": ("mse", {}, ["scores"], ["real"]),
    "l1": ("l1", {}, ["scores"], ["real"]),
    "huber": ("huber", {"delta": 0.5}, ["scores"], ["real"]),
    "smooth_l1": ("smooth_l1", {"beta": 0.3}, ["scores"], ["real"]),
    "smooth_l1_sharp": ("smooth_l1", {"beta": 0.0}, ["scores"], ["real"]),
    "bce": ("bce", {}, ["sigmoid"], ["share"]),
    "bce_with_logits": ("bce_with_logits", {}, ["scores"], ["share"]),
    "bce_pos_weight": ("bce_with_logits", {"pos_weight": [3.0, 0.5, 1.5]}, ["scores"], ["binary"]),
    "kl": ("kl", {}, ["log_softmax"], ["distribution"]),
    "kl_mean": ("kl", {"log_target": True, "reduction": "mean"}, ["log_softmax"], ["logarithms"]),
    "hinge_embedding": ("hinge_embedding", {"margin": 0.6}, ["scores"], ["signs"]),
    "soft_margin": ("soft_margin", {}, ["scores"], ["signs"]),
    "poisson_nll": ("poisson_nll", {}, ["scores"], ["share"]),
    "poisson_nll_rate": ("poisson_nll", {"log_input": False}, ["positive"], ["share"]),
    "gaussian_nll": ("gaussian_nll", {}, ["scores", "positive"], ["real"]),
    "cosine_embedding": ("cosine_embedding", {"margin": 0.1}, ["scores", "scores"], ["sign"]),
    "triplet": ("triplet", {}, ["scores", "scores", "scores"], []),
    "triplet_swap": ("triplet", {"margin": 0.5, "p": 3.0, "swap": True},
                     ["scores", "scores", "scores"], []),
    "margin_ranking": ("margin_ranking", {"margin": 0.2}, ["scores", "scores"], ["signs"]),
    "ctc": ("ctc", {}, ["time_log_softmax"], ["texts", "times", "lengths"]),
    "ctc_logits": ("ctc", {"blank": 2, "logits": True, "reduction": "sum"}, ["time"],
                   ["texts_of_0_and_1", "times", "lengths"]),
    "focal": ("focal", {}, ["scores"], ["binary"]),
    "focal_sharp": ("focal", {"gamma": 0.5, "alpha": None}, ["scores"], ["binary"]),
    "softmax_focal": ("softmax_focal", {"gamma": 1.5, "weight": [0.5, 2.0, 1.0]}, ["scores"],
                      ["classes"]),
    "dice": ("dice", {}, ["scores"], ["binary"]),
    "dice_plain": ("dice", {"squared": False, "smooth": 0.1, "sigmoid": False}, ["sigmoid"],
                   ["binary"]),
    "hinge": ("hinge", {}, ["scores"], ["signs"]),
    "cosine": ("cosine", {}, ["scores"], ["real"]),
    "info_nce": ("info_nce", {"temperature": 0.5}, ["scores", "scores"], []),
    "info_nce_symmetric": (
        "info_nce", {"temperature": 0.3, "normalize": False, "symmetric": True},
        ["scores", "scores"], [],
    ),
}  # fmt: skip


def weights():
    """The first weights (4, 3) of every output of every case, in float64."""
    draw = np.random.default_rng(5)
    return {
        f"{case}-{i}": draw.standard_normal((4, 3)) * 0.5
        for case, (_, _, heads, _) in CASES.items()
        for i in range(len(heads))
    }


def operands():
    """The input of all steps, (6, 4), and every kind of labels."""
    draw = np.random.default_rng(11)
    x, real = draw.standard_normal((6, 4)), draw.standard_normal((6, 3))
    share = draw.random((6, 3))
    distribution = share / share.sum(1, keepdims=True)
    return {
        "x": x,
        "x_time": draw.standard_normal((5, 2, 4)),
        "classes": np.int64([0, 2, 1, 1, 0, 2]),
        "real": real,
        "share": share,
        "binary": np.float64(share > 0.4),
        "distribution": distribution,
        "logarithms": np.log(distribution),
        "signs": np.where(real > 0, 1.0, -1.0),
        "sign": np.float64([1, -1, 1, 1, -1, -1]),
        "texts": np.int64([[1, 2], [2, 0]]),
        "texts_of_0_and_1": np.int64([[1, 1], [0, -7]]),
        "times": np.int64([5, 3]),
        "lengths": np.int64([2, 1]),
    }
