"""Activations. Where OneFlow's gradient at a corner is not the composed one, it is given here."""

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.ops.arguments import axis_of
from flow2onnx.trace.op import op


def _where_inside(
    b: Builder, value: Value, low: float, high: float, inside: Value, outside: Value
) -> Value:
    """`inside` where low < value < high, else `outside`."""
    is_inside = b.And(b.Greater(value, b.like(low, value)), b.Less(value, b.like(high, value)))
    return b.Where(is_inside, inside, outside)


@op("nn.elu")
def elu(b: Builder, x: Value, alpha: float = 1.0, name: str | None = None) -> Value:
    """x where it is positive, else alpha (e^x - 1)."""
    return b.Elu(x, alpha=alpha)


def _hardsigmoid_vjp(
    b: Builder, inputs: tuple[Value], outputs: tuple[Value], g: Value
) -> tuple[Value]:
    return (_where_inside(b, inputs[0], -3, 3, b.Mul(g, 1 / 6), b.like(0, g)),)


def _line(b: Builder, x: Value) -> Value:
    """x/6 + 1/2, kept within 0 and 1."""
    return b.Clip(b.Add(b.Mul(x, 1 / 6), 0.5), 0.0, 1.0)


@op("nn.hardsigmoid", vjp=_hardsigmoid_vjp)
def hardsigmoid(b: Builder, x: Value, name: str | None = None) -> Value:
    """0 up to -3, 1 from 3 on, and a line between; flat at both corners."""
    return _line(b, x)


def _hardswish_vjp(
    b: Builder, inputs: tuple[Value], outputs: tuple[Value], g: Value
) -> tuple[Value]:
    x = inputs[0]
    above = b.Mul(g, b.Cast(b.Greater(x, b.like(0, x)), to=dtype_of(g)))
    slope = b.Add(b.Mul(x, 1 / 3), 0.5)
    return (_where_inside(b, x, -3, 3, b.Mul(g, slope), above),)


@op("nn.hardswish", vjp=_hardswish_vjp)
def hardswish(b: Builder, x: Value, name: str | None = None) -> Value:
    """x times hardsigmoid(x)."""
    return b.Mul(x, _line(b, x))


def _clip_vjp(b: Builder, inputs: tuple[Value], outputs: tuple[Value], g: Value) -> tuple[Value]:
    # flat on the ends too, where a clip passes the gradient
    x, y = inputs[0], outputs[0]
    node = y.producer()
    assert node is not None, "a bounded value is the output of Clip"
    low, high = node.inputs[1:]
    is_inside = b.And(b.Greater(x, low), b.Less(x, high))
    return (b.Mul(g, b.Cast(is_inside, to=dtype_of(g))),)


@op("nn.hardtanh", vjp=_clip_vjp)
def hardtanh(
    b: Builder, x: Value, min_val: float = -1.0, max_val: float = 1.0, name: str | None = None
) -> Value:
    """x limited to [min_val, max_val]."""
    return b.Clip(x, b.like(min_val, x), b.like(max_val, x))


@op("nn.relu6", vjp=_clip_vjp)
def relu6(b: Builder, x: Value, name: str | None = None) -> Value:
    """x limited to [0, 6]."""
    return b.Clip(x, b.like(0, x), b.like(6, x))


@op("nn.swish")
def swish(b: Builder, x: Value, beta: float = 1.0, name: str | None = None) -> Value:
    """x times sigmoid(beta x)."""
    return b.Mul(x, b.Sigmoid(x if beta == 1.0 else b.Mul(x, float(beta))))


@op("nn.softmax_grad")
def softmax_grad(
    b: Builder, y: Value, dy: Value, axis: int | None = None, name: str | None = None
) -> Value:
    """The gradient of a softmax `y` along `axis`, the last unless said: y (dy - sum(dy y))."""
    along = -1 if axis is None else axis_of(axis, rank_of(y))
    return b.Mul(y, b.Sub(dy, b.ReduceSum(b.Mul(dy, y), [along], keepdims=1)))
