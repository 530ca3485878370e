"""Reductions."""

import math

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.graph import constant_of, dims, dtype_of, rank_of


def _axes(n):
    given = constant_of(n.inputs[1]) if len(n.inputs) > 1 else None
    rank = rank_of(n.inputs[0])
    if given is None or not given.size:
        return [] if attribute(n, "noop_with_empty_axes", 0) else list(range(rank))
    return [int(a) % rank for a in given]


def _kept(b, n, value):
    """`value`, of the output's shape, with the reduced axes back as 1s."""
    axes = _axes(n)
    shape = [1 if i in axes else d for i, d in enumerate(dims(n.inputs[0]))]
    return value if list(dims(value)) == shape else b.Reshape(value, shape)


def _count(n):
    return math.prod(dims(n.inputs[0])[a] for a in _axes(n))


@vjp("ReduceSum")
def _(b, n, g):
    x = n.inputs[0]
    return b.Expand(_kept(b, n, g), list(dims(x)))


@vjp("ReduceMean")
def _(b, n, g):
    x = n.inputs[0]
    return b.Expand(_kept(b, n, b.Mul(g, 1.0 / _count(n))), list(dims(x)))


@vjp("ReduceMax", "ReduceMin")
def _(b, n, g):
    # ties share equally
    x, axes = n.inputs[0], _axes(n)
    if not axes:
        return g
    hit = b.Cast(b.Equal(x, _kept(b, n, n.outputs[0])), to=dtype_of(x))
    ties = b.ReduceSum(hit, axes, keepdims=1)
    return b.Mul(hit, b.Div(_kept(b, n, g), ties))


@vjp("ReduceSumSquare")
def _(b, n, g):
    return b.Mul(n.inputs[0], b.Mul(_kept(b, n, g), 2.0))


@vjp("ReduceL2")
def _(b, n, g):
    return b.Mul(n.inputs[0], b.Div(_kept(b, n, g), _kept(b, n, n.outputs[0])))


@vjp("CumSum")
def _(b, n, g):
    flip = 1 - attribute(n, "reverse", 0)
    return b.CumSum(g, n.inputs[1], exclusive=attribute(n, "exclusive", 0), reverse=flip), None
