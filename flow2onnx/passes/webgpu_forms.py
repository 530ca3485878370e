"""Forms in operators that onnxruntime-web has kernels of for WebGPU."""

from collections.abc import Sequence
from functools import partial
from math import prod

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import int64
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dims, is_static
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["UseWebGPUForms"]


class UseWebGPUForms(Pass):
    """Leave no node to the processor that a GPU could compute in another form.

    Given:   y = LogSoftmax(x, axis=a);  n = Size(z)
    Result:  d = x - ReduceMax(x, [a]);  y = d - Log(ReduceSum(Exp(d), [a]));  n = the number itself
    Kept:    Size where the shape is known at the run only

    Each node on the processor stops the GPU, and copies what it reads and makes.
    """

    def run(self, graph: ir.Graph) -> bool:
        """Replace each such node."""
        forms = {"LogSoftmax": _log_softmax, "Size": _size}
        found = [n for n in graph if n.op_type in forms and _has_form(n)]
        for node in found:
            replace_node(graph, node, partial(forms[node.op_type], node))
        return bool(found)


def _has_form(node: ir.Node) -> bool:
    x = node.inputs[0]
    return x is not None and (node.op_type == "LogSoftmax" or is_static(x))


def _log_softmax(node: ir.Node, b: Builder, read: Placeholders) -> Sequence[Value]:
    (x,) = read.values()
    axis = [attribute(node, "axis", -1)]
    shifted = b.Sub(x, b.ReduceMax(x, axis, keepdims=1))  # so that no exponential is infinite
    return (b.Sub(shifted, b.Log(b.ReduceSum(b.Exp(shifted), axis, keepdims=1))),)


def _size(node: ir.Node, b: Builder, read: Placeholders) -> Sequence[Value]:
    (x,) = read.values()
    return (b.Identity(b.const(np.int64(prod(dims(x))), int64)),)
