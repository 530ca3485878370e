"""Elementwise operators of one operand. The output is used where it saves recomputing."""

import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.dtypes import float32
from flow2onnx.graph.saturation import is_saturating, known_end
from flow2onnx.graph.types import constant_of, dims, dtype_of, sizes_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.forms import Lowering


def _mask(b, condition, g):
    """g where the condition holds, else 0. A product is faster on the CPU than a selection."""
    return b.Mul(g, b.Cast(condition, to=dtype_of(g)))


# The gradient in x of y = f(x) as a product: g times these slopes.
_SLOPES = {
    "Abs": lambda b, x, y: b.Sign(x),
    "Cosh": lambda b, x, y: b.Sinh(x),
    "Erf": lambda b, x, y: b.Mul(b.Exp(b.Neg(b.Mul(x, x))), 2.0 / math.sqrt(math.pi)),
    "Exp": lambda b, x, y: y,
    "Sigmoid": lambda b, x, y: b.Mul(y, b.Sub(1.0, y)),
    "Sin": lambda b, x, y: b.Cos(x),
    "Sinh": lambda b, x, y: b.Cosh(x),
    "Softplus": lambda b, x, y: b.Sigmoid(x),
    "Tan": lambda b, x, y: b.Add(b.Mul(y, y), 1.0),
    "Tanh": lambda b, x, y: b.Sub(1.0, b.Mul(y, y)),
}
# The same as a quotient: g over these.
_DIVISORS = {
    "Acosh": lambda b, x: b.Sqrt(b.Sub(b.Mul(x, x), 1.0)),
    "Asin": lambda b, x: b.Sqrt(b.Sub(1.0, b.Mul(x, x))),
    "Asinh": lambda b, x: b.Sqrt(b.Add(b.Mul(x, x), 1.0)),
    "Atan": lambda b, x: b.Add(b.Mul(x, x), 1.0),
    "Atanh": lambda b, x: b.Sub(1.0, b.Mul(x, x)),
    "Log": lambda b, x: x,
}


@vjp(*_SLOPES)
def _(b, n, g):
    return b.Mul(g, _SLOPES[n.op_type](b, n.inputs[0], n.outputs[0]))


@vjp(*_DIVISORS)
def _(b, n, g):
    return b.Div(g, _DIVISORS[n.op_type](b, n.inputs[0]))


@vjp("Identity")
def _(b, n, g):
    return g


@vjp("Cast")
def _(b, n, g):
    return b.Cast(g, to=dtype_of(n.inputs[0]))


@vjp("CastLike")
def _(b, n, g):
    return b.Cast(g, to=dtype_of(n.inputs[0])), None


@vjp("Ceil", "Floor", "Hardmax", "Round", "Sign")
def _(b, n, g):
    # flat between its steps
    return b.ConstantOfShape(list(sizes_of(g)), value=np.zeros(1, dtype_of(g).numpy))


@vjp("Neg")
def _(b, n, g):
    return b.Neg(g)


@vjp("Sqrt")
def _(b, n, g):
    return b.Div(b.Mul(g, 0.5), n.outputs[0])


@vjp("Reciprocal")
def _(b, n, g):
    y = n.outputs[0]
    return b.Neg(b.Mul(g, b.Mul(y, y)))


@vjp("Cos")
def _(b, n, g):
    return b.Neg(b.Mul(g, b.Sin(n.inputs[0])))


@vjp("Acos")
def _(b, n, g):
    x = n.inputs[0]
    return b.Neg(b.Div(g, b.Sqrt(b.Sub(1.0, b.Mul(x, x)))))


@vjp("Relu")
def _(b, n, g):
    return _relu_gradient(b, None, n.outputs[0], g)


# On a GPU the choice moves 14 bytes an element, the product 22: its mask becomes a number first.
_relu_gradient = Lowering("Relu.dX", lambda *_: "mask_product", on_cuda=lambda *_: "where")


@_relu_gradient.form("mask_product")
def _(b, at, y, g):
    return _mask(b, b.Greater(y, 0.0), g)


@_relu_gradient.form("where")
def _(b, at, y, g):
    return b.Where(b.Greater(y, 0.0), g, b.like(0.0, g))


@_relu_gradient.form("step", when=lambda at, y, g: dtype_of(g) == float32)
def _(b, at, y, g):
    """The mask in one pass: a line so steep that it is 1 at the smallest normal number.

    Fastest on the CPU; a provider that rounds to half precision would make infinities of the slope.
    """
    return b.Mul(g, b.HardSigmoid(y, alpha=3e38, beta=0.0))


@vjp("Gelu")
def _(b, n, g):
    x = n.inputs[0]
    if dtype_of(x) != float32 or attribute(n, "approximate", "none") != "none":
        return NotImplemented
    return _gelu_gradient(b, None, x, g)


# The slope is Φ(x) + x φ(x); with u = x / √2 the second is u e^-u² / √π, where a division saves the
# minus sign. e^u² overflows only where the quotient is 0.
_gelu_gradient = Lowering("Gelu.dX", lambda *_: "clamped")


@_gelu_gradient.form("clamped")
def _(b, at, x, g):
    """A HardSigmoid that clamps nothing is half of 1 + erf u in one pass."""
    u = b.Mul(x, math.sqrt(0.5))
    probability = b.HardSigmoid(b.Erf(u), alpha=0.5, beta=0.5)
    return b.Mul(g, b.Add(b.Mul(_scaled_density(b, u), 1 / math.sqrt(math.pi)), probability))


