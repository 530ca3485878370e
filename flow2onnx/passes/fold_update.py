"""Updates that are a matrix product and a sum."""

import onnx_ir as ir

from flow2onnx.passes.base import Pass, fuse_addend, only_user

__all__ = ["FoldUpdateIntoGemm"]


class FoldUpdateIntoGemm(Pass):
    """Add the change of a weight to the weight in the product that makes the change.

    Given:   d = Gemm(g, x, transA=1);  next/w = Add(w, d)
    Result:  next/w = Gemm(g, x, w, transA=1)
    Kept:    changes that something else reads too, sums that broadcast
    """

    def run(self, graph: ir.Graph) -> bool:
        """Look from each sum with a graph input back to the product."""
        changed = False
        for add in [n for n in graph if n.op_type == "Add"]:
            weight, change = add.inputs
            product = change.producer() if change is not None else None
            if (
                product is not None
                and weight is not None
                and weight.is_graph_input()
                and product.op_type == "Gemm"
                and len(product.inputs) == 2
                and weight.shape == product.outputs[0].shape
                and only_user(product.outputs[0]) is add
            ):
                fuse_addend(graph, product, weight, add)
                changed = True
        return changed
