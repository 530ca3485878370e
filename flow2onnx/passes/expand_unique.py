"""Ranks of values by sorting, where a provider would leave `Unique` to the CPU."""

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import int64
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dims, is_static
from flow2onnx.graph.verify import Kernels
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["ExpandUnique"]

_RANKS = 2  # the output that says for each element which of the different values it is


class ExpandUnique(Pass):
    """Number values in ascending order, equal ones alike, by one sort.

    Given:   _, _, r = Unique(x)                            and nothing reads the other outputs
    Result:  s, at = TopK(x, n, largest=0);  d = s[1:] != s[: -1]
             r = ScatterElements(zeros, at, CumSum([0, d]))
    Kept:    values in order of appearance, and Unique where the first provider has it

    CUDA has no Unique: the indices would be copied to the host within a step.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def run(self, graph: ir.Graph) -> bool:
        """Replace each such node."""
        if not self._kernels.leaves("Unique"):
            return False
        found = [n for n in graph if n.op_type == "Unique" and _gives_ranks_alone(n)]
        for node in found:
            replace_node(graph, node, partial(_ranks, node))
        return bool(found)


def _gives_ranks_alone(node: ir.Node) -> bool:
    """True if only the ranks of the elements are read, and their number is known."""
    x = node.inputs[0]
    read = [o for o in node.outputs if o.is_graph_output() or any(o.uses())]
    in_order = attribute(node, "sorted", 1) == 1 and "axis" not in node.attributes
    return x is not None and is_static(x) and in_order and read == [*node.outputs[_RANKS:3]]


def _ranks(node: ir.Node, b: Builder, read: Placeholders) -> Sequence[Value]:
    x = node.inputs[0]
    assert x is not None, "Unique has an operand"
    count = prod(dims(x))
    flat = b.Reshape(read[x], [count])
    values, places = b.several("TopK", flat, [count], outputs=2, largest=0)
    differs = b.Not(b.Equal(b.Slice(values, [1], [count]), b.Slice(values, [0], [count - 1])))
    steps = b.Concat(b.const([0], int64), b.Cast(differs, to=int64), axis=0)
    ranks = b.CumSum(steps, b.const(np.int64(0), int64))
    # the first two stand in for outputs that nobody reads
    return values, places, b.ScatterElements(b.const(np.zeros(count, np.int64)), places, ranks)
