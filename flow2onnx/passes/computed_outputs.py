"""Next values of state that are constants, made by a node that reads the state."""

import numpy as np
import onnx_ir as ir

from flow2onnx.dtypes import bool_
from flow2onnx.graph import Builder
from flow2onnx.graph.types import constant_of
from flow2onnx.passes.base import Pass, Placeholders, replace_node

__all__ = ["ComputedOutputs", "constant_outputs"]

_NEXT = "next/"


class ComputedOutputs(Pass):
    """Compute next values that are constants, which a runtime else copies from the host.

    Given:   next/count = Identity(zero)
    Result:  a = Identity(zero);  next/count = Where(false, count, a)
    Kept:    constants that are the next value of nothing that the graph reads

    The copy waits for the device, which no capture of a CUDA graph allows.
    """

    def run(self, graph: ir.Graph) -> bool:
        """Put a choice behind each node that makes such a value."""
        inputs = {f"{_NEXT}{v.name}": v for v in graph.inputs}
        found = [(node, inputs.get(name)) for name, node in _constant_nodes(graph)]
        states = [(node, state) for node, state in found if state is not None]
        for node, state in states:
            _replace(graph, node, state)
        return bool(states)


def constant_outputs(graph: ir.Graph) -> list[str]:
    """The names of the outputs that depend on no input."""
    stored = [str(v.name) for v in graph.outputs if v.producer() is None and not v.is_graph_input()]
    return stored + [name for name, _ in _constant_nodes(graph)]


def _constant_nodes(graph: ir.Graph) -> list[tuple[str, ir.Node]]:
    """The nodes that make an output of constants alone, with its name."""
    makers = [(str(v.name), v.producer()) for v in graph.outputs]
    return [(name, n) for name, n in makers if n is not None and _reads_constants(n)]


def _reads_constants(node: ir.Node) -> bool:
    return all(v is None or constant_of(v) is not None for v in node.inputs)


def _replace(graph: ir.Graph, node: ir.Node, state: ir.Value) -> None:
    def emit(b: Builder, read: Placeholders) -> tuple[ir.Value, ...]:
        operands = [v and read[v] for v in node.inputs]
        attributes = {name: a.value for name, a in node.attributes.items()}
        (made,) = b.emit(node.op_type, operands, attributes, 1)
        return (b.Where(b.const(np.array(False), bool_), read[state], made),)

    replace_node(graph, node, emit, [state])
