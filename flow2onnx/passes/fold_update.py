"""Folding of the update of a weight into the matrix product that makes the change."""

import onnx_ir as ir

from flow2onnx.passes.base import Pass, fuse_addend, remove_all, state_updates

__all__ = ["FoldUpdateIntoGemm"]


class FoldUpdateIntoGemm(Pass):
    """Add the change of a weight to the weight in the product that makes the change.

    Given:   d = Gemm(g, x, transA=1);  next/w = Add(w, d)
    Result:  next/w = Gemm(g, x, w, transA=1)
    Kept:    changes that something else reads too, sums that broadcast
    """

    def run(self, graph: ir.Graph) -> bool:
        """Look from each update back to the product."""
        gone = list[ir.Node]()
        for add, weight, product in state_updates(graph):
            if product.op_type == "Gemm" and len(product.inputs) == 2:
                gone += fuse_addend(graph, product, weight, add)
        remove_all(graph, gone)
        return bool(gone)
