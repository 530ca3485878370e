"""Functions of mathematics beyond the elementary ones, and gradients as operators of their own."""

import math
from collections.abc import Callable, Sequence
from typing import NoReturn

from flow2onnx.dtypes import float64
from flow2onnx.errors import ArgumentError, GradientError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.lowering.scatters import zeros
from flow2onnx.ops.arguments import Operand, axis_of, real
from flow2onnx.ops.arithmetic import add, logical_and, maximum, minimum, multiply
from flow2onnx.ops.array import zeros_like
from flow2onnx.trace.op import op

Inputs = Sequence[Value]


def _alike(x: Value, y: Value) -> tuple[Value, Value]:
    """Two real blobs of one shape: these operators do not broadcast."""
    if dims(x) != dims(y):
        raise ShapeError(
            f"x is {dims(x)}, y is {dims(y)}: this operator does not broadcast",
            hint="flow.broadcast_like repeats the smaller one",
        )
    return real(x), real(y)


def _unless_zero(b: Builder, x: Value, value: Value) -> Value:
    """`value`, but 0 where `x` is 0."""
    zero = b.like(0, x)
    return b.Where(b.Equal(x, zero), zero, value)


def _xdivy_vjp(b: Builder, inputs: Inputs, outputs: Inputs, g: Value) -> tuple[Value, Value]:
    # OneFlow: the slope in x is 1/y also where x is 0
    x, y = inputs
    return xdivy.lower(b, g, y), b.Mul(g, xdivy.lower(b, b.Neg(x), b.Mul(y, y)))


