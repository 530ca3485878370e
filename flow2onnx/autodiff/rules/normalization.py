"""Softmax and its kin, and what takes means and variances out."""

import functools
import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.dtypes import float16, float32, float64
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import dims, dtype_of, is_static, rank_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.dimensions import check_constant, divide, positions
from flow2onnx.lowering.forms import Lowering
from flow2onnx.lowering.sums import channel_sum


@vjp("Softmax")
def _(b, n, g):
    return _softmax_gradient(b, attribute(n, "axis", -1), n.outputs[0], g)


_softmax_gradient = Lowering("Softmax.dX", lambda *_: "difference")


@_softmax_gradient.form("difference")
def _(b, axis, y, g):
    return b.Mul(y, b.Sub(g, b.ReduceSum(b.Mul(g, y), [axis], keepdims=1)))


@_softmax_gradient.form("products")
def _(b, axis, y, g):
    gy = b.Mul(g, y)
    return b.Sub(gy, b.Mul(y, b.ReduceSum(gy, [axis], keepdims=1)))


@vjp("LogSoftmax")
def _(b, n, g):
    axis = attribute(n, "axis", -1)
    return b.Sub(g, b.Mul(b.Exp(n.outputs[0]), b.ReduceSum(g, [axis], keepdims=1)))


def _is_one_sided(n, g, g_mean, g_rate):
    """True if only the normalized output has a gradient, and the scale is as wide as a row."""
    x, scale = n.inputs[:2]
    if g is None or g_mean is not None or g_rate is not None or not is_static(x):
        return False
    return dtype_of(x) == float32 and dims(scale) == dims(x)[attribute(n, "axis", -1) :]


_layer_gradient = Lowering(
    "LayerNormalization.dX",
    lambda n, *gs: "ones_products" if _is_one_sided(n, *gs) else "reductions",
    on_cuda=lambda *_: "reductions",  # products round what they add up to TF32
)


@vjp("LayerNormalization")
def _(b, n, g, g_mean=None, g_rate=None):
    return _layer_gradient(b, n, g, g_mean, g_rate)


@_layer_gradient.form("ones_products", when=_is_one_sided)
def _(b, n, g, g_mean, g_rate):
    """Sums over rows as products, and no pass for the normalised rows: their rate comes last."""
    x, scale, *offset = n.inputs
    width = math.prod(dims(scale))
    count = math.prod(dims(x)) // width
    mean, rate = (b.Reshape(v, [count, 1]) for v in _statistics(b, n, []))
    flat, gs = (b.Reshape(v, [count, width]) for v in (x, g))
    weights = b.Reshape(scale, [width])
    centred = b.Sub(flat, mean)
    pulled, wide = b.Mul(gs, centred), b.Mul(gs, weights)
    slope = b.MatMul(pulled, b.Mul(b.Reshape(scale, [width, 1]), b.const([[1.0 / width]])))
    tilt = b.Mul(b.Mul(b.Mul(rate, rate), rate), slope)
    inner = b.Mul(b.Sub(wide, b.ReduceMean(wide, [1], keepdims=1)), rate)
    gx = b.Reshape(b.Sub(inner, b.Mul(centred, tilt)), list(dims(x)))
    g_scale = b.Reshape(b.MatMul(b.Reshape(rate, [1, count]), pulled), list(dims(scale)))
    return gx, g_scale, *(None if v is None else unbroadcast(b, g, v) for v in offset)


@_layer_gradient.form("reductions")
def _(b, n, g, g_mean, g_rate):
    x, scale, *offset = n.inputs
    axes = list(range(attribute(n, "axis", -1) % rank_of(x), rank_of(x)))
    mean, rate = _statistics(b, n, axes)
    centred = b.Sub(x, mean)
    normal = b.Mul(centred, rate)
    found = [None] * len(n.inputs)
    parts = []
    if g is not None:
        parts.append(_standardize_gradient(b, b.Mul(g, scale), normal, rate, axes))
        found[1] = unbroadcast(b, b.Mul(g, normal), scale)
        found[2:] = [None if v is None else unbroadcast(b, g, v) for v in offset]
    # the other outputs are single precision whatever the input is
    count = math.prod(extents(b, x)[a] for a in axes)
    if g_mean is not None:
        level = divide(b, b.Cast(g_mean, to=dtype_of(x)), count)
        parts.append(b.Expand(level, list(extents(b, x))))
    if g_rate is not None:
        cube = b.Mul(b.Mul(rate, rate), rate)
        slope = divide(b, b.Mul(b.Cast(g_rate, to=dtype_of(x)), cube), -count)
        parts.append(b.Mul(slope, centred))
    found[0] = functools.reduce(b.Add, parts)
    return found


def _standardize_gradient(b, g, normal, rate, axes):
    """The gradient through (x - mean) * rate, where rate is 1 / sqrt(variance + epsilon)."""
    level = b.ReduceMean(g, axes, keepdims=1)
    slope = b.ReduceMean(b.Mul(g, normal), axes, keepdims=1)
    return b.Mul(rate, b.Sub(b.Sub(g, level), b.Mul(normal, slope)))


