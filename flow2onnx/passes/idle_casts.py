"""Casts that change nothing."""

import onnx_ir as ir

from flow2onnx.passes.base import Pass, remove

__all__ = ["DropIdleCasts"]


class DropIdleCasts(Pass):
    """Remove casts to the element type a value has, and a truth's way through int8 and back.

    Given:   c: bool = Greater(x, y);  i: int8 = Cast(c);  d: bool = Cast(i);  z = Where(d, x, y)
    Result:  c: bool = Greater(x, y);  z = Where(c, x, y)
    Kept:    casts that make an output of the job
    """

    def run(self, graph: ir.Graph) -> bool:
        """Read past idle casts; what is left unread is dead code."""
        changed = False
        for node in list(graph):
            if node.op_type != "Cast" or node.outputs[0].is_graph_output():
                continue
            source = _source(node)
            if source is not None:
                node.outputs[0].replace_all_uses_with(source)
                remove(graph, node)
                changed = True
        return changed


def _source(node: ir.Node) -> ir.Value | None:
    """The value a cast could be replaced by."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None, "Cast reads one value"
    if x.dtype == y.dtype:
        return x
    before = x.producer()
    if y.dtype == ir.DataType.BOOL and before is not None and before.op_type == "Cast":
        truth = before.inputs[0]
        return truth if truth is not None and truth.dtype == ir.DataType.BOOL else None
    return None
