"""Activations, fused operators, masks."""

import math

import numpy as np

from tests.ops.row import Row

SHAPE = (3, 4)
_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _gelu(x):
    return 0.5 * x * (1 + _erf(x / np.sqrt(2)))


def _softmax_grad(y, dy, axis):
    return y * (dy - (dy * y).sum(axis, keepdims=True))


def _attention(x, alpha):
    length, batch, _ = x.shape
    parts = x.reshape(length, batch, 2, 3, 2)  # heads, (q, k, v), size
    q, k, v = (parts[:, :, :, i] for i in range(3))
    return [
        alpha * np.einsum("ibhd,jbhd->bhij", q, k),
        np.einsum("ibhd->bhid", v),
    ]


def _line(x):
    return np.clip(x / 6 + 0.5, 0, 1)


def _wide(name, ref, note="", /, avoid=(), **args):
    return Row(name, ref, [SHAPE], args, low=-8, high=8, avoid=avoid, note=note)


ROWS = [
    _wide("nn.elu", lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1), avoid=(0,)),
    _wide(
        "nn.elu",
        lambda x: np.where(x > 0, x, 0.5 * (np.exp(np.minimum(x, 0)) - 1)),
        "alpha",
        avoid=(0,),
        alpha=0.5,
    ),
    _wide("nn.hardsigmoid", _line, avoid=(-3, 3)),
    _wide("nn.hardswish", lambda x: x * _line(x), avoid=(-3, 3)),
    _wide("nn.hardtanh", lambda x: np.clip(x, -1, 1), avoid=(-1, 1)),
    _wide(
        "nn.hardtanh",
        lambda x: np.clip(x, -2, 5),
        "ends",
        avoid=(-2, 5),
        min_val=-2,
        max_val=5,
    ),
    _wide("nn.relu6", lambda x: np.clip(x, 0, 6), avoid=(0, 6)),
    _wide("nn.mish", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    _wide("nn.swish", lambda x: x * _sigmoid(x)),
    _wide("nn.swish", lambda x: x * _sigmoid(1.5 * x), "beta", beta=1.5),
    Row("nn.softmax_grad", lambda y, dy: _softmax_grad(y, dy, -1), [SHAPE, SHAPE]),
    Row(
        "nn.softmax_grad",
        lambda y, dy: _softmax_grad(y, dy, 1),
        [(2, 3, 4), (2, 3, 4)],
        {"axis": -2},
        note="axis",
    ),
    Row("nn.fused_bias_add_gelu", lambda x, b: _gelu(x + b), [SHAPE, (4,)]),
    Row(
        "nn.fused_bias_add_gelu",
        lambda x, b: _gelu(x + b[:, None]),
        [(2, 3, 4), (3,)],
        {"data_format": "NCW"},
        note="first",
    ),
    Row("nn.fused_bias_add_dropout", lambda x, b: x + b, [SHAPE, (4,)]),
    Row(
        "nn.fused_bias_add_dropout",
        lambda x, b: x + b,
        [SHAPE, (4,)],
        {"rate": 0.5},
        grad=(),
        note="predict",
    ),
    Row(
        "nn.fused_self_attention_query_mul_key_and_value",
        lambda x: _attention(x, 1.0),
        [(3, 2, 12)],
        {"head_size": 2},
    ),
    Row(
        "nn.fused_self_attention_query_mul_key_and_value",
        lambda x: _attention(x, 0.25),
        [(3, 2, 12)],
        {"head_size": 2, "alpha": 0.25},
        note="alpha",
    ),
]
