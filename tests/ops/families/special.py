"""Functions of mathematics beyond the elementary ones, reductions and triangles."""

import math

import numpy as np

from tests.ops.row import FLOATS, NUMBERS, Row

SHAPE = (3, 4)
X = [(2, 3, 4)]
_erf = np.vectorize(math.erf, otypes=[np.float64])
_lgamma = np.vectorize(math.lgamma, otypes=[np.float64])


def _unary(name, ref, **options):
    return Row(name, ref, [SHAPE], **options)


def _pair(name, ref, **options):
    return Row(name, ref, [SHAPE, SHAPE], **options)


def _gelu_slope(x):
    return 0.5 * (1 + _erf(x / np.sqrt(2))) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _full(function):
    return lambda x: np.reshape(function(x), (1,))


def _reduced(name, ref, **options):
    kinds = [
        ("full", {}, _full(ref)),
        ("axis", {"axis": 1}, lambda x: ref(x, axis=1)),
        ("negative", {"axis": -1}, lambda x: ref(x, axis=-1)),
        ("axes", {"axis": [0, -1]}, lambda x: ref(x, axis=(0, 2))),
        ("kept", {"axis": (1,), "keepdims": True}, lambda x: ref(x, axis=1, keepdims=True)),
        ("all-kept", {"keepdims": True}, lambda x: ref(x, axis=(0, 1, 2), keepdims=True)),
    ]
    return [Row(name, r, X, args=a, note=n, **options) for n, a, r in kinds]


def _logsumexp(x, **how):
    return np.log(np.exp(x).sum(**how))


def _norm(x, **how):
    return np.sqrt((x * x).sum(**how))


def _any(x, **how):
    return (x != 0).any(**how)


def _all(x, **how):
    return (x != 0).all(**how)


def _lower(x, diagonal=0, fill=0, scale=1):
    return np.where(np.tri(*x.shape[-2:], diagonal, dtype=bool), scale * x, fill)


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _triangles(name):
    softmax = "softmax" in name

    def row(note, shape, **args):
        diagonal, fill = args.get("diagonal", 0), args.get("fill_value", 0)

        def ref(x):
            y = _lower(x, diagonal, fill, args.get("scale", 1))
            return _softmax(y) if softmax else y

        dtypes = FLOATS if softmax or note != "plain" else NUMBERS
        return Row(name, ref, [shape], args=args, note=note, dtypes=dtypes)

    rows = [
        row("plain", (2, 4, 5)),
        row("above", (4, 4), diagonal=1),
        row("below", (3, 4, 2), diagonal=-2),
        row("filled", (4, 3), diagonal=-1, fill_value=-2.5),
    ]
    if "scale" in name:
        rows.append(row("scaled", (3, 3), fill_value=-9, scale=0.5))
    return rows


ROWS = [
    _pair("math.atan2", np.arctan2, avoid=(0,)),
    _pair("math.floordiv", np.floor_divide, low=1.1, high=1.9),
    _pair("math.xdivy", np.divide, low=0.5),
    _pair("math.xlogy", lambda x, y: x * np.log(y), low=0.3),
    _unary("math.erfc", lambda x: 1 - _erf(x)),
    _unary("math.log_sigmoid", lambda x: -np.log(1 + np.exp(-x))),
    _unary("math.lgamma", _lgamma, low=-3, high=5, avoid=(-3, -2, -1, 0), grad=()),
    _unary("math.mish", lambda x: x * np.tanh(np.log1p(np.exp(x)))),
    _pair("math.gelu_grad", lambda x, g: g * _gelu_slope(x), grad=()),
    _pair("math.sigmoid_grad", lambda y, g: g * y * (1 - y), grad=()),
    _pair("math.tanh_grad", lambda y, g: g * (1 - y * y), grad=()),
    _pair("math.naive_logical_and", np.logical_and, dtypes=NUMBERS, result="int8", grad=()),
    _pair("experimental.broadcast_maximum", np.maximum, dtypes=NUMBERS),
    _pair("experimental.broadcast_minimum", np.minimum, dtypes=NUMBERS),
    _unary(
        "math.polyval",
        lambda x: 2 * x**3 - x + 0.5,
        how=lambda f, x: f([2, 0, -1.0, 0.5], x),
    ),
    _unary("math.polyval", lambda x: 0 * x + 3, how=lambda f, x: f((3,), x), note="constant"),
    _unary("math.polyval", np.zeros_like, how=lambda f, x: f([], x), grad=(), note="nothing"),
    Row(
        "math.polyval",
        lambda a, b, x: a * x + b,
        [SHAPE, (4,), SHAPE],
        how=lambda f, a, b, x: f([a, b], x),
        note="blobs",
    ),
    _unary(
        "math.l2_normalize",
        lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True)),
        args={"axis": -1},
    ),
    _unary(
        "math.l2_normalize",
        lambda x: x / np.sqrt(np.maximum((x * x).sum(0, keepdims=True), 100.0)),
        args={"axis": 0, "epsilon": 100.0},
        note="epsilon",
    ),
    *_reduced("math.reduce_std", np.std),
    *_reduced("math.reduce_prod", np.prod, low=0.5),
    Row(
        "math.reduce_prod",
        lambda x: x.prod(1),
        X,
        args={"axis": 1},
        dtypes=("int32",),
        grad=(),
        low=1,
        high=2,
        note="int",
    ),
    *_reduced("math.reduce_euclidean_norm", _norm),
    *_reduced("math.reduce_logsumexp", _logsumexp),
    *_reduced(
        "math.reduce_any", _any, dtypes=("int8", "int32"), result="int8", low=0, high=1, grad=()
    ),
    *_reduced("math.reduce_all", _all, dtypes=("int8", "int32"), result="int8", low=0, grad=()),
    *_reduced("math.two_stage_reduce_max", np.max, distinct=True),
    *_reduced("math.two_stage_reduce_min", np.min, distinct=True),
    Row("experimental.square_sum", lambda x: np.reshape((x * x).sum(), (1,)), X),
    *_triangles("math.tril"),
    *_triangles("math.fused_scale_tril"),
    *_triangles("math.fused_scale_tril_softmax_dropout"),
]
