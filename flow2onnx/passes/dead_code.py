"""Dead code elimination."""

import onnx_ir as ir

from flow2onnx.graph.model import drop_unread_constants
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
        dead = set[ir.Node]()
        for node in reversed(list(graph)):
            users = (use.node for v in node.outputs for use in v.uses())
            if not any(v.is_graph_output() for v in node.outputs) and dead.issuperset(users):
                dead.add(node)
        graph.remove(dead, safe=True)
        return drop_unread_constants(graph) or bool(dead)
