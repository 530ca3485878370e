"""Equal pads on both sides, and a crop, where a runtime's kernels take no others."""

from collections.abc import Sequence

import onnx_ir as ir

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.verify import Kernels
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["SymmetricPads"]

_END = 2**63 - 1  # of an axis, whatever its size


class SymmetricPads(Pass):
    """Crop what is padded more on one side, for kernels that pad both sides alike.

    Given:   y = ConvTranspose(x, w, pads=[0, 1, 1, 1])
    Result:  a = ConvTranspose(x, w, pads=[0, 1, 0, 1]);  y = a[:, :, : -1, :]
    Kept:    operators whose kernels take any pads

    The pads of a transposed convolution are what is cropped of its result, so the two are equal bit
    for bit. CUDA leaves such a node to the CPU, and copies what it reads and makes.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def run(self, graph: ir.Graph) -> bool:
        """Replace each node with unequal pads that the kernels do not take."""
        found = [n for n in graph if self._is_refused(n)]
        for node in found:
            _replace(graph, node)
        return bool(found)

    def _is_refused(self, node: ir.Node) -> bool:
        if node.domain or not self._kernels.pads_alike(node.op_type):
            return False
        before, after = _pads(node)
        return before != after


def _pads(node: ir.Node) -> tuple[list[int], list[int]]:
    pads = attribute(node, "pads") or []
    half = len(pads) // 2
    return list(pads[:half]), list(pads[half:])


def _replace(graph: ir.Graph, node: ir.Node) -> None:
    before, after = _pads(node)
    common = [min(p, q) for p, q in zip(before, after, strict=True)]
    attributes = {
        name: attribute(node, name) for name in node.attributes if name not in ("pads", "auto_pad")
    }

    def emit(b: Builder, read: Placeholders) -> Sequence[Value]:
        operands = [read[v] for v in node.inputs if v is not None]
        wide = b.emit(node.op_type, operands, {**attributes, "pads": common * 2}, 1)[0]
        axes = [a for a, (p, q) in enumerate(zip(before, after, strict=True)) if p != q]
        starts = [before[a] - common[a] for a in axes]
        ends = [common[a] - after[a] or _END for a in axes]
        return (b.Slice(wide, starts, ends, [a + 2 for a in axes]),)

    replace_node(graph, node, emit)
