"""Fusion of biases into the products that they are added to."""

import onnx_ir as ir

from flow2onnx.passes.base import Pass, fuse_addend, only_user, remove_all

__all__ = ["FuseBias"]


class FuseBias(Pass):
    """Let Gemm and Conv add their bias themselves: one pass less over the result.

    Given:   h = Gemm(x, w, transB=1);  y = Add(h, b)          with b of shape (n,)
             h = Conv(x, w);  r = Reshape(b, [-1, 1, 1]);  y = Add(h, r)
    Result:  y = Gemm(x, w, b, transB=1)
             y = Conv(x, w, b)
    Kept:    products that something else reads too
    """

    def run(self, graph: ir.Graph) -> bool:
        """Look from each addition back to the product."""
        gone = list[ir.Node]()
        for add in [n for n in graph if n.op_type == "Add"]:
            product, other = add.inputs
            node = product.producer() if product is not None else None
            if node is None or len(node.inputs) != 2:
                continue
            bias = _bias(node, other)
            if bias is not None and only_user(node.outputs[0]) is add:
                gone += fuse_addend(graph, node, bias, add)
        remove_all(graph, gone)
        return bool(gone)


def _bias(node: ir.Node, other: ir.Value | None) -> ir.Value | None:
    """The one-dimensional value that an addition to the product of `node` broadcasts, or None."""
    if other is None or node.outputs[0].shape is None:
        return None
    shape = list(node.outputs[0].shape)
    if node.op_type == "Gemm" and list(other.shape or ()) == shape[1:]:
        return other
    reshape = other.producer()
    if node.op_type != "Conv" or reshape is None or reshape.op_type != "Reshape":
        return None
    source = reshape.inputs[0]
    spread = [shape[1]] + [1] * (len(shape) - 2)
    fits = source is not None and list(source.shape or ()) == [shape[1]]
    return source if fits and list(other.shape or ()) == spread else None
