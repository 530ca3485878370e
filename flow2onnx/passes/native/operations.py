"""Which nodes a fused program can carry out, and how: one row for each operator.

The numbers are those of `runtime/native/src/tile.h`.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from flow2onnx.analysis.in_place import VIEWS
from flow2onnx.graph.types import dims, dtype_of, is_static

__all__ = [
    "ADD",
    "COPY",
    "DIV",
    "ERF",
    "EXP",
    "GELU_SLOPE",
    "MAX",
    "MIN",
    "MUL",
    "PARTS",
    "Block",
    "Part",
    "block_of",
    "number",
    "part_of",
]

LONGEST_ROW = 1 << 16
(
    COPY, NEG, ABS, SQRT, RECIPROCAL, EXP, ERF, SIGMOID, RELU, NOT, TRUTH, SIGN,
    GELU_SLOPE,
    ADD, SUB, MUL, DIV, GREATER, GREATER_EQUAL, LESS, LESS_EQUAL, EQUAL, AND, OR, MAX, MIN,
    WHERE, ROW_SUM, ROW_MEAN,
) = range(29)  # fmt: skip

_AFFINE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Block:
    """How a smaller value stands beside `total` elements: element i is (i // inner) % middle."""

    middle: int
    inner: int


@dataclass(frozen=True)
class Part:
    """A node as part of a program over `total` elements.

    kind: "each" computes every element; "alias" only renames; "affine" is a normalisation that
    scales and shifts, "clamp" a HardSigmoid, "gelu" a Gelu; "row" reduces the last axis, of length
    `row`; "sum" reduces all but `block`. `mean`: whether a reduction divides by the number of
    elements; `squares`: whether it adds up squares.
    """

    kind: Literal["each", "alias", "affine", "clamp", "gelu", "row", "sum"]
    total: int
    operation: int = COPY
    row: int = 0
    block: Block | None = None
    mean: bool = False
    squares: bool = False


# operator: (operation, number of inputs)
PARTS: Mapping[str, tuple[int, int]] = {
    "Identity": (COPY, 1), "Reshape": (COPY, 1), "Squeeze": (COPY, 1), "Unsqueeze": (COPY, 1),
    "Flatten": (COPY, 1),
    "Neg": (NEG, 1), "Abs": (ABS, 1), "Sqrt": (SQRT, 1), "Reciprocal": (RECIPROCAL, 1),
    "Exp": (EXP, 1), "Erf": (ERF, 1), "Sigmoid": (SIGMOID, 1), "Relu": (RELU, 1), "Not": (NOT, 1),
    "Sign": (SIGN, 1), "Cast": (COPY, 1),
    "Add": (ADD, 2), "Sub": (SUB, 2), "Mul": (MUL, 2), "Div": (DIV, 2), "Greater": (GREATER, 2),
    "GreaterOrEqual": (GREATER_EQUAL, 2), "Less": (LESS, 2), "LessOrEqual": (LESS_EQUAL, 2),
    "Equal": (EQUAL, 2), "And": (AND, 2), "Or": (OR, 2), "Max": (MAX, 2), "Min": (MIN, 2),
    "Where": (WHERE, 3),
}  # fmt: skip
_ELEMENTS = ("float32", "bool")


def part_of(node: ir.Node) -> Part | None:
    """What a node is in a program; None if it cannot be part of one."""
    find = _FINDERS.get(node.op_type, _each if node.op_type in PARTS else None)
    is_plain = node.domain == "" and len([v for v in node.outputs if v.name]) == 1
    if find is None or not is_plain or not all(_is_fixed(v) for v in (*node.inputs, *node.outputs)):
        return None
    return find(node)


def block_of(small: tuple[int, ...], large: tuple[int, ...]) -> Block | None:
    """How a value of shape `small` is spread over one of shape `large`; None if not in one block.

    One block: the axes on which it varies stand side by side, as in [C, 1, 1] or [rows, 1].
    """
    padded = (1,) * (len(large) - len(small)) + small
    kept = [i for i, (s, n) in enumerate(zip(padded, large, strict=True)) if s != 1 or n == 1]
    varying = [i for i in kept if large[i] != 1]
    if not varying:
        return Block(1, math.prod(large))
    first, last = varying[0], varying[-1]
    if any(padded[i] != large[i] for i in range(first, last + 1)):
        return None
    return Block(math.prod(large[first : last + 1]), math.prod(large[last + 1 :]))


def _is_fixed(value: ir.Value | None) -> bool:
    return value is None or (
        isinstance(value.type, ir.TensorType) and value.shape is not None and is_static(value)
    )


def _each(node: ir.Node) -> Part | None:
    operation, arity = PARTS[node.op_type]
    output = node.outputs[0]
    if dtype_of(output).name not in _ELEMENTS:
        return None
    total = math.prod(dims(output))
    operands = [v for v in node.inputs[:arity] if v is not None]
    if len(operands) < arity or total < 1:
        return None
    if node.op_type in VIEWS:
        is_same = dtype_of(operands[0]) == dtype_of(output)
        return Part("alias", total) if is_same else None
    if len(node.inputs) > arity:
        return None
    if any(not _fits(v, output) for v in operands) or _scales_a_product(node):
        return None
    if node.op_type == "Cast" and dtype_of(output).name == "bool":
        operation = TRUTH
    return Part("each", total, operation)


def _fits(value: ir.Value, output: ir.Value) -> bool:
    return dtype_of(value).name in _ELEMENTS and block_of(dims(value), dims(output)) is not None


def _scales_a_product(node: ir.Node) -> bool:
    """Whether a node multiplies what goes into or comes out of a product with a number.

    The runtime makes that a factor of the product, which costs nothing.
    """
    if node.op_type not in ("Mul", "Div") or not any(
        v is not None and v.const_value is not None and v.const_value.size == 1 for v in node.inputs
    ):
        return False
    makers = [v.producer() for v in node.inputs if v is not None]
    readers = [use.node for use in node.outputs[0].uses()]
    return any(n is not None and n.op_type == "MatMul" for n in makers) or any(
        n.op_type == "MatMul" for n in readers
    )


def _affine(node: ir.Node) -> Part | None:
    """An inference BatchNormalization whose statistics are those of no change at all."""
    x, *others = node.inputs
    y = node.outputs[0]
    if len(others) != 4 or number(node, "training_mode", 0):
        return None
    mean, variance = (None if v is None else v.const_value for v in others[2:])
    is_float = all(v is not None and dtype_of(v).name == "float32" for v in node.inputs)
    if mean is None or variance is None or not is_float or x is None or len(dims(x)) < 2:
        return None
    epsilon = number(node, "epsilon", 1e-5)
    if np.any(mean.numpy()) or np.any(abs(variance.numpy() + epsilon - 1) > _AFFINE_TOLERANCE):
        return None
    return Part("affine", math.prod(dims(y)), block=_channels(dims(x)))


def number(node: ir.Node, name: str, default: float) -> float:
    """A number among the attributes of a node."""
    found = node.attributes.get(name)
    return default if found is None else float(found.value)


def _channels(shape: tuple[int, ...]) -> Block:
    return Block(shape[1], math.prod(shape[2:]))


def _reduction(node: ir.Node) -> Part | None:
    x, y = node.inputs[0], node.outputs[0]
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if x is None or dtype_of(x).name != "float32" or (axes and axes.const_value is None):
        return None
    shape = dims(x)
    chosen = axes.const_value.numpy() if axes and axes.const_value else ()
    keeps_all = not len(chosen) and number(node, "noop_with_empty_axes", 0)
    if keeps_all or not shape:
        return None
    gone = sorted({int(a) % len(shape) for a in chosen}) or list(range(len(shape)))
    total, mean = math.prod(shape), node.op_type == "ReduceMean"
    squares = node.op_type == "ReduceSumSquare"
    if not gone or total < 1 or total == math.prod(dims(y)):
        return None
    last = shape[-1]
    keeps_rank = number(node, "keepdims", 1) == 1
    if keeps_rank and gone == [len(shape) - 1] and 1 < last <= LONGEST_ROW:
        if not _read_by_rows(y, total, last):
            return None
        return Part(
            "row", total, ROW_MEAN if mean else ROW_SUM, row=last, mean=mean, squares=squares
        )
    kept = tuple(1 if i in gone else n for i, n in enumerate(shape))
    block = block_of(kept, shape)
    return None if block is None else Part("sum", total, block=block, mean=mean, squares=squares)


def _read_by_rows(sums: ir.Value, total: int, row: int) -> bool:
    """Whether all who spread sums of rows over `total` elements spread each over its row."""
    outputs = [use.node.outputs[0] for use in sums.uses()]
    return all(
        block_of(dims(sums), dims(v)) == Block(total // row, row)
        for v in outputs
        if _is_fixed(v) and math.prod(dims(v)) == total
    )


def _clamp(node: ir.Node) -> Part | None:
    x, y = node.inputs[0], node.outputs[0]
    if x is None or dtype_of(x).name != "float32":
        return None
    return Part("clamp", math.prod(dims(y))) if math.prod(dims(y)) else None


def _gelu(node: ir.Node) -> Part | None:
    x, y = node.inputs[0], node.outputs[0]
    how = node.attributes.get("approximate")
    is_exact = how is None or how.value == "none"
    if x is None or dtype_of(x).name != "float32" or not is_exact or not math.prod(dims(y)):
        return None
    return Part("gelu", math.prod(dims(y)))


_FINDERS: Mapping[str, Callable[[ir.Node], Part | None]] = {
    "BatchNormalization": _affine,
    "Gelu": _gelu,
    "HardSigmoid": _clamp,
    "ReduceSum": _reduction,
    "ReduceMean": _reduction,
    "ReduceSumSquare": _reduction,
}
