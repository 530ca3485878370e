"""Two operands: arithmetic, comparison, logic. No promotion: both sides have one element type.

A Python number takes the element type of the blob beside it.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from flow2onnx.dtypes import bool_, int8
from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, limits_of, sizes_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.ops.arguments import Operand, beside
from flow2onnx.trace.op import Operator, op


def operands(b: Builder, x: Any, y: Any) -> tuple[Value, Value]:
    """Both operands as values of one element type; one of them may be a number or an array."""
    if isinstance(x, Value):
        return x, beside(b, y, x)
    if isinstance(y, Value):
        return beside(b, x, y), y
    raise ArgumentError(f"one operand has to be a blob, got {x!r} and {y!r}")


def pair(b: Builder, x: Any, y: Any) -> tuple[Value, Value]:
    """Both operands, whose sizes are equal from the last axis on, or 1, where they are known."""
    x, y = operands(b, x, y)
    if dtype_of(x) != dtype_of(y):  # which is said first
        return x, y
    for m, n in zip(reversed(sizes_of(x)), reversed(sizes_of(y)), strict=False):
        if isinstance(m, int) and isinstance(n, int) and m != n and 1 not in (m, n):
            raise ShapeError(
                f"{limits_of(x)} and {limits_of(y)} do not fit",
                hint="sizes are equal from the last axis on, or 1: x[:, None] puts an axis of 1 in",
            )
    return x, y


@op("math.add")
def add(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
    """x + y, broadcast."""
    return b.Add(*pair(b, x, y))


@op("math.add_n")
def add_n(b: Builder, inputs: list[Value], name: str | None = None) -> Value:
    """The sum of values of one shape."""
    if not inputs:
        raise ArgumentError("add_n needs at least one blob in inputs")
    total = inputs[0]
    for value in inputs[1:]:
        if limits_of(value) != limits_of(total):
            shapes = f"{limits_of(total)} and {limits_of(value)}"
            raise ShapeError(f"add_n takes blobs of one shape, got {shapes}")
        total = b.Add(total, value)
    return total


@op("math.subtract")
def subtract(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
    """x - y, broadcast."""
    return b.Sub(*pair(b, x, y))


@op("math.multiply")
def multiply(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
    """x * y, broadcast."""
    return b.Mul(*pair(b, x, y))


@op("math.divide")
def divide(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
    """x / y, broadcast. As in OneFlow, number/x is 0 where x is 0, and x/0 by a number is x * 0."""
    if isinstance(x, Value) and isinstance(y, int | float | np.number):
        return b.Mul(x, b.like(1.0 / y if y else 0.0, x))
    if isinstance(y, Value) and isinstance(x, int | float | np.number):
        return b.Mul(reciprocal_no_nan.lower(b, y), b.like(x, y))
    return b.Div(*pair(b, x, y))


@op("math.reciprocal_no_nan")
def reciprocal_no_nan(b: Builder, x: Value, name: str | None = None) -> Value:
    """1/x, 0 where x is 0."""
    is_zero = b.Equal(x, 0)
    return b.Where(is_zero, b.like(0, x), b.Div(b.like(1, x), b.Where(is_zero, b.like(1, x), x)))


@op("math.mod")
def mod(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
    """The remainder with the sign of the divisor; of real numbers exact, by way of C's fmod."""
    if not (isinstance(x, Value) and isinstance(y, Value)):
        raise UnsupportedError("mod takes two blobs", hint="make the number a flow.constant")
    if not dtype_of(x).is_floating_point:
        return b.Mod(x, y)
    rest = b.Mod(x, y, fmod=1)
    zero = b.like(0, x)
    is_other = b.Xor(b.Less(rest, zero), b.Less(y, zero))
    is_left = b.Not(b.Equal(rest, zero))
    return b.Where(b.And(is_left, is_other), b.Add(rest, y), rest)


@op("math.squared_difference")
def squared_difference(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
    """(x - y) squared, broadcast."""
    difference = b.Sub(*pair(b, x, y))
    return b.Mul(difference, difference)


def _split_gradient(
    b: Builder, is_first: Value, operands: tuple[Value, Value], g: Value
) -> tuple[Value, Value]:
    """The gradient of the first operand where it `is_first`, and of the second elsewhere."""
    x, y = operands
    zero = b.like(0, g)
    return (
        unbroadcast(b, b.Where(is_first, g, zero), x),
        unbroadcast(b, b.Where(is_first, zero, g), y),
    )


# On a tie OneFlow gives the whole gradient to y.
@op("math.maximum", vjp=lambda b, x, y, g: _split_gradient(b, b.Greater(*x), x, g))
def maximum(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """The larger of each pair."""
    return b.Max(x, y)


@op("math.minimum", vjp=lambda b, x, y, g: _split_gradient(b, b.Less(*x), x, g))
def minimum(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """The smaller of each pair."""
    return b.Min(x, y)


@op("math.pow")
def pow_(b: Builder, x: Value, y: Operand, name: str | None = None) -> Value:
    """x to the power y; y may be a number."""
    return b.Pow(x, beside(b, y, x))


def _truth(b: Builder, value: Value) -> Value:
    """A condition as OneFlow shows it: int8, 0 or 1."""
    return b.Cast(value, to=int8)


def condition(b: Builder, value: Value) -> Value:
    """An int8 truth (or any number) as ONNX asks for conditions."""
    return b.Cast(value, to=bool_)


def _comparison(
    name: str, doc: str, compare: Callable[[Builder, Value, Value], Value]
) -> Operator[Value]:
    def lower(b: Builder, x: Operand, y: Operand, name: str | None = None) -> Value:
        return _truth(b, compare(b, *pair(b, x, y)))

    lower.__name__, lower.__doc__ = name, doc
    return op(f"math.{name}")(lower)


equal = _comparison("equal", "1 where x == y.", lambda b, x, y: b.Equal(x, y))
not_equal = _comparison("not_equal", "1 where x != y.", lambda b, x, y: b.Not(b.Equal(x, y)))
less = _comparison("less", "1 where x < y.", lambda b, x, y: b.Less(x, y))
less_equal = _comparison("less_equal", "1 where x <= y.", lambda b, x, y: b.LessOrEqual(x, y))
greater = _comparison("greater", "1 where x > y.", lambda b, x, y: b.Greater(x, y))
greater_equal = _comparison(
    "greater_equal", "1 where x >= y.", lambda b, x, y: b.GreaterOrEqual(x, y)
)


@op("math.logical_and")
def logical_and(b: Builder, x: Value, y: Value, name: str | None = None) -> Value:
    """1 where both are not 0."""
    return _truth(b, b.And(condition(b, x), condition(b, y)))