def _statistics(b, n, axes):
    """The mean and the reciprocal deviation, of which the node itself has single precision ones."""
    x = n.inputs[0]
    if dtype_of(x) == float64:
        _, mean, variance = _moments(b, x, axes)
        return mean, _rate(b, n, variance)
    while len(n.outputs) < 3:
        b.another_output(n)
    wide = n.outputs[1:]
    return wide if dtype_of(x) == float32 else [b.Cast(v, to=dtype_of(x)) for v in wide]


def _moments(b, x, axes):
    """The input without its mean, the mean, and the variance."""
    mean = b.ReduceMean(x, axes, keepdims=1)
    centred = b.Sub(x, mean)
    return centred, mean, b.ReduceMean(b.Mul(centred, centred), axes, keepdims=1)


def _rate(b, n, variance):
    return b.Reciprocal(b.Sqrt(b.Add(variance, attribute(n, "epsilon", 1e-5))))


def _per_channel(b, value, x):
    """One number for each channel, beside `x`."""
    return b.Reshape(value, [-1] + [1] * (rank_of(x) - 2))


@vjp("BatchNormalization")
def _(b, n, g, *g_running):
    found = _batch_gradients(b, n, g, *g_running)
    # scale and statistics may each have another element type than the input
    return [
        part if part is None or dtype_of(part) == dtype_of(v) else b.Cast(part, to=dtype_of(v))
        for part, v in zip(found, n.inputs, strict=True)
    ]


def _batch_gradients(b, n, g, *g_running):
    x = n.inputs[0]
    scale, _, mean, variance = (_cast_like(b, v, x) for v in n.inputs[1:])
    others = [i for i in range(rank_of(x)) if i != 1]
    if attribute(n, "training_mode", 0):
        return _training_gradients(
            b, n, others, scale, g, *(_cast_like(b, v, x) for v in g_running)
        )
    rate = _rate(b, n, variance)
    factor = b.Mul(rate, scale)
    centred = b.Sub(x, _per_channel(b, mean, x))
    total = channel_sum(b, None, g)
    slope = b.Mul(channel_sum(b, None, b.Mul(g, centred)), rate)
    return (
        b.Mul(g, _per_channel(b, factor, x)),
        slope,
        total,
        b.Neg(b.Mul(factor, total)),
        b.Mul(b.Mul(b.Mul(factor, rate), slope), -0.5),
    )


def _cast_like(b, value, x):
    """`value` in the element type of `x`."""
    if value is None or dtype_of(value) == dtype_of(x):
        return value
    return b.Cast(value, to=dtype_of(x))


def _training_gradients(b, n, others, scale, g, g_mean=None, g_variance=None):
    """The training form. Only the CPU provider runs its node; these operators run on all."""
    x = n.inputs[0]
    momentum = attribute(n, "momentum", 0.9)
    centred, _, variance = _moments(b, x, others)
    rate = _rate(b, n, variance)
    normal = b.Mul(centred, rate)
    parts, found = [], [None] * 5
    if g is not None:
        wide = b.Mul(g, _per_channel(b, scale, x))
        parts.append(_standardize_gradient(b, wide, normal, rate, others))
        found[1] = channel_sum(b, None, b.Mul(g, normal))
        found[2] = channel_sum(b, None, g)
    if g_mean is not None:
        found[3] = b.Mul(g_mean, momentum)
        level = _share_by_element(b, _per_channel(b, g_mean, x), x, 1.0 - momentum)
        parts.append(b.Expand(level, list(extents(b, x))))
    if g_variance is not None:
        found[4] = b.Mul(g_variance, momentum)
        level = _share_by_element(b, _per_channel(b, g_variance, x), x, 2.0 * (1.0 - momentum))
        parts.append(b.Mul(centred, level))
    found[0] = functools.reduce(b.Add, parts)
    return found


def _share_by_element(b, value, x, factor):
    """A number for each channel times `factor`, divided by the channel's elements."""
    if is_static(x):
        return b.Mul(value, factor * dims(x)[1] / math.prod(dims(x)))
    count = math.prod(d for i, d in enumerate(extents(b, x)) if i != 1)
    return divide(b, b.Mul(value, factor), count)


@vjp("InstanceNormalization")
def _(b, n, g):
    x, scale, _ = n.inputs
    axes = list(range(2, rank_of(x)))
    centred, _, variance = _moments(b, x, axes)
    rate = _rate(b, n, variance)
    normal = b.Mul(centred, rate)
    return (
        _standardize_gradient(b, b.Mul(g, _per_channel(b, scale, x)), normal, rate, axes),
        channel_sum(b, None, b.Mul(g, normal)),
        channel_sum(b, None, g),
    )


