"""Normalisations and activations that the runtime has beside the standard."""

import math

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.dimensions import divide


@vjp("SimplifiedLayerNormalization")
def _(b, n, g, g_rate=None):
    x, scale = n.inputs
    axes = list(range(attribute(n, "axis", -1) % rank_of(x), rank_of(x)))
    while len(n.outputs) < 2:
        b.another_output(n)
    rate = n.outputs[1]
    rate = rate if dtype_of(rate) == dtype_of(x) else b.Cast(rate, to=dtype_of(x))
    gx, g_scale = None, None
    if g is not None:
        gx, g_scale = _root_mean_gradient(b, x, scale, rate, g, axes)
    if g_rate is not None:  # of (mean of squares + epsilon) ** -0.5
        count = math.prod(extents(b, x)[a] for a in axes)
        cube = b.Mul(b.Mul(rate, rate), rate)
        slope = divide(b, b.Mul(b.Cast(g_rate, to=dtype_of(x)), cube), -count)
        part = b.Mul(slope, x)
        gx = part if gx is None else b.Add(gx, part)
    return gx, g_scale


def _root_mean_gradient(b, x, scale, rate, g, axes):
    """The gradients of x * rate * scale, where rate is the inverse of the root mean square."""
    wide = b.Mul(g, scale)
    slope = b.ReduceMean(b.Mul(wide, x), axes, keepdims=1)
    for _ in range(3):  # one after the other: the cube alone may be more than half precision has
        slope = b.Mul(slope, rate)
    gx = b.Sub(b.Mul(wide, rate), b.Mul(x, slope))
    return gx, unbroadcast(b, b.Mul(g, b.Mul(x, rate)), scale)


@vjp("com.microsoft::SkipSimplifiedLayerNormalization")
def _(b, n, g, *others):
    x, skip, scale, bias = [*n.inputs, None][:4]
    g_sum = _gradient_of_sum(n, others)
    if g is None:
        return g_sum, unbroadcast(b, g_sum, skip), None, _at(b, g_sum, bias)
    total = _sum(b, n, x, skip, bias)
    squares = b.ReduceSumSquare(total, [-1], keepdims=1)
    rate = _rate(b, n, divide(b, squares, extents(b, total)[-1]))
    gx, g_scale = _root_mean_gradient(b, total, scale, rate, g, [-1])
    gx = gx if g_sum is None else b.Add(gx, g_sum)
    return gx, unbroadcast(b, gx, skip), g_scale, _at(b, gx, bias)


@vjp("com.microsoft::SkipLayerNormalization")
def _(b, n, g, *others):
    x, skip, scale, offset, bias = [*n.inputs, None, None][:5]
    g_sum = _gradient_of_sum(n, others)
    if g is None:
        return g_sum, unbroadcast(b, g_sum, skip), None, None, _at(b, g_sum, bias)
    total = _sum(b, n, x, skip, bias)
    centred = b.Sub(total, b.ReduceMean(total, [-1], keepdims=1))
    rate = _rate(b, n, b.ReduceMean(b.Mul(centred, centred), [-1], keepdims=1))
    gx, g_scale = _root_mean_gradient(b, centred, scale, rate, g, [-1])
    gx = b.Sub(gx, b.ReduceMean(gx, [-1], keepdims=1))
    gx = gx if g_sum is None else b.Add(gx, g_sum)
    return gx, unbroadcast(b, gx, skip), g_scale, _at(b, g, offset), _at(b, gx, bias)


def _gradient_of_sum(n, others):
    """The gradient of the sum that is normalised, the fourth output."""
    mean, rate, total = [*others, None, None, None][:3]
    if mean is not None or rate is not None:
        raise no_gradient(n, "of its statistics")
    return total


def _sum(b, n, x, skip, bias):
    if len(n.outputs) > 3 and n.outputs[3].name:
        return n.outputs[3]
    total = b.Add(x, skip)
    return total if bias is None else b.Add(total, bias)


def _rate(b, n, squares):
    return b.Reciprocal(b.Sqrt(b.Add(squares, attribute(n, "epsilon", 1e-12))))


def _at(b, g, operand):
    """The gradient of an operand that was added and may be left out."""
    return None if operand is None else unbroadcast(b, g, operand)


@vjp("com.microsoft::QuickGelu")
def _(b, n, g):
    # of y = x s, s = sigmoid(alpha x), the slope is s + alpha y (1 - s)
    x, alpha = n.inputs[0], attribute(n, "alpha", 1.702)
    y = n.outputs[0] if alpha == 1.0 else b.Mul(n.outputs[0], alpha)
    gate = b.Sigmoid(x if alpha == 1.0 else b.Mul(x, alpha))
    return b.Mul(g, b.Add(b.Mul(y, b.Sub(1.0, gate)), gate))


@vjp("com.microsoft::Gelu")
def _(b, n, g):
    return b.Mul(g, _gelu_slope(b, n.inputs[0]))


@vjp("com.microsoft::BiasGelu")
def _(b, n, g):
    x, bias = n.inputs
    gx = b.Mul(g, _gelu_slope(b, b.Add(x, bias)))
    return gx, unbroadcast(b, gx, bias)


def _gelu_slope(b, x):
    """The slope of x Φ(x): Φ(x) + x φ(x), of the standard normal distribution."""
    below = b.Mul(b.Add(b.Erf(b.Mul(x, math.sqrt(0.5))), 1.0), 0.5)
    density = b.Mul(b.Exp(b.Mul(b.Mul(x, x), -0.5)), 1.0 / math.sqrt(2 * math.pi))
    return b.Add(below, b.Mul(x, density))


@vjp("com.microsoft::FastGelu")
def _(b, n, g):
    x, bias = [*n.inputs, None][:2]
    moved = x if bias is None else b.Add(x, bias)
    inner, cubic = math.sqrt(2 / math.pi), 0.044715
    square = b.Mul(moved, moved)
    curve = b.Tanh(b.Mul(b.Mul(moved, b.Add(b.Mul(square, cubic), 1.0)), inner))
    steep = b.Mul(b.Add(b.Mul(square, 3 * cubic), 1.0), inner)
    bend = b.Mul(b.Mul(moved, b.Sub(1.0, b.Mul(curve, curve))), steep)
    gx = b.Mul(g, b.Mul(b.Add(b.Add(curve, bend), 1.0), 0.5))
    return gx, _at(b, gx, bias)
