"""Python's operators on blobs that are no operator of OneFlow's: ``//``, ``@``, ``&``, ``~``."""

from typing import Any

from flow2onnx.dtypes import bool_, int8
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.ops import array
from flow2onnx.ops.arguments import at_least_1d
from flow2onnx.ops.arithmetic import mod, operands, pair, pow_
from flow2onnx.trace.op import op
from flow2onnx.trace.registry import register_method


@op("blob.mod", is_public=False)
def remainder(b: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """The remainder of a division by a number too; see `flow.math.mod`."""
    return mod.lower(b, *pair(b, x, y))


@op("blob.floordiv", is_public=False)
def floordiv(b: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """The quotient rounded down, as Python's."""
    x, y = pair(b, x, y)
    if dtype_of(x).is_floating_point:
        return b.Floor(b.Div(x, y))
    return b.Div(b.Sub(x, b.Mod(x, y)), y)


@op("blob.pow", is_public=False)
def power(b: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """x to the power y; one of them may be a number."""
    return pow_.lower(b, *pair(b, x, y))


@op("blob.matmul", is_public=False)
def matrix_product(builder: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """The matrix product as numpy's: vectors and batches that broadcast too."""
    x, y = operands(builder, x, y)
    if not rank_of(x) or not rank_of(y):
        raise ArgumentError("a matrix product with a number", hint="write x * number")
    if rank_of(x) == rank_of(y) == 2:
        return array.matmul.lower(builder, x, y)
    return at_least_1d(builder, builder.MatMul(x, y))


def _logic(b: Builder, operator: str, x: Any, y: Any) -> Value:
    x, y = (_truth(b, v, operator) for v in pair(b, x, y))
    return b.Cast(b.emit(operator, (x, y), {})[0], to=int8)


def _truth(b: Builder, x: Value, operator: str) -> Value:
    if dtype_of(x) != int8:
        raise DTypeError(
            f"{operator.lower()} is of truths, which comparisons give as int8, got "
            f"{dtype_of(x).name}",
            hint="compare first: (x > 0) & (y > 0)",
        )
    return b.Cast(x, to=bool_)


@op("blob.and", is_public=False)
def both(b: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """1 where both truths are not 0."""
    return _logic(b, "And", x, y)


@op("blob.or", is_public=False)
def either(b: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """1 where one of two truths is not 0."""
    return _logic(b, "Or", x, y)


@op("blob.xor", is_public=False)
def one_of_two(b: Builder, x: Any, y: Any, name: str | None = None) -> Value:
    """1 where exactly one of two truths is not 0."""
    return _logic(b, "Xor", x, y)


@op("blob.not", is_public=False)
def opposite(b: Builder, x: Value, name: str | None = None) -> Value:
    """1 where a truth is 0."""
    return b.Cast(b.Not(_truth(b, x, "Not")), to=int8)


for _name, _operator in (
    ("mod", remainder),
    ("floordiv", floordiv),
    ("pow", power),
    ("matmul", matrix_product),
    ("and", both),
    ("or", either),
    ("xor", one_of_two),
    ("not", opposite),
):
    register_method(_name, _operator)
