"""Reductions."""

import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dtype_of, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import reshape_to
from flow2onnx.lowering.dimensions import check_constant, positions


def _axes(n):
    operand = n.inputs[1] if len(n.inputs) > 1 else None
    given = np.asarray(attribute(n, "axes", [])) if operand is None else constant_of(operand)
    rank = rank_of(n.inputs[0])
    if given is None:
        raise no_gradient(n, "along axes known only at run time")
    if not given.size:
        return [] if attribute(n, "noop_with_empty_axes", 0) else list(range(rank))
    return [int(a) % rank for a in given]


def _keep_dims(b, n, value):
    """`value`, of the output's shape, with the reduced axes back as 1s."""
    axes = _axes(n)
    shape = [1 if i in axes else d for i, d in enumerate(sizes_of(n.inputs[0]))]
    return value if list(sizes_of(value)) == shape else reshape_to(b, value, shape)


def _divide_by_count(b, n, g):
    """`g` divided by how many elements go into each of the output's."""
    extents = [sizes_of(n.inputs[0])[a] for a in _axes(n)]
    known = math.prod(d for d in extents if isinstance(d, int))
    unknown = [d for d in extents if isinstance(d, str)]
    if not unknown:
        return b.Mul(g, 1.0 / known)
    count = b.const([known])
    for name in unknown:
        count = b.Mul(count, b.vector([name]))
    return b.Div(g, b.Cast(b.Reshape(count, []), to=dtype_of(g)))


def _repeat(b, n, value):
    """`value`, of the output's shape, repeated along the reduced axes."""
    shape = list(sizes_of(n.inputs[0]))
    kept = _keep_dims(b, n, value)
    return kept if list(sizes_of(kept)) == shape else b.Expand(kept, shape)


@vjp("ReduceSum")
def _(b, n, g):
    x = n.inputs[0]
    return b.Expand(_keep_dims(b, n, g), list(sizes_of(x)))


@vjp("ReduceMean")
def _(b, n, g):
    x = n.inputs[0]
    return b.Expand(_keep_dims(b, n, _divide_by_count(b, n, g)), list(sizes_of(x)))


@vjp("ReduceMax", "ReduceMin")
def _(b, n, g):
    # ties share equally
    x, axes = n.inputs[0], _axes(n)
    if not axes:
        return g
    hit = b.Cast(b.Equal(x, _keep_dims(b, n, n.outputs[0])), to=dtype_of(x))
    ties = b.ReduceSum(hit, axes, keepdims=1)
    return b.Mul(hit, b.Div(_keep_dims(b, n, g), ties))


@vjp("ReduceSumSquare")
def _(b, n, g):
    return b.Mul(n.inputs[0], b.Mul(_keep_dims(b, n, g), 2.0))


@vjp("ReduceL2")
def _(b, n, g):
    # 0 where all that is reduced is 0: the length is as good as any other there
    length = _keep_dims(b, n, n.outputs[0])
    safe = b.Where(b.Equal(length, b.like(0, length)), b.like(1, length), length)
    return b.Mul(n.inputs[0], b.Div(_keep_dims(b, n, g), safe))


@vjp("ReduceL1")
def _(b, n, g):
    return b.Mul(b.Sign(n.inputs[0]), _keep_dims(b, n, g))


@vjp("ReduceLogSum")
def _(b, n, g):
    # the output is the logarithm of the sum, whose slope is 1 / sum
    return _repeat(b, n, b.Mul(g, b.Exp(b.Neg(n.outputs[0]))))


@vjp("ReduceLogSumExp")
def _(b, n, g):
    return b.Mul(_keep_dims(b, n, g), b.Exp(b.Sub(n.inputs[0], _keep_dims(b, n, n.outputs[0]))))


@vjp("ReduceProd")
def _(b, n, g):
    # the product of the others, which is 0 where one of them is
    x, axes = n.inputs[0], _axes(n)
    if not axes:
        return g
    is_zero = b.Equal(x, 0.0)
    safe = b.Where(is_zero, b.like(1.0, x), x)
    zero = b.Cast(is_zero, to=dtype_of(x))
    others = b.Sub(b.ReduceSum(zero, axes, keepdims=1), zero)
    product = _keep_dims(b, n, _product(b, safe, n, axes))
    rest = b.Where(b.Equal(others, 0.0), b.Div(product, safe), b.like(0.0, x))
    return b.Mul(_keep_dims(b, n, g), rest)


def _product(b, x, n, axes):
    if b.opset < 18:
        return b.ReduceProd(x, axes=axes, keepdims=attribute(n, "keepdims", 1))
    return b.ReduceProd(x, axes, keepdims=attribute(n, "keepdims", 1))


@vjp("CumProd")
def _(b, n, g):
    # for each factor the products without it, also where it is 0
    x, axis = n.inputs[0], constant_of(n.inputs[1])
    if axis is None:
        raise no_gradient(n, "along an axis known only at run time")
    rank, axis = rank_of(x), int(axis) % rank_of(x)
    order = {k: attribute(n, k, 0) for k in ("exclusive", "reverse")}
    size = extents(b, x)[axis]
    # `left out` runs along a new axis before the one that is multiplied along
    more = [1] * (rank - axis - 1)
    if is_known(size):
        check_constant(size, size)
        left_out = b.const(np.eye(size, dtype=bool).reshape(size, size, *more))
        counts = _contains(*np.indices((size, size)), **order).reshape(size, size, *more)
        counts = b.const(counts.astype(dtype_of(x).numpy))
    else:
        i, j = (b.Reshape(positions(b, size), s) for s in ([-1, 1, *more], [1, -1, *more]))
        left_out = b.Equal(i, j)
        counts = b.Cast(_contains_at_run_time(b, i, j, **order), to=dtype_of(x))
    factors = b.Where(left_out, b.like(1.0, x), b.Unsqueeze(x, [axis]))
    products = b.CumProd(factors, np.int64(axis + 1), **order)
    parts = b.Mul(b.Mul(products, counts), b.Unsqueeze(g, [axis]))
    return b.ReduceSum(parts, [axis + 1], keepdims=0), None


def _contains(i, j, exclusive, reverse):
    """A matrix that is True where factor i, down, is in product j, across."""
    if reverse:
        i, j = j, i
    return i < j if exclusive else i <= j


def _contains_at_run_time(b, i, j, exclusive, reverse):
    if reverse:
        i, j = j, i
    return b.Less(i, j) if exclusive else b.LessOrEqual(i, j)


@vjp("CumSum")
def _(b, n, g):
    flip = 1 - attribute(n, "reverse", 0)
    return b.CumSum(g, n.inputs[1], exclusive=attribute(n, "exclusive", 0), reverse=flip), None
