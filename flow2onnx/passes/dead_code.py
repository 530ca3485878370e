"""Dead code elimination."""

from collections.abc import Iterator

import onnx_ir as ir

from flow2onnx.graph.model import drop_unread_constants
from flow2onnx.graph.nodes import subgraphs_of
from flow2onnx.passes.base import Pass

__all__ = ["DeadCodeElimination"]


# onnx_ir has such a pass; it also blanks outputs that nobody reads and drops attributes of their
# default value, so that exported files would change with its version.
class DeadCodeElimination(Pass):
    """Remove nodes and constants that no output depends on.

    Given:   y = Relu(x);  z = Neg(x);  outputs: y
    Result:  y = Relu(x)
    Kept:    inputs of the job, read or not
    """

    def run(self, graph: ir.Graph) -> bool:
        """Walk back once; then drop unread constants."""
        dead, inner = set[ir.Node](), set[ir.Node]()
        for node in reversed(list(graph)):
            _drop_detached_readers(node)
            users = {use.node for v in node.outputs for use in v.uses()}
            if not any(v.is_graph_output() for v in node.outputs) and users <= dead | inner:
                dead.add(node)
                inner.update(_nodes_inside(node))
        for node in inner:  # what a branch reads of the graph around it is read no longer
            for i in range(len(node.inputs)):
                node.replace_input_with(i, None)
        graph.remove(dead, safe=True)
        return drop_unread_constants(graph) or bool(dead)


def _drop_detached_readers(node: ir.Node) -> None:
    """Let nodes that were left out of the graph, as what folds to a constant is, read nothing."""
    for value in node.outputs:
        for use in value.uses():
            if use.node.graph is None:
                use.node.replace_input_with(use.idx, None)


def _nodes_inside(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of the subgraphs of a node, at any depth."""
    for graph in subgraphs_of(node):
        for inside in graph:
            yield inside
            yield from _nodes_inside(inside)
