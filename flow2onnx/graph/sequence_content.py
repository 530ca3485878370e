"""What a sequence in the graph holds, found by those who make it."""

from collections.abc import Callable, Sequence

import onnx_ir as ir

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.sequences import SEQUENCES, Parts

__all__ = ["SEQUENCE_READERS", "MapBody", "read_sequence"]

# Operators that make a tensor of a sequence.
SEQUENCE_READERS = ("ConcatFromSequence", "SequenceAt")

# mapped(body, inputs of the body) -> its outputs
MapBody = Callable[[ir.Graph, Sequence[ir.Value | None]], Sequence[ir.Value | None]]


def read_sequence(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None], mapped: MapBody
) -> ir.Value:
    """The output of one of READERS, made of the tensors that its sequence holds."""
    made = SEQUENCES[node.op_type](b, node, [_elements(b, v, mapped) for v in inputs])
    assert isinstance(made, ir.Value), f"{node.op_type} makes a tensor"
    return b.Identity(made)


def _elements(b: Builder, value: ir.Value | None, mapped: MapBody) -> ir.Value | Parts | None:
    """The tensors that a sequence holds; other values as they are."""
    if value is None or not isinstance(value.type, ir.SequenceType):
        return value
    n = value.producer()
    inputs = [_elements(b, v, mapped) for v in n.inputs] if n is not None else []
    if n is not None and n.op_type == "Identity":
        return inputs[0]
    if n is not None and n.op_type == "SequenceMap":
        return _map_elements(n, inputs, list(n.outputs).index(value), mapped)
    if n is None or n.op_type not in SEQUENCES:
        raise UnsupportedError(
            "a sequence that the graph does not make itself has no known elements",
            hint="make it of tensors inside the model",
        )
    return SEQUENCES[n.op_type](b, n, inputs)


def _map_elements(
    n: ir.Node, inputs: Sequence[ir.Value | Parts | None], output: int, mapped: MapBody
) -> Parts:
    """What the graph inside a SequenceMap makes of each element."""
    body = n.attributes["body"].as_graph()
    first = inputs[0]
    assert isinstance(first, tuple), f"{n.name} maps a sequence"
    rows = [[v[i] if isinstance(v, tuple) else v for v in inputs] for i in range(len(first))]
    return tuple(v for row in rows if (v := mapped(body, row)[output]) is not None)
