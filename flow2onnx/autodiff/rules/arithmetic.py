"""Elementwise operators of two or more operands."""

import functools

import numpy as np

from flow2onnx.autodiff.registry import vjp
from flow2onnx.graph.types import constant_of, dtype_of
from flow2onnx.lowering.broadcasts import unbroadcast


@vjp("Add")
def _(b, n, g):
    x, y = n.inputs
    return unbroadcast(b, g, x), unbroadcast(b, g, y)


@vjp("Sum")
def _(b, n, g):
    return [unbroadcast(b, g, x) for x in n.inputs]


@vjp("Mean")
def _(b, n, g):
    share = b.Mul(g, 1.0 / len(n.inputs))
    return [unbroadcast(b, share, x) for x in n.inputs]


@vjp("Sub")
def _(b, n, g):
    x, y = n.inputs
    return unbroadcast(b, g, x), unbroadcast(b, b.Neg(g), y)


@vjp("Mul")
def _(b, n, g):
    x, y = n.inputs
    if _is_sigmoid_of(y, x):
        return _silu_gradient(b, n, g, y), None
    if _is_sigmoid_of(x, y):
        return None, _silu_gradient(b, n, g, x)
    return unbroadcast(b, b.Mul(g, y), x), unbroadcast(b, b.Mul(g, x), y)


def _is_sigmoid_of(gate, x):
    maker = gate.producer()
    return maker is not None and maker.op_type == "Sigmoid" and maker.inputs[0] is x


def _silu_gradient(b, n, g, gate):
    """The whole gradient of x σ(x): σ + y (1 - σ). That of its parts reads and writes more."""
    return b.Mul(g, b.Add(b.Mul(n.outputs[0], b.Sub(1.0, gate)), gate))


@vjp("Div")
def _(b, n, g):
    x, y = n.inputs
    gx = b.Div(g, y)
    return unbroadcast(b, gx, x), unbroadcast(b, b.Neg(b.Mul(gx, n.outputs[0])), y)


@vjp("Pow")
def _(b, n, g):
    x, power = n.inputs
    y = power if dtype_of(power) == dtype_of(x) else b.Cast(power, to=dtype_of(x))
    slope = b.Mul(y, b.Pow(x, b.Sub(y, 1.0)))
    known = constant_of(power)
    if known is None or not np.all(known):
        # x^0 is flat, also at 0, where 0 * 0^-1 would not be a number
        slope = b.Where(b.Equal(y, 0.0), b.like(0.0, x), slope)
    gx = unbroadcast(b, b.Mul(g, slope), x)
    if known is not None or not dtype_of(power).is_floating_point:
        return gx, None
    # x^y has no slope in y where x is 0, and ln 0 must not poison the product
    log = b.Log(b.Where(b.Greater(x, 0.0), x, b.like(1.0, x)))
    gy = b.Mul(g, b.Mul(n.outputs[0], log))
    return gx, unbroadcast(b, gy if y is power else b.Cast(gy, to=dtype_of(power)), power)


@vjp("Max", "Min")
def _(b, n, g):
    # ties share equally, as in torch
    y, g_zero = n.outputs[0], b.like(0.0, g)
    hits = [b.Equal(x, y) for x in n.inputs]
    count = functools.reduce(b.Add, (b.Cast(hit, to=dtype_of(g)) for hit in hits))
    share = b.Div(g, count) if len(hits) > 1 else g
    return [
        unbroadcast(b, b.Where(hit, share, g_zero), x)
        for hit, x in zip(hits, n.inputs, strict=True)
    ]


@vjp("Where")
def _(b, n, g):
    condition, x, y = n.inputs
    zero = b.like(0.0, g)
    return (
        None,
        unbroadcast(b, b.Where(condition, g, zero), x),
        unbroadcast(b, b.Where(condition, zero, g), y),
    )


@vjp("Mod")
def _(b, n, g):
    # x - q y with a whole quotient q, which has no slope
    x, y = n.inputs
    quotient = b.Div(b.Sub(x, n.outputs[0]), y)
    return unbroadcast(b, g, x), unbroadcast(b, b.Neg(b.Mul(g, quotient)), y)