@_gelu_gradient.form("sums")
def _(b, at, x, g):
    u = b.Mul(x, math.sqrt(0.5))
    twice = b.Add(b.Add(b.Erf(u), 1.0), b.Mul(_scaled_density(b, u), 2 / math.sqrt(math.pi)))
    return b.Mul(g, b.Mul(twice, 0.5))


def _scaled_density(b, u):
    return b.Div(u, b.Exp(b.Mul(u, u)))


@vjp("LeakyRelu")
def _(b, n, g):
    x, alpha = n.inputs[0], attribute(n, "alpha", 0.01)
    return b.Where(b.Greater(x, 0.0), g, b.Mul(g, alpha))  # alpha at 0, as in torch


@vjp("Clip")
def _(b, n, g):
    # as in torch: 1 on both ends if they are constants, 0 on those of an activation; one that
    # varies shares with what it equals
    x, low, high = [*n.inputs, None, None][:3]
    gx = g
    inside = (b.Greater, b.Less) if is_saturating(n) else (b.GreaterOrEqual, b.LessOrEqual)
    for end, compare in zip((low, high), inside, strict=True):
        if end is not None:
            gx = _mask(b, compare(x, end), gx)
    ends = [None if known_end(end) is not None else end for end in (low, high)]
    if ends == [None, None]:
        return gx
    shares = _tie_shares(b, x, ends, gx)
    cuts = _low_gradient(b, x, low, high, g), _high_gradient(b, x, low, high, g)
    for share in shares:
        gx = gx if share is None else b.Sub(gx, share)
    return gx, *(
        None if end is None else b.Reshape(b.ReduceSum(b.Add(c, s), keepdims=0), list(dims(end)))
        for end, c, s in zip(ends, cuts, shares, strict=True)
    )


def _tie_shares(b, x, ends, inside):
    """The gradient of each end that varies where it equals x and the other does not: half."""
    ties = [None if end is None else b.Equal(x, end) for end in ends]
    alone = [
        tie if tie is None or other is None else b.And(tie, b.Not(other))
        for tie, other in (ties, ties[::-1])
    ]
    return [None if tie is None else b.Mul(_mask(b, tie, inside), 0.5) for tie in alone]


def _low_gradient(b, x, low, high, g):
    """The lower end's gradient where it cut x off: none where the upper end is below it."""
    if low is None:
        return None
    is_cut = b.Less(x, low)
    if high is not None:
        is_cut = b.And(is_cut, b.LessOrEqual(low, high))
    return _mask(b, is_cut, g)


def _high_gradient(b, x, low, high, g):
    if high is None:
        return None
    is_cut = b.Greater(x, high)
    if low is not None:
        is_cut = b.Or(is_cut, b.Less(high, low))
    return _mask(b, is_cut, g)


@vjp("Dropout")
def _(b, n, g, _mask_g=None):
    ratio, is_training = [*n.inputs[1:], None, None][:2]
    if is_training is None or _is_known(is_training, False):
        return g
    mask = n.outputs[1] if len(n.outputs) > 1 else b.another_output(n)
    kept = _mask(b, mask, g)
    if ratio is not None and constant_of(ratio) is None:
        scale = b.Reciprocal(b.Sub(1.0, b.Cast(ratio, to=dtype_of(g))))
    else:
        scale = b.like(1.0 / (1.0 - (0.5 if ratio is None else constant_of(ratio).item())), g)
    if not _is_known(is_training, True):
        scale = b.Where(is_training, scale, b.like(1.0, g))
    return b.Mul(kept, scale)


def _is_known(value, content):
    known = constant_of(value)
    return known is not None and bool(known) is content


@vjp("Elu")
def _(b, n, g):
    # below 0 the slope alpha e^x is the output plus alpha
    x, y, alpha = n.inputs[0], n.outputs[0], attribute(n, "alpha", 1.0)
    return b.Where(b.Greater(x, 0.0), g, b.Mul(g, b.Add(y, alpha)))


@vjp("Selu")
def _(b, n, g):
    x, y = n.inputs[0], n.outputs[0]
    alpha = attribute(n, "alpha", 1.6732632423543772)
    gamma = attribute(n, "gamma", 1.0507009873554805)
    below = b.Mul(g, b.Add(y, alpha * gamma))
    return b.Where(b.Greater(x, 0.0), b.Mul(g, gamma), below)


@vjp("HardSigmoid")
def _(b, n, g):
    # flat from both ends on
    y = n.outputs[0]
    is_steep = b.And(b.Greater(y, 0.0), b.Less(y, 1.0))
    return _mask(b, is_steep, b.Mul(g, attribute(n, "alpha", 0.2)))


@vjp("HardSwish")
def _(b, n, g):
    # from both ends on the slope is that outside
    x = n.inputs[0]
    middle = b.Mul(g, b.Add(b.Mul(x, 1.0 / 3.0), 0.5))
    inner = b.Where(b.LessOrEqual(x, -3.0), b.like(0.0, g), middle)
    return b.Where(b.GreaterOrEqual(x, 3.0), g, inner)


@vjp("PRelu")
def _(b, n, g):
    x, slope = n.inputs
    is_above = b.Greater(x, 0.0)
    below = b.Where(is_above, b.like(0.0, x), b.Mul(g, x))
    return b.Where(is_above, g, b.Mul(g, slope)), unbroadcast(b, below, slope)
