"""Operators without a rule, made of operators that have one: by our expansion or the standard's."""

from collections.abc import Sequence

from flow2onnx.autodiff.registry import expansion_for, no_gradient
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.functions import standard_body
from flow2onnx.graph.types import dtype_of, may_match, sizes_of

__all__ = ["expand_node"]


def expand_node(b: Builder, node: Node) -> Sequence[Value]:
    """The values that stand for the outputs of a node, whose nodes are put before it.

    Whoever reads the node's outputs in the graph then reads these; the outputs stay valid for
    those who hold them, and what computes them is dead code where nobody does.
    """
    with b.before(node):
        made = _expand(b, node)
    for old, new in zip(node.outputs, made, strict=True):
        assert may_match(new, old), (
            f"{node.op_type}: expanded to {sizes_of(new)}, not {sizes_of(old)}"
        )
        assert dtype_of(new) == dtype_of(old), f"{node.op_type}: expanded to another type"
        old.replace_all_uses_with(new)
    return made


def _expand(b: Builder, node: Node) -> Sequence[Value]:
    own = expansion_for(node.op_type)
    made = own(b, node) if own is not None else standard_body(b, node)
    if made is None:
        raise no_gradient(node)
    return [made] if isinstance(made, Value) else made
