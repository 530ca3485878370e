"""Normalisations that have no moving statistics."""

import numpy as np

import flow2onnx as flow
from tests.ops.row import Row


def _normal(x, axes, eps):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


def _layer(x, first=1, eps=1e-5):
    return _normal(x, tuple(range(first % x.ndim, x.ndim)), eps)


def _groups(x, groups, eps=1e-5):
    parts = x.reshape(x.shape[0], groups, -1)
    return _normal(parts, (2,), eps).reshape(x.shape)


def _affine(y, gamma, beta):
    flat = y.reshape(*y.shape[:2], -1)
    return (flat * gamma + beta).reshape(y.shape)


def _given(x, mean, spread, offset, scale, axis, eps=1e-5):
    mean, variance, offset, scale = (
        v.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        for v in (mean, spread, offset, scale)
    )
    return (x - mean) / np.sqrt(variance + eps) * scale + offset


def _moments(axes, keepdims=False):
    return lambda x: [
        np.reshape(f(x, tuple(axes), keepdims=keepdims), (1,) if len(axes) == x.ndim else -1)
        if not keepdims
        else f(x, tuple(axes), keepdims=True)
        for f in (np.mean, np.var)
    ]


def _grad(dy, x, mean, rate):
    mean, rate = mean[:, None], rate[:, None]
    normal = (x - mean) * rate
    level = dy.mean(1, keepdims=True)
    return rate * (dy - level - normal * (dy * normal).mean(1, keepdims=True))


def _by_given(note, x, axis, **options):
    channels = (x[axis],)
    return Row(
        "nn.batch_normalization",
        lambda *v: _given(*v, axis=axis % len(x)),
        [x, *[channels] * 4],
        {"axis": axis, **options},
        low=0.3,
        note=note,
    )


ROWS = [
    Row("nn.moments", _moments([0]), [(4, 3)], {"axes": [0]}),
    Row("nn.moments", _moments([0, 1]), [(4, 3)], {"axes": [0, 1]}, note="all"),
    Row(
        "nn.moments",
        _moments([0, 2], True),
        [(2, 3, 4)],
        {"axes": [0, -1], "keepdims": True},
        note="kept",
    ),
    _by_given("", (2, 3, 4, 5), 1),
    _by_given("last", (2, 3, 4, 5), -1),
    _by_given("middle", (2, 3, 4, 5), 2),
    _by_given("first", (3, 4), 0),
    _by_given("matrix", (4, 3), 1),
    Row(
        "nn.batch_normalization",
        lambda x, m, v: (x - m[:, None]) / np.sqrt(v[:, None] + 0.1),
        [(2, 3, 4), (3,), (3,)],
        {"variance_epsilon": 0.1},
        low=0.3,
        note="bare",
    ),
    Row("nn.layer_norm", _layer, [(3, 5)]),
    Row("nn.layer_norm", lambda x, g, b: _layer(x) * g + b, [(3, 5), (5,), (5,)], note="affine"),
    Row(
        "nn.layer_norm",
        lambda x, g, b: _layer(x, 1, 0.1) * g + b,
        [(2, 3, 4), (4,), (4,)],
        {"epsilon": 0.1},
        note="last-parameters",
    ),
    Row(
        "nn.layer_norm",
        lambda x, g: _layer(x, 1) * g,
        [(2, 3, 4), (3, 4)],
        {"begin_norm_axis": 1, "begin_params_axis": 1},
        note="all-parameters",
    ),
    Row(
        "nn.layer_norm",
        lambda x, g, b: _layer(x, -1) * g + b,
        [(2, 3, 4), (4,), (4,)],
        {"begin_norm_axis": -1},
        note="negative",
    ),
    Row(
        "layers.layer_norm",
        lambda x, b, g: _layer(x) * g + b,
        [(2, 3, 4)],
        dtypes=("float32",),
        owns={"LayerNorm-beta": (4,), "LayerNorm-gamma": (4,)},
    ),
    Row(
        "layers.layer_norm",
        lambda x, b: _layer(x) + b,
        [(2, 3, 4)],
        {"scale": False, "begin_params_axis": 1, "name": "ln"},
        dtypes=("float32",),
        owns={"ln-beta": (3, 4)},
        note="center",
    ),
    Row(
        "layers.layer_norm",
        lambda x: _layer(x),
        [(2, 3, 4)],
        {"scale": False, "center": False},
        note="bare",
    ),
    Row("layers.layer_norm_grad", _grad, [(3, 5), (3, 5), (3,), (3,)], low=0.3),
    Row(
        "layers.layer_norm_param_grad",
        lambda dy, norm, gamma: [dy * gamma, dy.sum((0, 1)), (dy * norm).sum((0, 1))],
        [(2, 3, 4), (2, 3, 4), (4,)],
    ),
    Row(
        "nn.GroupNorm",
        lambda x, g, b: _affine(_groups(x, 2), g, b),
        [(2, 4, 3, 3)],
        {"num_groups": 2, "name": "gn"},
        dtypes=("float32",),
        owns={"gn_gamma": (1, 4, 1), "gn_beta": (1, 4, 1)},
    ),
    Row(
        "nn.GroupNorm",
        lambda x: _groups(x, 3, 0.1),
        [(2, 6, 5)],
        {"num_groups": 3, "eps": 0.1, "affine": False},
        note="bare",
    ),
    Row(
        "layers.affine_channel",
        lambda x, s, b: x * s[:, None] + b[:, None],
        [(2, 3, 4)],
        {"axis": 1},
        dtypes=("float32",),
        owns={"AffineChannel-scale": (3,), "AffineChannel-bias": (3,)},
    ),
    Row(
        "layers.affine_channel",
        lambda x, s: np.tanh(x * s),
        [(2, 3, 4)],
        {
            "axis": -1,
            "use_bias": False,
            "name": "affine",
            "activation": lambda x, name: flow.math.tanh(x, name=name),
        },
        dtypes=("float32",),
        owns={"affine-scale": (4,)},
        note="activation",
    ),
    *(
        Row(
            f"nn.InstanceNorm{n}d",
            lambda x, g, b: _affine(_groups(x, 4), g, b),
            [(2, 4, *(5, 3, 2)[:n])],
            {"name": "inst"},
            dtypes=("float32",),
            owns={"inst_gamma": (1, 4, 1), "inst_beta": (1, 4, 1)},
        )
        for n in (1, 2, 3)
    ),
    Row(
        "nn.InstanceNorm2d",
        lambda x: _groups(x, 4),
        [(2, 4, 3, 3)],
        {"affine": False},
        note="bare",
    ),
]