@op("math.xdivy", vjp=_xdivy_vjp)
def xdivy(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """x / y, and 0 wherever x is 0."""
    x, y = _alike(x, y)
    return _unless_zero(b, x, b.Div(x, y))


def _xlogy_vjp(b: Builder, inputs: Inputs, outputs: Inputs, g: Value) -> tuple[Value, Value]:
    # OneFlow: the slope in x is ln y also where x is 0
    x, y = inputs
    return xlogy.lower(b, g, y), b.Mul(g, xdivy.lower(b, x, y))


@op("math.xlogy", vjp=_xlogy_vjp)
def xlogy(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """x ln y, and 0 wherever x is 0."""
    x, y = _alike(x, y)
    return _unless_zero(b, x, b.Mul(x, b.Log(y)))


def _flat_vjp(b: Builder, inputs: Inputs, outputs: Inputs, g: Value) -> list[Value]:
    # flat between its steps; the composed rule would divide 0 by y
    return [zeros(b, dims(x), dtype_of(x)) for x in inputs]


@op("math.floordiv", vjp=_flat_vjp)
def floordiv(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """The next whole number below x / y."""
    return b.Floor(b.Div(*_alike(x, y)))


def _atan2_vjp(b: Builder, inputs: Inputs, outputs: Inputs, g: Value) -> tuple[Value, Value]:
    x, y = inputs
    share = b.Div(g, b.Add(b.Mul(x, x), b.Mul(y, y)))
    return b.Mul(share, y), b.Neg(b.Mul(share, x))


@op("math.atan2", vjp=_atan2_vjp)
def atan2(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """The angle whose tangent is x / y, in the quadrant of the point (y, x)."""
    x, y = _alike(x, y)
    zero, turn = b.like(0, x), b.like(math.pi, x)
    half_plane = b.Where(b.Less(x, zero), b.Neg(turn), turn)
    slope = b.Div(x, b.Where(b.Equal(y, zero), b.like(1, y), y))
    angle = b.Add(b.Atan(slope), b.Where(b.Less(y, zero), half_plane, zero))
    return b.Where(b.Equal(y, zero), b.Mul(b.Sign(x), math.pi / 2), angle)


# The composed gradient is not a number where e^-x overflows.
@op("math.log_sigmoid", vjp=lambda b, x, y, g: (b.Mul(g, b.Sigmoid(b.Neg(x[0]))),))
def log_sigmoid(b: Builder, x: Value, name: str | None = None) -> Value:
    """-ln(1 + e^-x), which overflows for large negative x as OneFlow's does."""
    return b.Neg(b.Log(b.Add(b.Exp(b.Neg(real(x))), 1.0)))


@op("math.mish", "nn.mish")
def mish(b: Builder, x: Value, name: str | None = None) -> Value:
    """x tanh(ln(1 + e^x))."""
    return b.Mul(x, b.Tanh(b.Softplus(real(x))))


def no_gradient(name: str) -> Callable[..., NoReturn]:
    """The gradient of an operator that has none in OneFlow: GradientError names it."""

    def refuse(b: Builder, inputs: Inputs, outputs: Inputs, g: Value) -> NoReturn:
        raise GradientError(
            f"GradientFunctionNotFound: {name} has no gradient",
            hint="keep it off the way from the variables to the loss",
        )

    return refuse


# C. Lanczos, A precision approximation of the gamma function, SIAM J. Numer. Anal. 1 (1964):
# the nine terms for g = 7.
_LANCZOS = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313,
    -176.61502916214059, 12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6,
    1.5056327351493116e-7,
)  # fmt: skip


@op("math.lgamma", vjp=no_gradient("lgamma"))
def lgamma(b: Builder, x: Value, name: str | None = None) -> Value:
    """ln |Γ(x)|, infinite at 0 and at negative whole numbers."""
    wide = b.Cast(real(x), to=float64)
    is_low = b.Less(wide, 0.5)
    upper = _lgamma(b, b.Where(is_low, b.Sub(1.0, wide), wide))
    sine = b.Abs(b.Sin(b.Mul(b.Sub(wide, b.Floor(wide)), math.pi)))
    lower = b.Sub(math.log(math.pi), b.Add(b.Log(sine), upper))
    return b.Cast(b.Where(is_low, lower, upper), to=dtype_of(x))


def _lgamma(b: Builder, x: Value) -> Value:
    """ln Γ(x) for x of 1/2 or more."""
    below = b.Sub(x, 1.0)
    total = b.const(_LANCZOS[0], float64)
    for i, term in enumerate(_LANCZOS[1:], 1):
        total = b.Add(total, b.Div(b.const(term, float64), b.Add(below, float(i))))
    t = b.Add(below, 7.5)
    power = b.Sub(b.Mul(b.Add(below, 0.5), b.Log(t)), t)
    return b.Add(power, b.Add(b.Log(total), 0.5 * math.log(2 * math.pi)))


@op("math.polyval")
def polyval(b: Builder, coeffs: Sequence[Operand], x: Value, name: str | None = None) -> Value:
    """The polynomial in `x` with these coefficients, numbers or blobs, highest power first."""
    if not isinstance(coeffs, list | tuple):
        raise ArgumentError(f"coeffs is a list or tuple of coefficients, got {coeffs!r}")
    total = zeros_like.lower(b, x)
    for term in coeffs:
        total = add.lower(b, multiply.lower(b, total, x), term)
    return total


@op("math.l2_normalize")
def l2_normalize(
    b: Builder,
    input: Value,
    axis: int | None = None,
    epsilon: float = 1e-12,
    name: str | None = None,
) -> Value:
    """`input` over its length along `axis`, which counts as the root of `epsilon` at least."""
    if axis is None:
        raise ArgumentError("l2_normalize needs an axis", hint="pass axis=, such as -1")
    along = axis_of(axis, rank_of(input))
    square = b.ReduceSum(b.Mul(real(input), input), [along], keepdims=1)
    return b.Div(input, b.Sqrt(b.Max(square, b.like(epsilon, square))))


# --- gradients as operators -------------------------------------------------------------------


@op("math.gelu_grad", vjp=no_gradient("gelu_grad"))
def gelu_grad(b: Builder, x: Value, dy: Value, name: str | None = None) -> Value:
    """The gradient of `gelu` at `x` for one of `dy` behind it."""
    x, dy = _alike(x, dy)
    distribution = b.Mul(b.Add(b.Erf(b.Mul(x, 2.0**-0.5)), 1.0), 0.5)
    density = b.Mul(b.Exp(b.Mul(b.Mul(x, x), -0.5)), 1.0 / math.sqrt(2 * math.pi))
    return b.Mul(dy, b.Add(distribution, b.Mul(x, density)))


@op("math.sigmoid_grad", vjp=no_gradient("sigmoid_grad"))
def sigmoid_grad(b: Builder, y: Value, dy: Value, name: str | None = None) -> Value:
    """The gradient of `sigmoid` where it gave `y` for one of `dy` behind it."""
    y, dy = _alike(y, dy)
    return b.Mul(dy, b.Mul(y, b.Sub(1.0, y)))


@op("math.tanh_grad", vjp=no_gradient("tanh_grad"))
def tanh_grad(b: Builder, y: Value, dy: Value, name: str | None = None) -> Value:
    """The gradient of `tanh` where it gave `y` for one of `dy` behind it."""
    y, dy = _alike(y, dy)
    return b.Mul(dy, b.Sub(1.0, b.Mul(y, y)))


@op("math.naive_logical_and")
def naive_logical_and(b: Builder, lhs: Value, rhs: Value, name: str | None = None) -> Value:
    """1 where both are not 0: an early name of `logical_and`."""
    return logical_and.lower(b, lhs, rhs)


@op("experimental.broadcast_maximum")
def broadcast_maximum(builder: Builder, a: Value, b: Value, name: str | None = None) -> Value:
    """The larger of each pair: an early name of `math.maximum`."""
    return maximum.lower(builder, a, b)


@op("experimental.broadcast_minimum")
def broadcast_minimum(builder: Builder, a: Value, b: Value, name: str | None = None) -> Value:
    """The smaller of each pair: an early name of `math.minimum`."""
    return minimum.lower(builder, a, b)
