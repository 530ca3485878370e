"""Softmax and its kin, and what takes means and variances out."""

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import dtype_of, rank_of, unbroadcast


@vjp("Softmax")
def _(b, n, g):
    y, axis = n.outputs[0], attribute(n, "axis", -1)
    gy = b.Mul(g, y)
    return b.Sub(gy, b.Mul(y, b.ReduceSum(gy, [axis], keepdims=1)))


@vjp("LogSoftmax")
def _(b, n, g):
    axis = attribute(n, "axis", -1)
    return b.Sub(g, b.Mul(b.Exp(n.outputs[0]), b.ReduceSum(g, [axis], keepdims=1)))


@vjp("LayerNormalization")
def _(b, n, g, *_others):
    x, scale, *offset = n.inputs
    axes = list(range(attribute(n, "axis", -1) % rank_of(x), rank_of(x)))
    mean, rate = _statistics(b, n, axes)
    normal = b.Mul(b.Sub(x, mean), rate)
    gn = b.Mul(g, scale)
    level = b.ReduceMean(gn, axes, keepdims=1)
    slope = b.ReduceMean(b.Mul(gn, normal), axes, keepdims=1)
    gx = b.Mul(rate, b.Sub(b.Sub(gn, level), b.Mul(normal, slope)))
    return gx, unbroadcast(b, b.Mul(g, normal), scale), *(unbroadcast(b, g, v) for v in offset)


def _statistics(b, n, axes):
    """The mean and the reciprocal deviation, of which the node itself has single precision ones."""
    x = n.inputs[0]
    if dtype_of(x) == float64:
        mean = b.ReduceMean(x, axes, keepdims=1)
        centred = b.Sub(x, mean)
        variance = b.ReduceMean(b.Mul(centred, centred), axes, keepdims=1)
        return mean, b.Reciprocal(b.Sqrt(b.Add(variance, attribute(n, "epsilon", 1e-5))))
    while len(n.outputs) < 3:
        b.another_output(n)
    wide = n.outputs[1:]
    return wide if dtype_of(x) == float32 else [b.Cast(v, to=dtype_of(x)) for v in wide]


@vjp("BatchNormalization")
def _(b, n, g, *_others):
    if attribute(n, "training_mode", 0):
        raise no_gradient(n, "in training mode")
    x, scale, _, mean, variance = n.inputs
    others = [i for i in range(rank_of(x)) if i != 1]
    spread = [-1] + [1] * (rank_of(x) - 2)
    rate = b.Reciprocal(b.Sqrt(b.Add(variance, attribute(n, "epsilon", 1e-5))))
    factor = b.Mul(rate, scale)
    centred = b.Sub(x, b.Reshape(mean, spread))
    total = b.ReduceSum(g, others, keepdims=0)
    slope = b.Mul(b.ReduceSum(b.Mul(g, centred), others, keepdims=0), rate)
    return (
        b.Mul(g, b.Reshape(factor, spread)),
        slope,
        total,
        b.Neg(b.Mul(factor, total)),
        b.Mul(b.Mul(b.Mul(factor, rate), slope), -0.5),
    )
