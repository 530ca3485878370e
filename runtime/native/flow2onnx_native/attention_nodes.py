"""The nodes `Attention` and `AttentionGradient`, and which sizes they take."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod

import onnx_ir as ir

from flow2onnx_native.abi import (
    DOMAIN,
    MOST_ATTENTION_EXTENT,
    MOST_HEAD_WIDTH,
    MOST_HEAD_WIDTH_ON_CPU,
    MOST_MATRIX_ELEMENTS,
    AttentionShape,
    Draw,
)
from flow2onnx_native.graph import ON_CPU, ON_CUDA, Reals, describe

__all__ = [
    "CPU_LIMITS",
    "CUDA_LIMITS",
    "AttentionLimits",
    "MaskKind",
    "attention_attributes",
    "attention_node",
    "gradient_node",
    "is_within",
    "mask_strides",
]


class MaskKind(IntEnum):
    """How a mask hides keys: not at all, by numbers that are added, or by truths."""

    NONE, ADDED, CHOSEN = range(3)


@dataclass(frozen=True)
class AttentionLimits:
    """The attention that a library computes: types of operands, and sizes.

    Widths are those of heads, and multiples of a step; groups are the heads of all examples.
    """

    reals: Reals
    width_step: int
    most_width: int
    most_groups: int
    most_elements: int  # of an operand, rows of which are filled up to `row_step`
    row_step: int
    kept: int  # numbers of each query, for the gradient
    has_draws: bool


# groups are the second axis of a launch
CUDA_LIMITS = AttentionLimits(ON_CUDA, 8, MOST_HEAD_WIDTH, 65535, 1 << 60, 1, 1, has_draws=True)
CPU_LIMITS = AttentionLimits(
    ON_CPU, 1, MOST_HEAD_WIDTH_ON_CPU, 1 << 40, MOST_MATRIX_ELEMENTS, 16, 2, has_draws=False
)


def is_within(
    limits: AttentionLimits, pairs: Sequence[int], rows: Sequence[int], width: int
) -> bool:
    """True if an attention of `pairs` of examples and heads has sizes that a library takes.

    `rows` are those of queries and of keys, `width` their numbers.
    """
    padded, groups = -(-width // limits.row_step) * limits.row_step, prod(pairs)
    return (
        0 < width <= limits.most_width
        and width % limits.width_step == 0
        and all(0 < extent <= MOST_ATTENTION_EXTENT for extent in (*pairs, *rows))
        and groups <= limits.most_groups
        and groups * max(rows) * padded <= limits.most_elements
    )


def mask_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """How far apart elements are along each axis of a mask; 0 along those of one element."""
    found, step = list[int](), 1
    for size in reversed(shape):
        found.append(0 if size == 1 else step)
        step *= size
    return tuple(reversed(found))


def attention_attributes(
    shape: AttentionShape, values: Sequence[float], draw: Draw | None = None
) -> list[ir.Attr]:
    """The attributes of both nodes: `values` are the scale, what masks have, dropout's factor."""
    return [
        ir.AttrInt64s("shape", [*shape]),
        ir.AttrInt64s("draw", [*(draw or Draw(0, 0, 0, 0))]),
        ir.AttrFloat32s("values", list(values)),
    ]


def attention_node(
    operands: Sequence[ir.Value],
    shape: AttentionShape,
    attributes: Sequence[ir.Attr],
    name: str,
    kept: int,
) -> ir.Node:
    """An attention of queries, keys, values and what masks them; it keeps `kept` numbers a query.

    Its first result is to be described by whoever gives it a place.
    """
    made = ir.Node(DOMAIN, "Attention", operands, attributes, num_outputs=2, name=name)
    rows = kept * shape.batch * shape.heads
    describe(made.outputs[1], f"{name}/sums", ir.DataType.FLOAT, (rows, shape.queries))
    return made


def gradient_node(slope: ir.Value, forward: ir.Node, shape: AttentionShape, name: str) -> ir.Node:
    """The gradients of an attention's queries, keys and values, by that of its result.

    They are to be described by whoever gives them their places.
    """
    queries, keys, values, *masks = forward.inputs
    result, sums = forward.outputs
    node = ir.Node(
        DOMAIN, "AttentionGradient", [slope, queries, keys, values, result, sums, *masks],
        list(forward.attributes.values()), num_outputs=4, name=f"{name}/gradient",
    )  # fmt: skip
    rows = shape.batch * shape.heads * shape.queries
    describe(node.outputs[3], f"{name}/partial_sums", ir.DataType.FLOAT, (rows,))
    return node
