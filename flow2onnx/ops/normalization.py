"""Normalisations: means and variances, and values free of them."""

import math
from collections.abc import Sequence

import numpy as np

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.own_statistics import mark_own_statistics
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.lowering.sums import channel_sum
from flow2onnx.ops.arguments import axis_of
from flow2onnx.ops.reduce import reduce_mean, reduce_variance
from flow2onnx.trace.op import op


@op("nn.moments")
def moments(
    b: Builder, x: Value, axes: list[int], keepdims: bool = False, name: str | None = None
) -> tuple[Value, Value]:
    """The mean and the biased variance over `axes`."""
    if not isinstance(axes, list):
        raise ArgumentError(f"axes is a list of axes, got {axes!r}")
    mean = reduce_mean.lower(b, x, axes, keepdims)
    return mean, reduce_variance.lower(b, x, axes, keepdims)


# --- by channel -------------------------------------------------------------------------------


def _per_channel(b: Builder, channels: Value, x: Value) -> Value:
    """One number for each channel, to be broadcast against `x` with its channels on axis 1."""
    return b.Reshape(channels, [-1] + [1] * (rank_of(x) - 2)) if rank_of(x) > 2 else channels


def _affine(b: Builder, x: Value, scale: Value, offset: Value) -> Value:
    """x * scale + offset by channel."""
    if rank_of(x) == 2:
        return b.Add(b.Mul(x, scale), offset)
    # Batch normalization with constant statistics is one pass over x, a product and a sum are two.
    # Its epsilon is what providers take as the least.
    ones = np.full(dims(scale), 1 - np.float64(np.float32(1e-5)))
    return b.BatchNormalization(
        x, scale, offset, b.like(ones * 0, x), b.like(ones, x), epsilon=1e-5
    )


def channels_second(b: Builder, x: Value, axis: int) -> Value:
    """`x` with `axis` as its second, which takes no moving of elements."""
    shape = dims(x)
    before, after = math.prod(shape[:axis]), shape[axis + 1 :]
    if axis == 1:
        return x
    return b.Reshape(x, [before, shape[axis], *([math.prod(after)] if after else [])])


