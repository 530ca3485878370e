"""Elementwise operators of one operand. The output is used where it saves recomputing."""

import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.graph import constant_of, dims, dtype_of, unbroadcast


def _mask(b, condition, g):
    """g where the condition holds, else 0. A product is faster on the CPU than a selection."""
    return b.Mul(g, b.Cast(condition, to=dtype_of(g)))


@vjp("Identity")
def _(b, n, g):
    return g


@vjp("Cast")
def _(b, n, g):
    return b.Cast(g, to=dtype_of(n.inputs[0]))


@vjp("Ceil", "Floor", "Round", "Sign")
def _(b, n, g):
    # flat between its steps
    return b.ConstantOfShape(list(dims(g)), value=np.zeros(1, dtype_of(g).numpy))


@vjp("Neg")
def _(b, n, g):
    return b.Neg(g)


@vjp("Abs")
def _(b, n, g):
    return b.Mul(g, b.Sign(n.inputs[0]))


@vjp("Exp")
def _(b, n, g):
    return b.Mul(g, n.outputs[0])


@vjp("Log")
def _(b, n, g):
    return b.Div(g, n.inputs[0])


@vjp("Sqrt")
def _(b, n, g):
    return b.Div(b.Mul(g, 0.5), n.outputs[0])


@vjp("Reciprocal")
def _(b, n, g):
    y = n.outputs[0]
    return b.Neg(b.Mul(g, b.Mul(y, y)))


@vjp("Erf")
def _(b, n, g):
    x = n.inputs[0]
    return b.Mul(g, b.Mul(b.Exp(b.Neg(b.Mul(x, x))), 2.0 / math.sqrt(math.pi)))


@vjp("Sin")
def _(b, n, g):
    return b.Mul(g, b.Cos(n.inputs[0]))


@vjp("Cos")
def _(b, n, g):
    return b.Neg(b.Mul(g, b.Sin(n.inputs[0])))


@vjp("Tan")
def _(b, n, g):
    y = n.outputs[0]
    return b.Mul(g, b.Add(b.Mul(y, y), 1.0))


@vjp("Sinh")
def _(b, n, g):
    return b.Mul(g, b.Cosh(n.inputs[0]))


@vjp("Cosh")
def _(b, n, g):
    return b.Mul(g, b.Sinh(n.inputs[0]))


@vjp("Tanh")
def _(b, n, g):
    y = n.outputs[0]
    return b.Mul(g, b.Sub(1.0, b.Mul(y, y)))


@vjp("Asin")
def _(b, n, g):
    x = n.inputs[0]
    return b.Div(g, b.Sqrt(b.Sub(1.0, b.Mul(x, x))))


@vjp("Acos")
def _(b, n, g):
    x = n.inputs[0]
    return b.Neg(b.Div(g, b.Sqrt(b.Sub(1.0, b.Mul(x, x)))))


@vjp("Atan")
def _(b, n, g):
    x = n.inputs[0]
    return b.Div(g, b.Add(b.Mul(x, x), 1.0))


@vjp("Asinh")
def _(b, n, g):
    x = n.inputs[0]
    return b.Div(g, b.Sqrt(b.Add(b.Mul(x, x), 1.0)))


@vjp("Acosh")
def _(b, n, g):
    x = n.inputs[0]
    return b.Div(g, b.Sqrt(b.Sub(b.Mul(x, x), 1.0)))


@vjp("Atanh")
def _(b, n, g):
    x = n.inputs[0]
    return b.Div(g, b.Sub(1.0, b.Mul(x, x)))


@vjp("Relu")
def _(b, n, g):
    return _mask(b, b.Greater(n.outputs[0], 0.0), g)


@vjp("LeakyRelu")
def _(b, n, g):
    x, alpha = n.inputs[0], attribute(n, "alpha", 0.01)
    return b.Where(b.Less(x, 0.0), b.Mul(g, alpha), g)


@vjp("Sigmoid")
def _(b, n, g):
    y = n.outputs[0]
    return b.Mul(g, b.Mul(y, b.Sub(1.0, y)))


@vjp("Softplus")
def _(b, n, g):
    return b.Mul(g, b.Sigmoid(n.inputs[0]))


@vjp("Clip")
def _(b, n, g):
    # 1 on both ends, as in torch
    x, *ends = n.inputs
    inside = [
        b.GreaterOrEqual(x, end) if i == 0 else b.LessOrEqual(x, end)
        for i, end in enumerate(ends)
        if end is not None
    ]
    for condition in inside:
        g = _mask(b, condition, g)
    return g


@vjp("Dropout")
def _(b, n, g, _mask_g=None):
    ratio, is_training = (constant_of(v) for v in [*n.inputs[1:], None, None][:2])
    if is_training is None or not is_training.item():
        return g
    mask = n.outputs[1] if len(n.outputs) > 1 else b.another_output(n)
    kept = 1.0 - (0.5 if ratio is None else ratio.item())
    return b.Mul(_mask(b, mask, g), 1.0 / kept)


@vjp("Elu")
def _(b, n, g):
    # below 0 the slope alpha e^x is the output plus alpha
    x, y, alpha = n.inputs[0], n.outputs[0], attribute(n, "alpha", 1.0)
    return b.Where(b.Greater(x, 0.0), g, b.Mul(g, b.Add(y, alpha)))


@vjp("PRelu")
def _(b, n, g):
    x, slope = n.inputs
    is_above = b.Greater(x, 0.0)
    below = b.Where(is_above, b.like(0.0, x), b.Mul(g, x))
    return b.Where(is_above, g, b.Mul(g, slope)), unbroadcast(b, below, slope)
