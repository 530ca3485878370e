"""Softmax and its kin."""

from flow2onnx.grad.registry import attribute, vjp


@vjp("Softmax")
def _(b, n, g):
    y, axis = n.outputs[0], attribute(n, "axis", -1)
    gy = b.Mul(g, y)
    return b.Sub(gy, b.Mul(y, b.ReduceSum(gy, [axis], keepdims=1)))


@vjp("LogSoftmax")
def _(b, n, g):
    axis = attribute(n, "axis", -1)
    return b.Sub(g, b.Mul(b.Exp(n.outputs[0]), b.ReduceSum(g, [axis], keepdims=1)))
