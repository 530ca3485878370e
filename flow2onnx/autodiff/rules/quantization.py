"""Quantisation, straight through: rounding passes the gradient, saturation does not."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.dtypes import by_code
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import dtype_of, rank_of, sizes_of
from flow2onnx.lowering.dimensions import positions


@vjp("QuantizeLinear")
def _(b, n, g):
    # g is for a real number in the place of the whole one, in steps of the scale
    x, scale = n.inputs[:2]
    step = _broadcast_scale(b, n, scale, x)
    level = b.Div(x, step)
    zero, low, high = _integer_range(b, n, x)
    if zero is not None:
        low, high = b.Sub(low, zero), b.Sub(high, zero)
    rounded = b.Round(level)
    is_inside = b.And(b.GreaterOrEqual(rounded, low), b.LessOrEqual(rounded, high))
    inside = b.Mul(g, b.Cast(is_inside, to=dtype_of(x)))
    gx = b.Div(inside, step)
    return gx, _sum_by_scale(b, n, b.Neg(b.Mul(gx, level)), scale), None


def _integer_range(b, n, x):
    """The zero point as a real number, if there is one, and the ends of the whole numbers."""
    point = n.inputs[2] if len(n.inputs) > 2 else None
    info = np.iinfo(by_code(int(n.outputs[0].dtype)).numpy)
    ends = b.like(float(info.min), x), b.like(float(info.max), x)
    if point is None:
        return None, *ends
    return _broadcast_scale(b, n, b.Cast(point, to=dtype_of(x)), x), *ends


@vjp("DequantizeLinear")
def _(b, n, g):
    q, scale, point = [*n.inputs, None][:3]
    kind = dtype_of(scale)
    steps = b.Cast(q, to=kind)
    if point is not None:
        steps = b.Sub(steps, _broadcast_scale(b, n, b.Cast(point, to=kind), q))
    gs = _sum_by_scale(b, n, b.Mul(b.Cast(g, to=kind), steps), scale)
    return b.Mul(b.Cast(g, to=kind), _broadcast_scale(b, n, scale, q)), gs, None


def _broadcast_scale(b, n, v, x):
    """A scale or zero point in a shape that broadcasts against `x`."""
    if not rank_of(v) or sizes_of(v) == (1,):
        return v
    axis = attribute(n, "axis", 1) % rank_of(x)
    if rank_of(v) == 1:
        return b.Reshape(v, [-1 if i == axis else 1 for i in range(rank_of(x))])
    return b.Gather(v, _blocks(b, n, x, axis), axis=axis)


def _sum_by_scale(b, n, g, scale):
    """The sum of `g` over what each element of a scale stood for."""
    shape, rank = extents(b, scale), rank_of(g)
    if not shape or shape == (1,):
        return b.Reshape(b.ReduceSum(g, list(range(rank)), keepdims=0), list(shape))
    axis = attribute(n, "axis", 1) % rank
    if len(shape) == 1:
        return b.ReduceSum(g, [i for i in range(rank) if i != axis], keepdims=0)
    blocks = _blocks(b, n, g, axis)
    if isinstance(blocks, np.ndarray) and is_known(shape[axis]):
        owners = np.eye(shape[axis], dtype=dtype_of(g).numpy)[blocks]
    else:
        is_owner = b.Equal(b.Unsqueeze(blocks, [1]), b.Unsqueeze(positions(b, shape[axis]), [0]))
        owners = b.Cast(is_owner, to=dtype_of(g))
    last = [*(i for i in range(rank) if i != axis), axis]
    summed = b.MatMul(b.Transpose(g, perm=last), owners)
    return b.Transpose(summed, perm=[int(i) for i in np.argsort(last)])


def _blocks(b, n, x, axis):
    """For each position along `axis` the block it lies in."""
    extent, size = extents(b, x)[axis], attribute(n, "block_size", 1)
    if is_known(extent):
        return np.arange(extent) // size
    return b.Div(positions(b, extent), size)
