"""Folding of batch normalizations into convolutions, for predict jobs."""

import numpy as np
import onnx_ir as ir
from flow2onnx_runtime.dtypes import Array

from flow2onnx.passes.base import Pass, only_user, remove, replace_output

__all__ = ["FoldBatchNorm"]


class FoldBatchNorm(Pass):
    """Let a convolution's weights and bias do what the normalization after it does.

    Given:   h = Conv(x, w);  y = BatchNormalization(h, gamma, beta, mean, variance)
    Result:  y = Conv(x, w, beta)             with other values of w and beta
    Kept:    normalizations of something else, and of weights that something else reads

    `values` are those of the inputs that are variables: they change, and fewer are left.
    """

    def __init__(self, values: dict[str, Array]) -> None:
        self._values = values

    def run(self, graph: ir.Graph) -> bool:
        """Fold where all that it takes is known and read by nobody else."""
        found = [n for n in graph if n.op_type == "BatchNormalization" and self._is_foldable(n)]
        for node in found:
            self._fold(graph, node)
        return bool(found)

    def _is_foldable(self, node: ir.Node) -> bool:
        x = node.inputs[0]
        conv = x.producer() if x is not None else None
        if x is None or conv is None or conv.op_type != "Conv" or only_user(x) is not node:
            return False
        if len(node.outputs) > 1:
            return False
        changed = [conv.inputs[1], *conv.inputs[2:], *node.inputs[1:]]
        return all(self._is_own(v) for v in changed if v is not None)

    def _is_own(self, value: ir.Value) -> bool:
        is_known = value.name in self._values and self._values[str(value.name)].dtype == np.float32
        return is_known and len(list(value.uses())) == 1

    def _fold(self, graph: ir.Graph, node: ir.Node) -> None:
        hidden, scale, beta, mean, variance = node.inputs[:5]
        assert hidden is not None, "a normalization has five inputs"
        assert beta is not None, "a normalization has five inputs"
        conv = hidden.producer()
        assert conv is not None, "only normalizations after a convolution are folded"
        weight = str(conv.inputs[1].name) if conv.inputs[1] is not None else ""
        epsilon = node.attributes.get_float("epsilon", 1e-5)
        factor = self._of(scale) / np.sqrt(self._of(variance) + epsilon)
        bias = conv.inputs[2] if len(conv.inputs) > 2 else None
        before = self._of(bias) if bias is not None else 0.0
        shift = (before - self._of(mean)) * factor + self._of(beta)
        kept = self._values[weight]
        wide = kept * factor.reshape(-1, *[1] * (kept.ndim - 1))
        self._values[weight] = wide.astype(np.float32)
        target = bias if bias is not None else beta
        self._values[str(target.name)] = shift.astype(np.float32)
        total, gone = node.outputs[0], [v for v in node.inputs[1:5] if v is not target]
        conv.resize_inputs(3)
        conv.replace_input_with(2, target)
        replace_output(graph, total, hidden)
        remove(graph, node)
        for value in gone:
            if value is not None:
                graph.inputs.remove(value)
                del self._values[str(value.name)]

    def _of(self, value: ir.Value | None) -> Array:
        assert value is not None, "an operand is there"
        return self._values[str(value.name)].astype(np.float64)
