"""Forms of operators along an axis that processes have split, such as the classes of a softmax.

None of them gathers the axis: what processes pass is a number for each row, a maximum or a sum.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.transfers import Transfer
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.passes.row_shares import Shares

__all__ = ["Move", "has_split_form", "index_numbers", "split_form"]

# transfer, value, the node that it stands before -> the value after it
Move = Callable[[Transfer, ir.Value, ir.Node | None], ir.Value]
_SOFT = ("LogSoftmax", "Softmax")
_PICKING = ("GatherElements", "ScatterElements")


def has_split_form(node: ir.Node, given: Shares) -> bool:
    """True for a node along an axis that its first operand is split on, if it has another form."""
    x, share = node.inputs[0], given[0]
    if x is None or share is None or share.kind != "rows":
        return False
    default = -1 if node.op_type in _SOFT else 0
    if attribute(node, "axis", default) % rank_of(x) != share.axis:
        return False
    if node.op_type in _SOFT:
        return True
    index = node.inputs[1] if node.op_type in _PICKING else None
    is_one = index is not None and dims(index)[share.axis] == 1
    return is_one and attribute(node, "reduction", "none") == "none"


def index_numbers(b: Builder, node: ir.Node, axis: int) -> ir.Value | None:
    """The numbers along the axis that an index names, in the rank of its operand."""
    x, index = node.inputs[0], node.inputs[1] if node.op_type in _PICKING else None
    if x is None or index is None:
        return None
    shape = [1] * rank_of(x)
    shape[axis] = dims(x)[axis]
    return b.const(np.arange(shape[axis], dtype=dtype_of(index).numpy).reshape(shape))


def split_form(
    b: Builder, node: ir.Node, axis: int, operands: Sequence[ir.Value], move: Move
) -> ir.Value:
    """What stands for a node along a split axis; shapes are those of the whole.

    `operands` are the index, which all have, and the numbers of a process's own part of the axis.
    """
    x = node.inputs[0]
    assert x is not None, f"{node.op_type} has an operand"
    if node.op_type in _SOFT:
        return _softmax(b, node, x, axis, move)
    is_there = b.Equal(*operands)
    if node.op_type == "ScatterElements":
        replaced: ir.Value = b.Where(is_there, node.inputs[2], x)
        return replaced
    picked: ir.Value = b.Where(is_there, x, b.const(0, dtype_of(x)))
    total: ir.Value = b.ReduceSum(picked, [axis], keepdims=1)
    return total


def _softmax(b: Builder, node: ir.Node, x: ir.Value, axis: int, move: Move) -> ir.Value:
    """x - m - ln sum e^(x - m), of which processes pass m, the largest of a row, and the sum."""
    own = b.ReduceMax(x, [axis], keepdims=1)
    shifted = b.Sub(x, move(Transfer("all_max", dims(own)), own, None))
    powers = b.Exp(shifted)
    total = b.ReduceSum(powers, [axis], keepdims=1)
    whole = move(Transfer("all_reduce", dims(total)), total, None)
    if node.op_type == "Softmax":
        divided: ir.Value = b.Div(powers, whole)
        return divided
    logarithm: ir.Value = b.Sub(shifted, b.Log(whole))
    return logarithm
