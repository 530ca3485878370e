"""Halves that a tanh-GELU shares with other nodes, kept from the runtime's fusion."""

import onnx_ir as ir

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import constant_of, rank_of
from flow2onnx.passes.base import Pass, Placeholders, only_user, replace_node

__all__ = ["DivideSharedHalves"]


class DivideSharedHalves(Pass):
    """Divide by 2, in place of multiplying with 0.5, what a tanh-GELU and other nodes read.

    Given:   h = Mul(x, 0.5);  a = Add(Tanh(u), 1);  y = Mul(h, a);  z = Mul(g, h)
    Result:  h = Div(x, 2);  a = Add(Tanh(u), 1);  y = Mul(h, a);  z = Mul(g, h)
    Kept:    a half that the product alone reads, which may become one operator with it

    The runtime makes FastGelu of such nodes, takes the half out with them, and then refuses the
    model, as others read it (onnxruntime 1.31). Where activations are computed again, gradients do.
    """

    def run(self, graph: ir.Graph) -> bool:
        """Replace each such product with 0.5."""
        found = [n for n in graph if _is_half(n) and _is_shared_with_gelu(n.outputs[0])]
        for node in found:
            _replace(graph, node)
        return bool(found)


def _is_half(node: ir.Node) -> bool:
    """True for a product of one value with 0.5, which gives it no more axes."""
    if node.op_type != "Mul" or node.domain:
        return False
    others = [v for v in node.inputs if v is not None and not _is_constant_half(v)]
    return len(others) == 1 and rank_of(others[0]) == rank_of(node.outputs[0])


def _is_constant_half(value: Value | None) -> bool:
    content = constant_of(value)
    return content is not None and content.size == 1 and float(content.item()) == 0.5


def _is_shared_with_gelu(half: Value) -> bool:
    readers = [use.node for use in half.uses()]
    return len(readers) > 1 and any(_is_end_of_gelu(n, half) for n in readers)


def _is_end_of_gelu(node: ir.Node, half: Value) -> bool:
    """True for a product with 1 + tanh, whose parts nothing else reads."""
    if node.op_type != "Mul" or node.domain:
        return False
    other = next((v for v in node.inputs if v is not half and v is not None), None)
    add = None if other is None or only_user(other) is not node else other.producer()
    if add is None or add.op_type != "Add":
        return False
    makers = [v.producer() for v in add.inputs if v is not None and only_user(v) is add]
    return any(m is not None and m.op_type == "Tanh" for m in makers)


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    x = next(v for v in node.inputs if not _is_constant_half(v))
    assert x is not None, "a product has two operands"

    def emit(b: Builder, own: Placeholders) -> list[Value]:
        return [b.Div(own[x], 2.0)]

    replace_node(graph, node, emit)
