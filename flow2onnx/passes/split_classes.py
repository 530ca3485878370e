"""Forms of operators along an axis that processes have split, such as the classes of a softmax.

None of them gathers the axis: what processes pass is a number for each row, a maximum or a sum.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import int64
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.transfers import Transfer
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.passes.row_shares import Shares

__all__ = ["Move", "has_split_form", "index_numbers", "split_form"]

# transfer, value, the node that it stands before, indices of rows -> the value after it
Move = Callable[[Transfer, ir.Value, ir.Node | None, ir.Value | None], ir.Value]
_SOFT = ("LogSoftmax", "Softmax")
_PICKING = ("GatherElements", "ScatterElements")
_LOOKUP = "Gather"


def has_split_form(node: ir.Node, given: Shares) -> bool:
    """True for a node along an axis that its first operand is split on, if it has another form."""
    x, share = node.inputs[0], given[0]
    if x is None or share is None or share.kind != "rows":
        return False
    default = -1 if node.op_type in _SOFT else 0
    if attribute(node, "axis", default) % rank_of(x) != share.axis:
        return False
    if node.op_type in _SOFT or (node.op_type == _LOOKUP and share.axis == 0):
        return True
    index = node.inputs[1] if node.op_type in _PICKING else None
    is_one = index is not None and dims(index)[share.axis] == 1
    return is_one and attribute(node, "reduction", "none") == "none"


def index_numbers(b: Builder, node: ir.Node, axis: int) -> ir.Value | None:
    """The numbers along the axis that an index names, in the rank of its operand."""
    is_indexed = node.op_type in (*_PICKING, _LOOKUP)
    x, index = node.inputs[0], node.inputs[1] if is_indexed else None
    if x is None or index is None:
        return None
    if node.op_type == _LOOKUP:
        return b.const(np.arange(dims(x)[0], dtype=np.int64))
    shape = [1] * rank_of(x)
    shape[axis] = dims(x)[axis]
    return b.const(np.arange(shape[axis], dtype=dtype_of(index).numpy).reshape(shape))


def split_form(
    b: Builder, node: ir.Node, axis: int, operands: Sequence[ir.Value], move: Move
) -> ir.Value:
    """The value that stands for a node along a split axis; shapes are those of the whole.

    `operands` are the index, which all have, and the numbers of a process's own part of the axis.
    """
    x = node.inputs[0]
    assert x is not None, f"{node.op_type} has an operand"
    if node.op_type in _SOFT:
        return _softmax(b, node, x, axis, move)
    if node.op_type == _LOOKUP:
        return _looked_up(b, node, x, *operands)
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
    shifted = b.Sub(x, move(Transfer("all_max", dims(own)), own, None, None))
    powers = b.Exp(shifted)
    total = b.ReduceSum(powers, [axis], keepdims=1)
    whole = move(Transfer("all_reduce", dims(total)), total, None, None)
    if node.op_type == "Softmax":
        divided: ir.Value = b.Div(powers, whole)
        return divided
    logarithm: ir.Value = b.Sub(shifted, b.Log(whole))
    return logarithm


def _looked_up(
    b: Builder, node: ir.Node, table: ir.Value, index: ir.Value, numbers: ir.Value
) -> ir.Value:
    """The rows of a table that an index reads where this process has them, zeros elsewhere.

    What others have of them adds up to all.
    """
    wide = index if dtype_of(index).name == "int64" else b.Cast(index, to=int64)
    wide = b.Where(b.Less(wide, 0), b.Add(wide, dims(table)[0]), wide)
    first, last = (
        getattr(b, f"Reduce{which}")(numbers, [0], keepdims=1) for which in ("Min", "Max")
    )
    is_there = b.And(b.GreaterOrEqual(wide, first), b.LessOrEqual(wide, last))
    place = b.Sub(b.Min(b.Max(wide, first), last), first)
    rows = b.Gather(table, place, axis=0)
    shape = [*dims(index), *[1] * (rank_of(table) - 1)]
    kept: ir.Value = b.Where(b.Reshape(is_there, shape), rows, b.const(0, dtype_of(table)))
    return kept
