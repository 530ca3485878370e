"""What a pass is."""

import onnx_ir as ir

__all__ = ["Pass", "add_operand", "fuse_addend", "only_user", "remove", "replace_output"]


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


def add_operand(node: ir.Node, addend: ir.Value, total: ir.Value) -> ir.Node:
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


def fuse_addend(graph: ir.Graph, product: ir.Node, addend: ir.Value, add: ir.Node) -> None:
    """Let a product add `addend` itself, in the place of the addition that did.

    It stands where the addition stood, because the addend may be made after the product.
    """
    total = add.outputs[0]
    fused = add_operand(product, addend, total)
    graph.insert_before(add, fused)
    replace_output(graph, total, fused.outputs[0])
    remove(graph, add)
    remove(graph, product)


def replace_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let everyone who reads `old`, the job's callers included, read `new` under the old name."""
    if old.is_graph_output():
        new.name = old.name
        for i, output in enumerate(graph.outputs):
            if output is old:
                graph.outputs[i] = new
    old.replace_all_uses_with(new)
