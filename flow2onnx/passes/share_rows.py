"""A train job as one of several processes runs it: on its rows of the batch."""

from collections.abc import Mapping

import numpy as np
import onnx_ir as ir
from flow2onnx_runtime.axis_parts import part_length

from flow2onnx.errors import ShapeError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import has_seed
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.passes.row_shares import BROADCASTING, Share, row_shares, uniform

__all__ = ["DRAWS_ROWS", "resize_rows", "share_rows"]

DRAWS_ROWS = "draws rows"  # noted on random nodes whose draws are a process's own
_SIZES = {"Reshape": 1, "Expand": 1, "Resize": 3}  # the operand that has the sizes of the output


def share_rows(b: Builder, split: Mapping[ir.Value, int], ranks: int) -> dict[ir.Value, Share]:
    """Divide the rows of a forward graph among `ranks`, in place; the share of each value.

    Given:   x: f32[8,784];  r = Reshape(x, [8,-1]);  y: f32[8,10] = MatMul(r, w)
    Result:  x: f32[4,784];  r = Reshape(x, [4,784]); y: f32[4,10] = MatMul(r, w)    (2 ranks)
    Kept:    values that are "mixed" of rows, and what depends on them: nobody may read them

    `split` has the inputs that are divided, each with the axis of its rows.
    """
    for value, axis in split.items():
        if dims(value)[axis] % ranks:
            raise ShapeError(
                f"{value.name} has {dims(value)[axis]} rows, which {ranks} ranks cannot share",
                hint=f"let the batch be a multiple of {ranks}",
            )
    shares = row_shares(b.nodes, split)
    resize_rows(b, shares, ranks)
    return shares


def resize_rows(b: Builder, shares: Mapping[ir.Value, Share], ranks: int, rank: int = 0) -> None:
    """Let values that have rows, or nodes that make them, have those of one process, in place."""
    whole = {v: dims(v)[s.axis] for v, s in shares.items() if s.kind == "rows"}
    for value, share in shares.items():
        if share.kind == "rows":
            shape = list(dims(value))
            shape[share.axis] = part_length(shape[share.axis], ranks, rank)
            b.resize(value, shape)
    for node in list(b.nodes):
        made = shares.get(node.outputs[0])
        if made is not None and made.kind == "rows":
            _adapt(b, node, made, shares, whole[node.outputs[0]])


def _adapt(
    b: Builder, node: ir.Node, share: Share, shares: Mapping[ir.Value, Share], size: int
) -> None:
    """Let a node that made `size` rows make those of one process."""
    if has_seed(node):
        node.meta[DRAWS_ROWS] = True
    position = _SIZES.get(node.op_type)
    if position is not None and len(node.inputs) > position and node.inputs[position]:
        node.replace_input_with(position, b.const(list(dims(node.outputs[0]))))
        return
    if node.op_type not in BROADCASTING:
        return
    behind = share.axis - rank_of(node.outputs[0])
    for i, value in enumerate(node.inputs):
        if value is None or value in shares or rank_of(value) < -behind:
            continue
        number = uniform(value)
        if number is not None and size > 1 and dims(value)[behind] == size:
            shape = list(dims(value))
            shape[behind] = dims(node.outputs[0])[behind]
            node.replace_input_with(i, b.const(np.full(shape, number), dtype_of(value)))