@vjp("GroupNormalization")
def _(b, n, g):
    x, scale, _ = n.inputs
    images, channels, *lengths = extents(b, x)
    groups = attribute(n, "num_groups")
    grouped = [images, groups, channels // groups, math.prod(lengths)]
    folded, gs = b.Reshape(x, grouped), b.Reshape(g, grouped)
    centred, _, variance = _moments(b, folded, [2, 3])
    rate = _rate(b, n, variance)
    normal = b.Mul(centred, rate)
    factor = b.Reshape(scale, [1, groups, -1, 1])
    gn = _standardize_gradient(b, b.Mul(gs, factor), normal, rate, [2, 3])
    slope, total = (b.ReduceSum(v, [0, 3], keepdims=0) for v in (b.Mul(gs, normal), gs))
    slope, total = b.Reshape(slope, [-1]), b.Reshape(total, [-1])
    return b.Reshape(gn, list(extents(b, x))), slope, total


@vjp("RMSNormalization")
def _(b, n, g):
    x, scale = n.inputs
    axes = list(range(attribute(n, "axis", -1) % rank_of(x), rank_of(x)))
    # the standard computes the mean square of half precision in single precision
    wide = b.Cast(x, to=float32) if dtype_of(x) == float16 else x
    square = b.ReduceMean(b.Mul(wide, wide), axes, keepdims=1)
    rate = b.Cast(_rate(b, n, square), to=dtype_of(x))
    normal = b.Mul(x, rate)
    # scale may have another element type than the input
    factor, gs = b.Cast(scale, to=dtype_of(x)), b.Cast(g, to=dtype_of(x))
    gn = b.Mul(gs, factor)
    slope = b.ReduceMean(b.Mul(gn, normal), axes, keepdims=1)
    g_scale = b.Cast(unbroadcast(b, b.Mul(gs, normal), scale), to=dtype_of(scale))
    return b.Mul(rate, b.Sub(gn, b.Mul(normal, slope))), g_scale


@vjp("MeanVarianceNormalization")
def _(b, n, g):
    # x - mean over the deviation and 1e-9: the slope of the deviation has no epsilon
    x = n.inputs[0]
    axes = [a % rank_of(x) for a in attribute(n, "axes", [0, 2, 3])]
    centred, _, variance = _moments(b, x, axes)
    deviation = b.Sqrt(variance)
    rate = b.Reciprocal(b.Add(deviation, b.like(1e-9, x)))
    level = b.ReduceMean(g, axes, keepdims=1)
    slope = b.ReduceMean(b.Mul(g, centred), axes, keepdims=1)
    is_flat = b.Equal(deviation, 0.0)
    tilt = b.Div(b.Mul(b.Mul(slope, rate), rate), b.Where(is_flat, b.like(1.0, x), deviation))
    return b.Sub(b.Mul(b.Sub(g, level), rate), b.Mul(centred, tilt))


@vjp("LpNormalization")
def _(b, n, g):
    # what has no length has no gradient: the node leaves it 0
    x, y, axis = n.inputs[0], n.outputs[0], attribute(n, "axis", -1) % rank_of(n.inputs[0])
    by_sum = attribute(n, "p", 2) == 1
    length = b.emit("ReduceL1" if by_sum else "ReduceL2", (x, [axis]), {"keepdims": 1})[0]
    is_zero = b.Equal(length, 0.0)
    divisor = b.Where(is_zero, b.like(1.0, x), length)
    along = b.ReduceSum(b.Mul(g, y), [axis], keepdims=1)
    inner = b.Sub(g, b.Mul(b.Sign(x) if by_sum else y, along))
    return b.Where(is_zero, b.like(0.0, x), b.Div(inner, divisor))


@vjp("LRN")
def _(b, n, g):
    # sums over neighbouring channels are a product with a band of ones
    x, size = n.inputs[0], attribute(n, "size")
    alpha, beta, bias = (
        attribute(n, k, v) for k, v in (("alpha", 1e-4), ("beta", 0.75), ("bias", 1.0))
    )
    images, channels = extents(b, x)[:2]
    band, back = _neighbours(b, channels, size, dtype_of(x))
    flat, gs = (b.Reshape(v, [images, channels, -1]) for v in (x, g))
    total = b.MatMul(band, b.Mul(flat, flat))
    base = b.Add(b.Mul(total, alpha / size), bias)
    power = b.Pow(base, b.like(-beta, x))
    pulled = b.Div(b.Mul(b.Mul(gs, flat), power), base)
    neighbours = b.MatMul(back, pulled)
    rest = b.Mul(b.Mul(flat, neighbours), 2.0 * alpha * beta / size)
    return b.Reshape(b.Sub(b.Mul(gs, power), rest), list(extents(b, x)))


def _neighbours(b, channels, size, dtype):
    """A matrix of ones at the channels that a channel is normalised by, and its transpose."""
    low, high = -((size - 1) // 2), size // 2
    if is_known(channels):
        check_constant(channels, channels)
        offsets = np.arange(channels)[None] - np.arange(channels)[:, None]
        band = ((offsets >= low) & (offsets <= high)).astype(dtype.numpy)
        return b.const(band), b.const(np.ascontiguousarray(band.T))
    every = positions(b, channels)
    offsets = b.Sub(b.Unsqueeze(every, [0]), b.Unsqueeze(every, [1]))
    is_near = b.GreaterOrEqual(offsets, np.int64(low)), b.LessOrEqual(offsets, np.int64(high))
    band = b.Cast(b.And(*is_near), to=dtype)
    return band, b.Transpose(band, perm=[1, 0])
