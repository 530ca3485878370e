"""Slices for splits whose parts a runtime looks up in memory of the host."""

import numpy as np
import onnx_ir as ir

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dims
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["SplitsAsSlices"]


class SplitsAsSlices(Pass):
    """Cut out parts of different sizes one by one.

    Given:   a, b = Split(x, [2, 3])                                     along the second axis
    Result:  a = x[:, 0:2];  b = x[:, 2:5]
    Kept:    splits into few parts of one size

    For others CUDA copies the places of all parts from the host, which a captured graph would read
    there again at every launch, when other numbers stand there.
    """

    def run(self, graph: ir.Graph) -> bool:
        """Replace each such split."""
        found = [n for n in graph if n.op_type == "Split" and not _is_even(n)]
        for node in found:
            _replace(graph, node)
        return bool(found)


_MOST_PARTS = 32  # whose places are arguments of the kernel


def _axis(node: ir.Node) -> int:
    axis = int(attribute(node, "axis", 0))
    assert node.inputs[0] is not None, "a split reads something"
    return axis % len(dims(node.inputs[0]))


def _is_even(node: ir.Node) -> bool:
    axis = _axis(node)
    return len(node.outputs) <= _MOST_PARTS and len({dims(v)[axis] for v in node.outputs}) == 1


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    axis = _axis(node)
    ends = np.cumsum([dims(v)[axis] for v in node.outputs]).tolist()

    def emit(b: Builder, read: Placeholders) -> tuple[Value, ...]:
        assert node.inputs[0] is not None, "a split reads something"
        whole = read[node.inputs[0]]
        starts = [0, *ends[:-1]]
        return tuple(
            b.Slice(whole, [low], [high], [axis]) for low, high in zip(starts, ends, strict=True)
        )

    replace_node(graph, node, emit)
