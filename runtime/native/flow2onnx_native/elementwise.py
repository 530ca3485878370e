"""Which nodes a fused program can compute, and how: one row for each operator."""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx_ir as ir

from flow2onnx_native.abi import LONGEST_ROW, Operation
from flow2onnx_native.graph import (
    ON_CPU,
    ON_CUDA,
    VIEWS,
    Reals,
    dims,
    is_static,
    number,
    readers,
    size,
)

__all__ = [
    "OPERATIONS",
    "REDUCTIONS",
    "Broadcast",
    "Fusible",
    "broadcast_of",
    "fusible",
    "fusible_on_cuda",
]

REDUCTIONS = frozenset({"ReduceMean", "ReduceSum", "ReduceSumSquare"})
_AFFINE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Broadcast:
    """How a smaller value is spread over more elements: index (i // inner) % middle at i."""

    middle: int
    inner: int


@dataclass(frozen=True)
class Fusible:
    """A node as part of a program over `total` elements.

    kind: "each" computes every element; "alias" only renames; "affine" is a normalisation that
    scales and shifts, "clamp" a HardSigmoid, "gelu" a Gelu; "row" reduces the last axis, of length
    `row`, "norm" is a LayerNormalization over it; "sum" reduces all but `broadcast`. A reduction
    with `mean` divides by the number of elements; one with `squares` adds up squares.
    """

    kind: Literal["each", "alias", "affine", "clamp", "gelu", "row", "norm", "sum"]
    total: int
    operation: int = Operation.COPY
    row: int = 0
    broadcast: Broadcast | None = None
    mean: bool = False
    squares: bool = False


_O = Operation
# operator: (operation, number of inputs)
OPERATIONS: Mapping[str, tuple[Operation, int]] = {
    "Identity": (_O.COPY, 1), "Reshape": (_O.COPY, 1), "Squeeze": (_O.COPY, 1),
    "Unsqueeze": (_O.COPY, 1), "Flatten": (_O.COPY, 1), "Neg": (_O.NEG, 1), "Abs": (_O.ABS, 1),
    "Sqrt": (_O.SQRT, 1), "Reciprocal": (_O.RECIPROCAL, 1), "Exp": (_O.EXP, 1),
    "Erf": (_O.ERF, 1), "Sigmoid": (_O.SIGMOID, 1), "Relu": (_O.RELU, 1), "Not": (_O.NOT, 1),
    "Sign": (_O.SIGN, 1), "Cast": (_O.COPY, 1), "Add": (_O.ADD, 2), "Sub": (_O.SUB, 2),
    "Mul": (_O.MUL, 2), "Div": (_O.DIV, 2), "Greater": (_O.GREATER, 2),
    "GreaterOrEqual": (_O.GREATER_EQUAL, 2), "Less": (_O.LESS, 2),
    "LessOrEqual": (_O.LESS_EQUAL, 2), "Equal": (_O.EQUAL, 2), "And": (_O.AND, 2),
    "Or": (_O.OR, 2), "Max": (_O.MAX, 2), "Min": (_O.MIN, 2), "Where": (_O.WHERE, 3),
}  # fmt: skip


def fusible(node: ir.Node, reals: Reals = ON_CPU) -> Fusible | None:
    """A node as part of a program; None if it cannot be one."""
    classify = _CLASSIFIERS.get(node.op_type, _each if node.op_type in OPERATIONS else None)
    is_plain = node.domain == "" and len([v for v in node.outputs if v.name]) == 1
    if classify is None or not is_plain or not _is_all_known(node):
        return None
    return classify(node, reals)


def fusible_on_cuda(node: ir.Node) -> Fusible | None:
    """The same where programs read and write halves, and stand for layer normalisations too."""
    if node.domain == "" and node.op_type == "LayerNormalization":
        return _norm(node, ON_CUDA) if _is_all_known(node) else None
    return fusible(node, ON_CUDA)


@functools.lru_cache(maxsize=4096)  # layers repeat their shapes
def broadcast_of(small: tuple[int, ...], large: tuple[int, ...]) -> Broadcast | None:
    """How a value of shape `small` is spread over one of shape `large`; None if not in one block.

    One block: the axes on which it varies stand side by side, as in [C, 1, 1] or [rows, 1].
    """
    padded = (1,) * (len(large) - len(small)) + small
    kept = [i for i, (s, n) in enumerate(zip(padded, large, strict=True)) if s != 1 or n == 1]
    varying = [i for i in kept if large[i] != 1]
    if not varying:
        return Broadcast(1, math.prod(large))
    first, last = varying[0], varying[-1]
    if any(padded[i] != large[i] for i in range(first, last + 1)):
        return None
    return Broadcast(math.prod(large[first : last + 1]), math.prod(large[last + 1 :]))


def _is_all_known(node: ir.Node) -> bool:
    return all(_is_known(v) for v in (*node.inputs, *node.outputs))


def _is_known(value: ir.Value | None) -> bool:
    return value is None or (isinstance(value.type, ir.TensorType) and is_static(value))


def _each(node: ir.Node, reals: Reals) -> Fusible | None:
    operation, arity = OPERATIONS[node.op_type]
    output, elements = node.outputs[0], (*reals, ir.DataType.BOOL)
    if output.dtype not in elements:
        return None
    total = size(output)
    operands = [v for v in node.inputs[:arity] if v is not None]
    if len(operands) < arity or total < 1:
        return None
    if node.op_type in VIEWS:
        return Fusible("alias", total) if operands[0].dtype == output.dtype else None
    if len(node.inputs) > arity:
        return None
    if any(not _fits(v, output, elements) for v in operands) or _scales_product(node):
        return None
    if node.op_type == "Cast" and output.dtype == ir.DataType.BOOL:
        operation = Operation.TRUTH
    return Fusible("each", total, operation)


