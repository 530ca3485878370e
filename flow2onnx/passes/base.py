"""What a pass is."""

import onnx_ir as ir

__all__ = ["Pass", "only_user", "remove", "with_addend"]


class Pass:
    """One rewrite of a graph in place, which keeps the job's inputs, outputs and their names."""

    def run(self, graph: ir.Graph) -> bool:
        """Rewrite; returns whether anything changed."""
        raise NotImplementedError


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that reads a value which is no output of the graph, or None."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def remove(graph: ir.Graph, node: ir.Node) -> None:
    """Take out a node that nobody reads."""
    graph.remove(node, safe=True)


def with_addend(node: ir.Node, addend: ir.Value, total: ir.Value) -> ir.Node:
    """A Gemm or Conv of two inputs with the third: what it makes has the type of `total`."""
    # beta scales the third input, which there was none of
    attributes = [a for a in node.attributes.values() if a.name != "beta"]
    fused = ir.Node(
        "", node.op_type, [*node.inputs, addend], attributes, num_outputs=1, name=node.name
    )
    new = fused.outputs[0]
    new.name, new.type, new.shape = node.outputs[0].name, total.type, total.shape
    fused.meta.update(node.meta)
    return fused
