"""One operand, elementwise."""

import math
from collections.abc import Callable
from typing import Any

from flow2onnx.dtypes import float32, float64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of
from flow2onnx.ops.arguments import real
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import op


def _unary(op_type: str, doc: str, *names: str) -> Callable[..., Any]:
    """Publish an operator that is one ONNX node."""

    def lower(b: Builder, x: Value, name: str | None = None) -> Value:
        return b.emit(op_type, (real(x),))[0]

    lower.__name__, lower.__doc__ = names[0].rpartition(".")[2], doc
    published: Callable[..., Any] = op(*names)(lower)
    return published


acos = _unary("Acos", "The inverse cosine.", "math.acos")
acosh = _unary("Acosh", "The inverse hyperbolic cosine.", "math.acosh")
asin = _unary("Asin", "The inverse sine.", "math.asin")
asinh = _unary("Asinh", "The inverse hyperbolic sine.", "math.asinh")
atan = _unary("Atan", "The inverse tangent.", "math.atan")
atanh = _unary("Atanh", "The inverse hyperbolic tangent.", "math.atanh")
ceil = _unary("Ceil", "The next whole number above.", "math.ceil")
cos = _unary("Cos", "The cosine of radians.", "math.cos")
cosh = _unary("Cosh", "The hyperbolic cosine.", "math.cosh")
exp = _unary("Exp", "e to the power x.", "math.exp")
floor = _unary("Floor", "The next whole number below.", "math.floor")
log = _unary("Log", "The natural logarithm.", "math.log")
reciprocal = _unary("Reciprocal", "1/x.", "math.reciprocal")
relu = _unary("Relu", "max(x, 0).", "math.relu", "nn.relu")
round_ = _unary("Round", "The nearest whole number, halves to even.", "math.round", "math.rint")
sigmoid = _unary("Sigmoid", "1/(1+e^-x).", "math.sigmoid", "math.sigmoid_v2")
sin = _unary("Sin", "The sine of radians.", "math.sin")
sinh = _unary("Sinh", "The hyperbolic sine.", "math.sinh")
sqrt = _unary("Sqrt", "The square root.", "math.sqrt")
tan = _unary("Tan", "The tangent of radians.", "math.tan")
tanh = _unary("Tanh", "The hyperbolic tangent.", "math.tanh", "math.tanh_v2")


# At 0 OneFlow passes the gradient on with its sign.
@op(
    "math.abs",
    vjp=lambda b, x, y, g: (b.Where(b.Less(x[0], b.like(0, g)), b.Neg(g), g),),
)
def abs_(b: Builder, x: Value, name: str | None = None) -> Value:
    """The absolute value."""
    return b.Abs(x)


@op("math.sign")
def sign(b: Builder, x: Value, name: str | None = None) -> Value:
    """-1, 0 or 1."""
    return b.Sign(x)


@op("math.negative")
def negative(b: Builder, x: Value, name: str | None = None) -> Value:
    """-x."""
    return b.Neg(x)


@op("math.square")
def square(b: Builder, x: Value, name: str | None = None) -> Value:
    """x times x."""
    return b.Mul(x, x)


@op("math.rsqrt")
def rsqrt(b: Builder, x: Value, name: str | None = None) -> Value:
    """1 over the square root."""
    return b.Reciprocal(b.Sqrt(real(x)))


def _bell(b: Builder, x: Value, g: Value, height: float) -> tuple[Value]:
    """The gradient `height` e^(-x²) g, whose exponential OneFlow takes in single precision."""
    exponent = b.Neg(b.Mul(x, x))
    if dtype_of(x) == float64:
        bell = b.Cast(b.Exp(b.Cast(exponent, to=float32)), to=float64)
    else:
        bell = b.Exp(exponent)
    return (b.Mul(g, b.Mul(bell, height)),)


@op("math.erf", vjp=lambda b, x, y, g: _bell(b, x[0], g, 2 / math.sqrt(math.pi)))
def erf(b: Builder, x: Value, name: str | None = None) -> Value:
    """The error function."""
    return b.Erf(real(x))


@op("math.erfc", vjp=lambda b, x, y, g: _bell(b, x[0], g, -2 / math.sqrt(math.pi)))
def erfc(b: Builder, x: Value, name: str | None = None) -> Value:
    """1 - erf(x)."""
    return b.Sub(1.0, b.Erf(real(x)))


@op("math.expm1")
def expm1(b: Builder, x: Value, name: str | None = None) -> Value:
    """e^x - 1, exact near 0 by 2 e^(x/2) sinh(x/2)."""
    half = b.Mul(real(x), 0.5)
    return b.Mul(b.Mul(b.Exp(half), b.Sinh(half)), 2.0)


@op("math.log1p", vjp=lambda b, x, y, g: (b.Div(g, b.Add(x[0], 1.0)),))
def log1p(b: Builder, x: Value, name: str | None = None) -> Value:
    """ln(1 + x), exact near 0: the logarithm of the rounded sum, scaled by what was rounded off."""
    total = b.Add(real(x), 1.0)
    taken = b.Sub(total, 1.0)
    near = b.Where(b.Equal(taken, b.like(0, x)), x, b.Mul(b.Log(total), b.Div(x, taken)))
    return b.Where(b.Greater(b.Abs(x), 1.0), b.Log(total), near)


@op("math.gelu")
def gelu(b: Builder, x: Value, name: str | None = None) -> Value:
    """x Φ(x) with the exact normal distribution function Φ."""
    # to predict, runtimes fuse these very steps by themselves; to train, the gradient reads them
    if dtype_of(x) == float32 and b.opset >= 20 and current_job("math.gelu").is_trainable:
        return b.emit("Gelu", (x,))[0]
    return b.Mul(b.Mul(real(x), b.Add(b.Erf(b.Div(x, math.sqrt(2))), 1.0)), 0.5)


@op("math.softplus")
def softplus(b: Builder, x: Value, name: str | None = None) -> Value:
    """ln(1 + e^x)."""
    return b.Softplus(real(x))


@op("math.clip_by_value", "clip_by_value", "clip_by_scalar", "clip", "clamp")
def clip_by_value(
    b: Builder,
    values: Value,
    min_value: float | None = None,
    max_value: float | None = None,
    name: str | None = None,
) -> Value:
    """Limit every element to [min_value, max_value]; either end may be open."""
    if min_value is None and max_value is None:
        raise ArgumentError("clip_by_value needs min_value, max_value or both")
    lo, hi = (None if v is None else b.like(v, values) for v in (min_value, max_value))
    return b.Clip(values, lo, hi)
