"""Products of as many matrices on both sides."""

import numpy as np
import onnx_ir as ir

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, is_static
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["EqualBatches"]


class EqualBatches(Pass):
    """Repeat the matrices of a product that one side has fewer of.

    Given:   y = MatMul(x: [2,3,4,5], w: [3,5,6])
    Result:  a = Expand(w, [2,3,5,6]);  y = MatMul(x, a)
    Kept:    products by one matrix, and of shapes known only at run time

    CUDA copies the places of matrices that are read several times from the host, which a captured
    graph would read there again at every launch, when other numbers stand there.
    """

    def run(self, graph: ir.Graph) -> bool:
        """Replace each such product."""
        found = [n for n in graph if n.op_type == "MatMul" and _is_uneven(n)]
        for node in found:
            _replace(graph, node)
        return bool(found)


def _batches(node: ir.Node) -> list[tuple[int, ...]]:
    return [dims(v)[:-2] for v in node.inputs if v is not None]


def _is_uneven(node: ir.Node) -> bool:
    if not all(v is not None and is_static(v) and len(dims(v)) > 1 for v in node.inputs):
        return False
    left, right = _batches(node)
    return left != right and bool(right)


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    full = np.broadcast_shapes(*_batches(node))

    def emit(b: Builder, read: Placeholders) -> tuple[Value, ...]:
        sides = []
        for value in node.inputs:
            assert value is not None, "a product has two operands"
            shape = [*full, *dims(value)[-2:]]
            whole = read[value]
            sides.append(whole if list(dims(value)) == shape else b.Expand(whole, shape))
        return (b.MatMul(*sides),)

    replace_node(graph, node, emit)
