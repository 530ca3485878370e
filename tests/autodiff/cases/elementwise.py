"""Elementwise operators."""

import numpy as np

from flow2onnx.dtypes import bool_, float32, float64
from tests.autodiff.cases.case import NO_DOUBLE, Case, S, plain

UNARY = [
    plain("Identity", [S], step=0.5),
    plain("Gelu", [S], dtypes=("float32",)),
    plain("Gelu", [S], "tanh", attrs={"approximate": "tanh"}, dtypes=("float32",)),
    plain("Neg", [S], step=0.5),
    plain("Abs", [S], avoid=(0,)),
    plain("Acos", [S], low=-0.8, high=0.8, lacks=NO_DOUBLE),
    plain("Acosh", [S], low=1.4, high=4, lacks=NO_DOUBLE),
    plain("Asin", [S], low=-0.8, high=0.8, lacks=NO_DOUBLE),
    plain("Asinh", [S], lacks=NO_DOUBLE),
    plain("Atan", [S], lacks=NO_DOUBLE),
    plain("Atanh", [S], low=-0.8, high=0.8, lacks=NO_DOUBLE),
    plain("Ceil", [S], avoid=(-2, -1, 0, 1, 2)),
    plain("Cos", [S]),
    plain("Cosh", [S], lacks=NO_DOUBLE),
    plain("Erf", [S], lacks=NO_DOUBLE),
    plain("Exp", [S]),
    plain("Floor", [S], avoid=(-2, -1, 0, 1, 2)),
    plain("Log", [S], low=0.3),
    plain("Reciprocal", [S], low=0.4),
    plain("Relu", [S], avoid=(0,)),
    plain("LeakyRelu", [S], avoid=(0,), lacks=NO_DOUBLE),
    plain("LeakyRelu", [S], "alpha", attrs={"alpha": 0.3}, avoid=(0,), lacks=NO_DOUBLE),
    plain("Round", [S], avoid=(-1.5, -0.5, 0.5, 1.5)),
    plain("Sigmoid", [S]),
    plain("Sign", [S], avoid=(0,)),
    plain("Sin", [S]),
    plain("Sinh", [S], lacks=NO_DOUBLE),
    plain("Softplus", [S], lacks=NO_DOUBLE),
    plain("Sqrt", [S], low=0.3),
    plain("Tan", [S], low=-1, high=1, lacks=NO_DOUBLE),
    plain("Tanh", [S]),
    Case("Cast", lambda b, x: b.Cast(x, to=float64), [S], "double", step=0.5),
    Case("Cast", lambda b, x: b.Cast(x, to=float32), [S], "single", step=0.5),
    Case("Clip", lambda b, x: b.Clip(x, -1.0, 0.5), [S], avoid=(-1, 0.5)),
    Case("Clip", lambda b, x: b.Clip(x, None, 0.5), [S], "max", avoid=(0.5,)),
    Case("Clip", lambda b, x: b.Clip(x, -0.5), [S], "min", avoid=(-0.5,)),
    Case("Clip", lambda b, x: b.Clip(x), [S], "open", step=0.5),
    Case("Dropout", lambda b, x: b.Dropout(x, 0.5), [S], "inference", step=0.5),
    Case(
        "Dropout",
        lambda b, x: b.several("Dropout", x, 0.5, b.const(False, bool_), outputs=2)[0],
        [S],
        "said-inference",
        step=0.5,
    ),
]


def _broadcast(op_type, **options):
    """Equal shapes, one operand repeated, the other, both, and a scalar."""
    pairs = [
        ("same", [S, S]),
        ("second", [(2, 3, 4), (3, 1)]),
        ("first", [(1, 4), (2, 3, 4)]),
        ("both", [(2, 3, 1), (3, 4)]),
        ("scalar", [(), S]),
        ("ones", [(1, 1), (1,)]),
    ]
    return [plain(op_type, shapes, note, **options) for note, shapes in pairs]


ARITHMETIC = [
    *_broadcast("Add", step=0.5),
    *_broadcast("Sub", step=0.5),
    *_broadcast("Mul", step=0.5),
    *_broadcast("Div", low=0.6),
    *_broadcast("Pow", low=0.6),
    *_broadcast("Max", distinct=True),
    *_broadcast("Min", distinct=True),
    Case("Mod", lambda b, x, y: b.Mod(x, y, fmod=1), [S, (4,)], low=1.1, high=1.9),
    Case("Mod", lambda b, x, y: b.Mod(b.Mul(x, 4.6), y, fmod=1), [S, S], "far", low=1.4, high=1.48),
    plain("Max", [S, (4,), (3, 1)], "three", distinct=True),
    plain("Min", [S], "one", step=0.5),
    plain("Sum", [S, (4,), (2, 3, 1)], step=0.5),
    plain("Sum", [S], "one", step=0.5),
    plain("Mean", [S, (4,), (2, 3, 1)], step=0.5, lacks=NO_DOUBLE),
    Case("Pow", lambda b, x: b.Pow(x, 3.0), [S], "number"),
    Case("Pow", lambda b, x: b.Pow(x, np.asarray([2, 0, 1, 3])), [S], "whole-numbers"),
    Case("Pow", lambda b, x: b.Pow(2.0, x), [S], "of-number"),
    Case(
        "Where",
        lambda b, x, y: b.Where(b.const(np.arange(12).reshape(S) % 3 == 0), x, y),
        [S, S],
        step=0.5,
    ),
    Case(
        "Where",
        lambda b, x, y: b.Where(b.const(np.arange(6).reshape(2, 3, 1) % 2 == 0), x, y),
        [(3, 4), (4,)],
        "broadcast",
        step=0.5,
    ),
    Case("Where", lambda b, x: b.Where(b.Greater(x, 0.0), x, 0.0), [S], "self", avoid=(0,)),
]


def _prelu(note, x, slope):
    return Case(
        "PRelu", lambda b, x, y: b.PRelu(x, y), [x, slope], note, avoid=(0,), lacks=NO_DOUBLE
    )


ACTIVATION = [
    plain("Elu", [S], avoid=(0,), lacks=NO_DOUBLE),
    plain("Elu", [S], "alpha", attrs={"alpha": 0.3}, avoid=(0,), lacks=NO_DOUBLE),
    _prelu("", (2, 3, 4), (3, 4)),
    _prelu("shared", (2, 3, 4), (3, 1)),
]