@op("nn.batch_normalization")
def batch_normalization(
    b: Builder,
    x: Value,
    mean: Value,
    variance: Value,
    offset: Value | None = None,
    scale: Value | None = None,
    variance_epsilon: float = 1e-05,
    axis: int = 1,
    name: str | None = None,
) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset, given a number for each channel."""
    axis = axis_of(axis, rank_of(x))
    channels = (dims(x)[axis],)
    for value in (mean, variance, offset, scale):
        if value is not None and dims(value) != channels:
            raise ShapeError(f"{dims(value)} does not fit axis {axis} of {dims(x)}")
    folded = channels_second(b, x, axis)
    gamma = b.like(np.ones(channels), x) if scale is None else scale
    beta = b.like(np.zeros(channels), x) if offset is None else offset
    if rank_of(folded) == 1:
        folded = b.Reshape(folded, [1, -1])
    y = b.BatchNormalization(folded, gamma, beta, mean, variance, epsilon=variance_epsilon)
    return y if dims(y) == dims(x) else b.Reshape(y, list(dims(x)))


def _by_batch_vjp(
    b: Builder, inputs: tuple[Value, ...], outputs: tuple[Value, ...], g: Value, *_: Value | None
) -> tuple[Value, Value, Value]:
    # Mean and variance taken in: half as many passes as the gradients of the single steps.
    (x, scale), (mean, rate) = inputs[:2], outputs[1::2]
    share = dims(x)[1] / math.prod(dims(x))
    centred = b.Sub(x, _per_channel(b, mean, x))
    total = channel_sum(b, None, g)
    slope = b.Mul(channel_sum(b, None, b.Mul(g, centred)), rate)
    factor = b.Mul(rate, scale)
    shift = b.Neg(b.Mul(b.Mul(factor, total), share))
    tilt = b.Neg(b.Mul(b.Mul(b.Mul(factor, rate), slope), share))
    gx = b.Add(_affine(b, g, factor, shift), _affine(b, centred, tilt, b.Mul(tilt, 0.0)))
    return gx, slope, total


@op("nn.normalized_by_batch", vjp=_by_batch_vjp, is_public=False)
def by_batch(
    b: Builder, x: Value, scale: Value, offset: Value, epsilon: float
) -> tuple[Value, Value, Value, Value]:
    """`x` normalised by its own statistics on axis 1; mean, biased variance, and 1/deviation.

    Only the first has a gradient. There is a standard operator for it, but providers overwrite the
    inputs of its training form or lack it, and the reductions are no slower.
    """
    others = [i for i in range(rank_of(x)) if i != 1]
    mean = mark_own_statistics(b.ReduceMean(x, others, keepdims=0))
    centred = b.Sub(x, _per_channel(b, mean, x))
    variance = mark_own_statistics(b.ReduceMean(b.Mul(centred, centred), others, keepdims=0))
    rate = b.Reciprocal(b.Sqrt(b.Add(variance, epsilon)))
    return _affine(b, centred, b.Mul(rate, scale), offset), mean, variance, rate


# --- by sample --------------------------------------------------------------------------------


@op("nn.layer_norm")
def layer_norm(
    b: Builder,
    inputs: Value,
    gamma: Value | None = None,
    beta: Value | None = None,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-05,
    name: str | None = None,
) -> Value:
    """The dimensions from `begin_norm_axis` on normalised, times gamma, plus beta."""
    rank, shape = rank_of(inputs), dims(inputs)
    first = axis_of(begin_norm_axis, rank)
    params = shape[axis_of(begin_params_axis, rank) :]
    for value in (gamma, beta):
        if value is not None and dims(value) != params:
            raise ShapeError(f"gamma and beta have shape {params}, got {dims(value)}")
    if shape[first:] == params and gamma is not None:
        operands = (inputs, gamma) if beta is None else (inputs, gamma, beta)
        return b.LayerNormalization(*operands, axis=first, epsilon=epsilon)
    y = by_sample(b, inputs, first, epsilon)
    y = y if gamma is None else b.Mul(y, gamma)
    return y if beta is None else b.Add(y, beta)


def by_sample(b: Builder, x: Value, axis: int, epsilon: float) -> Value:
    """`x` normalised over its axes from `axis` on."""
    ones = b.Expand(b.like(1.0, x), list(dims(x)[axis:]))
    return b.LayerNormalization(x, ones, axis=axis, epsilon=epsilon)


@op("nn.normalized_by_group", is_public=False)
def by_group(
    b: Builder, x: Value, scale: Value | None, offset: Value | None, groups: int, epsilon: float
) -> Value:
    """The channels of each sample normalised in `groups`; scale and offset are (1, channels, 1)."""
    n, channels, *extents = dims(x)
    y = by_sample(b, b.Reshape(x, [n, groups, -1]), 2, epsilon)
    if scale is not None and offset is not None:
        y = b.Reshape(y, [n, channels, -1])
        y = b.Add(b.Mul(y, scale), offset)
    return b.Reshape(y, [n, channels, *extents])


# --- gradients, as operators ------------------------------------------------------------------


def _from(value: Value, axis: int) -> Sequence[int]:
    return list(range(axis_of(axis, rank_of(value)), rank_of(value)))


@op("layers.layer_norm_grad")
def layer_norm_grad(
    b: Builder,
    dy: Value,
    x: Value,
    mean: Value,
    inv_variance: Value,
    begin_norm_axis: int = 1,
    name: str = "LayerNormGrad",
) -> Value:
    """The gradient of a normalised value in `x`; mean and 1/deviation are one for each sample."""
    axes = _from(x, begin_norm_axis)
    kept = [*dims(x)[: rank_of(x) - len(axes)], *[1] * len(axes)]
    rate = b.Reshape(inv_variance, kept)
    normal = b.Mul(b.Sub(x, b.Reshape(mean, kept)), rate)
    level = b.ReduceMean(dy, axes, keepdims=1)
    slope = b.ReduceMean(b.Mul(dy, normal), axes, keepdims=1)
    return b.Mul(rate, b.Sub(b.Sub(dy, level), b.Mul(normal, slope)))


@op("layers.layer_norm_param_grad", catalogued=True)
def layer_norm_param_grad(
    b: Builder, dy: Value, norm: Value, gamma: Value, begin_params_axis: int, name: str
) -> tuple[Value, Value, Value]:
    """The gradients in the normalised value, beta and gamma."""
    lead = list(range(rank_of(dy) - len(_from(dy, begin_params_axis))))
    sums = [b.ReduceSum(v, lead, keepdims=0) if lead else v for v in (dy, b.Mul(dy, norm))]
    return b.Mul(dy, gamma), sums[0], sums[1]
