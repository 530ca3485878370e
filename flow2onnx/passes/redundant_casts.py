"""Removal of casts that change nothing."""

import onnx_ir as ir

from flow2onnx.passes.base import Pass, detach, remove_all, replace_value

__all__ = ["RemoveRedundantCasts"]


class RemoveRedundantCasts(Pass):
    """Remove casts to the element type a value has, and ways there and back that lose nothing.

    Given:   c: bool = Greater(x, y);  i: int8 = Cast(c);  d: bool = Cast(i);  z = Where(d, x, y)
             h: f16 = Relu(x);  w: f32 = Cast(h);  k: f16 = Cast(w);  y = Neg(k)
    Result:  c: bool = Greater(x, y);  z = Where(c, x, y)
             h: f16 = Relu(x);  y = Neg(h)
    Kept:    casts that make an output of the job
    """

    def run(self, graph: ir.Graph) -> bool:
        """Read past idle casts; what is left unread is dead code."""
        gone = list[ir.Node]()
        for node in list(graph):
            if node.op_type != "Cast" or node.outputs[0].is_graph_output():
                continue
            source = _source_before_cast(node)
            if source is not None:
                replace_value(node.outputs[0], source)
                detach(node)
                gone.append(node)
        remove_all(graph, gone)
        return bool(gone)


def _source_before_cast(node: ir.Node) -> ir.Value | None:
    """The value a cast could be replaced by."""
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None, "Cast reads one value"
    if x.dtype == y.dtype:
        return x
    before = x.producer()
    if before is None or before.op_type != "Cast":
        return None
    first = before.inputs[0]
    assert first is not None, "Cast reads one value"
    is_truth = first.dtype == ir.DataType.BOOL
    widens = (first.dtype, x.dtype) in _WIDENING
    return first if first.dtype == y.dtype and (is_truth or widens) else None


# casts that keep every value
_WIDENING = frozenset(
    (small, wide)
    for small in (ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.FLOAT)
    for wide in (ir.DataType.FLOAT, ir.DataType.DOUBLE)
)
