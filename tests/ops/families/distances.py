"""Losses with a reduction."""

import numpy as np

from tests.ops.row import Row

SHAPE = (3, 4)


def _full(y):
    return np.reshape(y, (1,))


def _reductions(name, ref, shapes, args=None, note="", **options):
    ways = {"mean": lambda y: _full(y.mean()), "sum": lambda y: _full(y.sum()), "none": np.asarray}
    return [
        Row(
            name,
            lambda *v, how=how: how(ref(*v)),
            shapes,
            {"reduction": way, **(args or {})},
            note=f"{note}-{way}" if note else way,
            **options,
        )
        for way, how in ways.items()
    ]


def _bce(x, y):
    return -(y * np.log(x) + (1 - y) * np.log(1 - x))


def _logits(x, y, p=1.0):
    return (1 - y) * x + ((p - 1) * y + 1) * np.log1p(np.exp(-x))


def _norm(x, p=2.0):
    return (np.abs(x + 1e-6) ** p).sum(1) ** (1 / p)


def _triplet(margin, p):
    return lambda a, x, y: np.maximum(0, margin + _norm(a - x, p) - _norm(a - y, p))


def _smooth(beta):
    def loss(x, y):
        d = np.abs(x - y)
        return np.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)

    return loss


def _margin(m1, m2, m3):
    def moved(x, z):
        y, rows = x.copy(), np.arange(len(x))
        y[rows, z] = np.cos(np.arccos(x[rows, z]) * m1 + m2) - m3
        return y

    return moved


PAIR = [SHAPE, SHAPE]
ROWS = [
    *_reductions("nn.L1Loss", lambda x, y: np.abs(x - y), PAIR),
    *_reductions("nn.MSELoss", lambda x, y: (x - y) ** 2, PAIR),
    *_reductions("nn.BCELoss", _bce, PAIR, low=0.1, high=0.9),
    *_reductions(
        "nn.BCELoss", lambda x, y, w: w * _bce(x, y), [SHAPE] * 3, note="weight", low=0.1, high=0.9
    ),
    *_reductions("nn.BCEWithLogitsLoss", _logits, PAIR),
    *_reductions("nn.KLDivLoss", lambda x, y: y * (np.log(y) - x), PAIR, low=0.1, high=0.9),
    *_reductions(
        "nn.KLDivLoss",
        lambda x, y: np.exp(y) * (y - x),
        PAIR,
        {"log_target": True},
        note="logarithms",
    ),
    *_reductions(
        "nn.MarginRankingLoss",
        lambda x, y, z: np.maximum(0, 9 - z * (x - y)),
        [SHAPE] * 3,
        {"margin": 9},
    ),
    *_reductions(
        "nn.MarginRankingLoss",
        lambda x, y, z: np.maximum(0, 9 - z * (x - y)),
        [SHAPE, SHAPE, (1, SHAPE[-1])],
        {"margin": 9},
        note="broadcast target",
    ),
    *_reductions("nn.TripletMarginLoss", _triplet(9.0, 2.0), [SHAPE] * 3, {"margin": 9.0}),
    *_reductions(
        "nn.TripletMarginLoss",
        _triplet(9.0, 3.0),
        [SHAPE] * 3,
        {"margin": 9.0, "p": 3.0},
        note="cubes",
    ),
    Row("smooth_l1_loss", _smooth(1.0), PAIR),
    Row("smooth_l1_loss", _smooth(0.3), PAIR, {"beta": 0.3}, note="beta"),
    Row(
        "combined_margin_loss",
        _margin(1, 0, 0.35),
        [(5, 4), (5,)],
        {"m3": 0.35},
        ints={1: 4},
        low=-0.9,
        high=0.9,
    ),
    Row(
        "combined_margin_loss",
        _margin(0.9, 0.2, 0.1),
        [(5, 4), (5,)],
        {"m1": 0.9, "m2": 0.2, "m3": 0.1},
        ints={1: 4},
        low=-0.9,
        high=0.9,
        note="turned",
    ),
]
