"""What graphs inside nodes read from around them."""

from collections.abc import Sequence

import onnx_ir as ir

__all__ = ["captured_values", "nesting_depth", "read_values"]


def captured_values(graph: ir.Graph) -> list[ir.Value]:
    """The values that a graph inside a node reads from around it, in order of first use."""
    own = {*graph.inputs, *graph.initializers.values(), *(o for n in graph for o in n.outputs)}
    found: dict[ir.Value, None] = {}
    for node in graph:
        read = [v for v in node.inputs if v is not None]
        for attribute in node.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                read += captured_values(attribute.as_graph())
        found.update(dict.fromkeys(v for v in read if v not in own))
    found.update(dict.fromkeys(v for v in graph.outputs if v not in own))
    return list(found)


def read_values(node: ir.Node) -> Sequence[ir.Value | None]:
    """The inputs of a node, then what the graphs inside it read from around it."""
    outer: dict[ir.Value, None] = {}
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            outer.update(dict.fromkeys(captured_values(attribute.as_graph())))
    return (*node.inputs, *outer)


def nesting_depth(node: ir.Node) -> int:
    """How many graphs lie in each other inside a node."""
    deepest, open_nodes = 0, [(node, 0)]
    while open_nodes:
        current, depth = open_nodes.pop()
        deepest = max(deepest, depth)
        for attribute in current.attributes.values():
            if attribute.type == ir.AttributeType.GRAPH:
                open_nodes += [(inner, depth + 1) for inner in attribute.as_graph()]
    return deepest
