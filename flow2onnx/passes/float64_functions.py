"""Functions of float64 numbers composed of such that runtimes have float64 kernels for."""

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from flow2onnx.dtypes import float32, float64
from flow2onnx.graph import Builder
from flow2onnx.passes.base import Pass, replace_node

__all__ = ["FLOAT64_FORMS", "ExpandFloat64Functions"]

Value = ir.Value
Form = Callable[..., Value]


class ExpandFloat64Functions(Pass):
    """Compose functions without a double precision kernel of such that have one.

    Given:   y: f64 = Tan(x)
    Result:  s = Sin(x);  c = Cos(x);  y = Div(s, c)
    Kept:    the same functions of other element types
    """

    def run(self, graph: ir.Graph) -> bool:
        """Put the nodes of each form where the one node was."""
        found = [n for n in graph if n.op_type in FLOAT64_FORMS and _is_float64(n)]
        for node in found:
            _expand(graph, node)
        return bool(found)


def _is_float64(node: ir.Node) -> bool:
    return node.outputs[0].dtype == ir.DataType.DOUBLE


def _expand(graph: ir.Graph, node: ir.Node) -> None:
    x = node.inputs[0]
    assert x is not None, f"{node.name} reads nothing"
    numbers = {a.name: a.value for a in node.attributes.values()}
    form = FLOAT64_FORMS[node.op_type]
    replace_node(graph, node, lambda b, placeholders: [form(b, placeholders[x], **numbers)])


# --- hyperbolic functions ---------------------------------------------------------------------


def _half_exponentials(b: Builder, x: Value) -> tuple[Value, Value]:
    """e^x / 2 and e^-x / 2, as products so that neither overflows before the sum does."""
    up, down = b.Exp(b.Mul(x, 0.5)), b.Exp(b.Mul(x, -0.5))
    return b.Mul(b.Mul(up, 0.5), up), b.Mul(b.Mul(down, 0.5), down)


def _cosh(b: Builder, x: Value) -> Value:
    return b.Add(*_half_exponentials(b, x))


def _sinh(b: Builder, x: Value) -> Value:
    # the difference loses digits near 0, where nine terms of the series are exact
    square = b.Mul(x, x)
    series = _polynomial(b, square, [1 / math.factorial(n) for n in range(17, 0, -2)])
    return b.Where(b.Less(b.Abs(x), 1.0), b.Mul(x, series), b.Sub(*_half_exponentials(b, x)))


def _log1p(b: Builder, t: Value) -> Value:
    """ln(1 + t): the logarithm of the rounded sum, corrected by what rounding took."""
    total = b.Add(t, 1.0)
    log, taken = b.Log(total), b.Sub(total, 1.0)
    small = b.Where(b.Equal(taken, 0.0), t, b.Mul(log, b.Div(t, taken)))
    return b.Where(b.Greater(b.Abs(t), 1.0), log, small)


def _atanh(b: Builder, x: Value) -> Value:
    size = b.Abs(x)
    half = b.Mul(_log1p(b, b.Div(b.Mul(size, 2.0), b.Sub(1.0, size))), 0.5)
    return b.Mul(b.Sign(x), half)


_LARGE = 2.0**28  # beyond, 1 is lost beside the square


def _asinh(b: Builder, x: Value) -> Value:
    size = b.Abs(x)
    square = b.Mul(size, size)
    near = _log1p(b, b.Add(size, b.Div(square, b.Add(b.Sqrt(b.Add(square, 1.0)), 1.0))))
    far = b.Add(b.Log(size), math.log(2))
    return b.Mul(b.Sign(x), b.Where(b.Greater(size, _LARGE), far, near))


def _acosh(b: Builder, x: Value) -> Value:
    above = b.Sub(x, 1.0)
    root = b.Mul(b.Sqrt(above), b.Sqrt(b.Add(above, 2.0)))
    far = b.Add(b.Log(x), math.log(2))
    return b.Where(b.Greater(x, _LARGE), far, _log1p(b, b.Add(above, root)))