def _fits(value: ir.Value, output: ir.Value, elements: Reals) -> bool:
    return value.dtype in elements and broadcast_of(dims(value), dims(output)) is not None


def _scales_product(node: ir.Node) -> bool:
    """True if a node multiplies what goes into or comes out of a product with a number.

    The runtime makes that a factor of the product, which costs nothing.
    """
    if node.op_type not in ("Mul", "Div") or not any(
        v is not None and v.const_value is not None and v.const_value.size == 1 for v in node.inputs
    ):
        return False
    makers = [v.producer() for v in node.inputs if v is not None]
    return any(n is not None and n.op_type == "MatMul" for n in (*makers, *readers(node)))


def _affine(node: ir.Node, reals: Reals) -> Fusible | None:
    """An inference BatchNormalization whose statistics are those of no change at all."""
    x, *others = node.inputs
    y = node.outputs[0]
    if len(others) != 4 or number(node, "training_mode", 0):
        return None
    mean, variance = (None if v is None else v.const_value for v in others[2:])
    has_floats = all(v is not None and v.dtype in reals for v in node.inputs)
    if mean is None or variance is None or not has_floats or x is None or len(dims(x)) < 2:
        return None
    epsilon = number(node, "epsilon", 1e-5)
    if np.any(mean.numpy()) or np.any(abs(variance.numpy() + epsilon - 1) > _AFFINE_TOLERANCE):
        return None
    shape = dims(x)
    return Fusible("affine", size(y), broadcast=Broadcast(shape[1], math.prod(shape[2:])))


def _reduction(node: ir.Node, reals: Reals) -> Fusible | None:
    x, y = node.inputs[0], node.outputs[0]
    if x is None or x.dtype not in reals:
        return None
    shape, total = dims(x), size(x)
    reduced = _reduced_axes(node, len(shape))
    mean, squares = node.op_type == "ReduceMean", node.op_type == "ReduceSumSquare"
    if not reduced or total < 1 or total == size(y):
        return None
    last = shape[-1]
    keeps_rank = number(node, "keepdims", 1) == 1
    if keeps_rank and reduced == [len(shape) - 1] and 1 < last <= LONGEST_ROW:
        if not _read_by_rows(y, total, last):
            return None
        operation = Operation.ROW_MEAN if mean else Operation.ROW_SUM
        return Fusible("row", total, operation, row=last, mean=mean, squares=squares)
    kept = tuple(1 if i in reduced else n for i, n in enumerate(shape))
    spread = broadcast_of(kept, shape)
    if spread is None:
        return None
    return Fusible("sum", total, broadcast=spread, mean=mean, squares=squares)


def _reduced_axes(node: ir.Node, rank: int) -> list[int]:
    """The axes that a reduction does away with; none if they are not known."""
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    if axes is not None and axes.const_value is None:
        return []
    chosen = axes.const_value.numpy() if axes is not None and axes.const_value is not None else ()
    if not len(chosen):
        return [] if number(node, "noop_with_empty_axes", 0) else list(range(rank))
    return sorted({int(a) % rank for a in chosen}) if rank else []


def _read_by_rows(sums: ir.Value, total: int, row: int) -> bool:
    """True if all who spread sums of rows over `total` elements spread each over its row."""
    outputs = [use.node.outputs[0] for use in sums.uses()]
    return all(
        broadcast_of(dims(sums), dims(v)) == Broadcast(total // row, row)
        for v in outputs
        if _is_known(v) and size(v) == total
    )


def _norm(node: ir.Node, reals: Reals) -> Fusible | None:
    """A normalisation over the last axis."""
    x, *others = node.inputs
    if x is None or not all(v is None or v.dtype in reals for v in node.inputs):
        return None
    shape, total = dims(x), size(x)
    is_last = number(node, "axis", -1) in (-1, len(shape) - 1)
    if not is_last or not total or not 1 < shape[-1] <= LONGEST_ROW:
        return None
    if any(v is not None and dims(v) != shape[-1:] for v in others):
        return None
    of_rows = [v for v in node.outputs[1:] if v.name]
    if not all(v.dtype in reals and _read_by_rows(v, total, shape[-1]) for v in of_rows):
        return None
    return Fusible("norm", total, row=shape[-1])


def _clamp(node: ir.Node, reals: Reals) -> Fusible | None:
    x, y = node.inputs[0], node.outputs[0]
    return Fusible("clamp", size(y)) if x is not None and x.dtype in reals and size(y) else None


def _gelu(node: ir.Node, reals: Reals) -> Fusible | None:
    x, y = node.inputs[0], node.outputs[0]
    how = node.attributes.get("approximate")
    is_exact = how is None or how.value == "none"
    is_plain = x is not None and x.dtype in reals and is_exact and bool(size(y))
    return Fusible("gelu", size(y)) if is_plain else None


_CLASSIFIERS: Mapping[str, Callable[[ir.Node, Reals], Fusible | None]] = {
    "BatchNormalization": _affine,
    "Gelu": _gelu,
    "HardSigmoid": _clamp,
    **dict.fromkeys(REDUCTIONS, _reduction),
}
