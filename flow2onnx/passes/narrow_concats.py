"""Joins of few values each, where a runtime records no others."""

import onnx_ir as ir

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["NarrowConcats"]

_MOST = 32  # inputs of a Concat in a CUDA graph, by onnxruntime 1.31.1: of more it copies addresses


class NarrowConcats(Pass):
    """Join many values in groups, and then the groups.

    Given:   y = Concat(x0, ..., x99)
    Result:  a = Concat(x0, ..., x31);  ...;  y = Concat(a, b, c, d)
    Kept:    joins of at most 32 values
    """

    def run(self, graph: ir.Graph) -> bool:
        """Replace each join of more."""
        wide = [n for n in graph if n.op_type == "Concat" and len(n.inputs) > _MOST]
        for node in wide:
            _replace(graph, node)
        return bool(wide)


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    axis = attribute(node, "axis")

    def emit(b: Builder, read: Placeholders) -> tuple[Value, ...]:
        parts = [read[v] for v in node.inputs if v is not None]
        while len(parts) > 1:
            groups = [parts[i : i + _MOST] for i in range(0, len(parts), _MOST)]
            parts = [g[0] if len(g) == 1 else b.Concat(*g, axis=axis) for g in groups]
        return (parts[0],)

    replace_node(graph, node, emit)