# --- angles -----------------------------------------------------------------------------------


def _tan(b: Builder, x: Value) -> Value:
    return b.Div(b.Sin(x), b.Cos(x))


def _atan(b: Builder, x: Value) -> Value:
    # The single precision angle, and the rest by the tangent of a difference: it is so small that
    # two terms of its series are exact.
    x = b.Where(b.Greater(b.Abs(x), 1e30), b.Mul(b.Sign(x), 1e30), x)
    start = b.Cast(b.Atan(b.Cast(x, to=float32)), to=float64)
    sine, cosine = b.Sin(start), b.Cos(start)
    tangent = b.Div(b.Sub(b.Mul(x, cosine), sine), b.Add(cosine, b.Mul(x, sine)))
    cube = b.Mul(tangent, b.Mul(tangent, tangent))
    return b.Add(start, b.Sub(tangent, b.Div(cube, 3.0)))


def _asin(b: Builder, x: Value) -> Value:
    return _atan(b, b.Div(x, b.Sqrt(b.Mul(b.Sub(1.0, x), b.Add(x, 1.0)))))


def _acos(b: Builder, x: Value) -> Value:
    return b.Mul(_atan(b, b.Sqrt(b.Div(b.Sub(1.0, x), b.Add(x, 1.0)))), 2.0)


# --- the error function -----------------------------------------------------------------------

# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969):
# numerator and denominator, highest power first, up to 0.46875 in x² and up to 4 in x.
_NEAR = (
    [1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3],
    [1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
     2.84423683343917062e3],
)  # fmt: skip
_FAR = (
    [2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3],
    [1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3],
)  # fmt: skip


def _erf(b: Builder, x: Value) -> Value:
    # beyond 4 the second form is off by less than 1 has digits for
    size = b.Min(b.Abs(x), 6.0)
    square = b.Mul(size, size)
    near = b.Mul(x, _ratio(b, square, _NEAR))
    far = b.Sub(1.0, b.Mul(b.Exp(b.Neg(square)), _ratio(b, size, _FAR)))
    return b.Where(b.Less(size, 0.46875), near, b.Mul(b.Sign(x), far))


def _ratio(b: Builder, x: Value, terms: tuple[list[float], list[float]]) -> Value:
    return b.Div(*(_polynomial(b, x, t) for t in terms))


def _polynomial(b: Builder, x: Value, terms: Sequence[float]) -> Value:
    """The polynomial with these coefficients, highest power first."""
    total = b.Add(b.Mul(x, terms[0]), terms[1])
    for term in terms[2:]:
        total = b.Add(b.Mul(total, x), term)
    return total


# --- activations ------------------------------------------------------------------------------


def _softplus(b: Builder, x: Value) -> Value:
    return b.Add(b.Max(x, 0.0), _log1p(b, b.Exp(b.Neg(b.Abs(x)))))


def _leaky_relu(b: Builder, x: Value, alpha: float = 0.01) -> Value:
    return b.Where(b.Less(x, 0.0), b.Mul(x, alpha), x)


def _elu(b: Builder, x: Value, alpha: float = 1.0) -> Value:
    below = b.Mul(b.Sub(b.Exp(b.Min(x, 0.0)), 1.0), alpha)
    return b.Where(b.Less(x, 0.0), below, x)


FLOAT64_FORMS: dict[str, Form] = {
    "Acos": _acos,
    "Acosh": _acosh,
    "Asin": _asin,
    "Asinh": _asinh,
    "Atan": _atan,
    "Atanh": _atanh,
    "Cosh": _cosh,
    "Elu": _elu,
    "Erf": _erf,
    "LeakyRelu": _leaky_relu,
    "Sinh": _sinh,
    "Softplus": _softplus,
    "Tan": _tan,
}
