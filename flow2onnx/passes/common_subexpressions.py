"""Common subexpression elimination."""

from typing import Any

import onnx_ir as ir

from flow2onnx.graph.nodes import RANDOM_OPERATORS, operator_name
from flow2onnx.passes.base import Pass, detach, remove_all, replace_value

__all__ = ["CommonSubexpressionElimination"]


# onnx_ir has such a pass; it merges equal Dropout and Bernoulli nodes, which are to draw different
# values, and gives outputs of the job other makers and names.
class CommonSubexpressionElimination(Pass):
    """Compute once what several nodes compute alike; gradients ask for much of the forward again.

    Given:   a = Transpose(x, perm=[1, 0]);  b = Transpose(x, perm=[1, 0]);  y = MatMul(a, b)
    Result:  a = Transpose(x, perm=[1, 0]);  y = MatMul(a, a)
    Kept:    nodes that draw random numbers, and nodes that make an output of the job; apart stay
             equal nodes whose distribution hints differ
    """

    def run(self, graph: ir.Graph) -> bool:
        """Walk forward, so that readers of a merged node meet its representative."""
        seen: dict[tuple[Any, ...], ir.Node] = {}
        merged = list[ir.Node]()
        for node in list(graph):
            if node.op_type in RANDOM_OPERATORS or any(v.is_graph_output() for v in node.outputs):
                continue
            key = _key(node)
            first = seen.setdefault(key, node)
            if first is not node and len(first.outputs) >= len(node.outputs):
                for old, new in zip(node.outputs, first.outputs, strict=False):
                    replace_value(old, new)
                detach(node)
                merged.append(node)
        remove_all(graph, merged)
        return bool(merged)


def _key(node: ir.Node) -> tuple[Any, ...]:
    given = node.attributes.data  # most nodes have none
    attributes = (
        tuple((k, _attribute_content(a)) for k, a in sorted(given.items())) if given else ()
    )
    hint = str(node.meta.get("distribute"))
    return operator_name(node), tuple(id(v) for v in node.inputs), attributes, hint


def _attribute_content(attribute: ir.Attr) -> Any:
    """The content of an attribute, in full: a tensor's text leaves most of it out."""
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return tensor.dtype, tuple(tensor.shape), tensor.tobytes()
    is_graph = attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return id(attribute) if is_graph else repr(attribute.value)
