"""Sequences of tensors, known while a graph is built: gone from the graph itself."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import constant_of, dims
from flow2onnx.graph.unroll import MOST_ITERATIONS

__all__ = ["SEQUENCES", "SEQUENCE_READERS", "MapBody", "Parts", "read_sequence"]

Parts = tuple[ir.Value, ...]
Operand = ir.Value | Parts | None
Operands = Sequence[Operand]
# map_body(body, inputs of the body) -> its outputs
MapBody = Callable[[ir.Graph, Sequence[ir.Value | None]], Sequence[ir.Value | None]]


def _split(b: Builder, node: ir.Node, inputs: Operands) -> Parts:
    x = _tensor(node, inputs[0])
    axis = attribute(node, "axis", 0) % max(len(dims(x)), 1)
    size = dims(x)[axis]
    given = (
        _constant_integers(node, inputs[1]) if len(inputs) > 1 and inputs[1] is not None else None
    )
    step = 1 if given is None or given.ndim else max(int(given), 1)
    if size > MOST_ITERATIONS * step and (given is None or not given.ndim):
        raise UnsupportedError(
            f"SplitToSequence makes {-(-size // step)} parts; {MOST_ITERATIONS} are the most"
        )
    if given is None:
        sizes = [1] * size
    elif given.ndim:
        sizes = [int(n) for n in given]
    else:
        step = int(given)
        if step < 1:
            raise UnsupportedError(f"SplitToSequence into parts of {step}")
        sizes = [min(step, size - start) for start in range(0, size, step)]
    parts = b.several("Split", x, np.asarray(sizes, np.int64), axis=axis, outputs=len(sizes))
    if given is None and not attribute(node, "keepdims", 1):
        return tuple(b.Squeeze(part, [axis]) for part in parts)
    return parts


def _construct(b: Builder, node: ir.Node, inputs: Operands) -> Parts:
    return tuple(_tensor(node, v) for v in inputs)


def _at(b: Builder, node: ir.Node, inputs: Operands) -> ir.Value:
    parts, place = _parts(node, inputs[0]), int(_constant_integers(node, inputs[1]))
    if not -len(parts) <= place < len(parts):
        raise UnsupportedError(f"SequenceAt takes number {place} of {len(parts)}")
    return parts[place]


def _length(b: Builder, node: ir.Node, inputs: Operands) -> ir.Value:
    return b.const(np.asarray(len(_parts(node, inputs[0])), np.int64))


def _insert(b: Builder, node: ir.Node, inputs: Operands) -> Parts:
    parts = list(_parts(node, inputs[0]))
    place = int(_constant_integers(node, inputs[2])) if len(inputs) > 2 else len(parts)
    parts.insert(place, _tensor(node, inputs[1]))
    return tuple(parts)


def _erase(b: Builder, node: ir.Node, inputs: Operands) -> Parts:
    parts = list(_parts(node, inputs[0]))
    del parts[int(_constant_integers(node, inputs[1])) if len(inputs) > 1 else -1]
    return tuple(parts)


def _concat(b: Builder, node: ir.Node, inputs: Operands) -> ir.Value:
    parts, axis = _parts(node, inputs[0]), attribute(node, "axis", 0)
    if attribute(node, "new_axis", 0):
        parts = tuple(b.Unsqueeze(part, [axis]) for part in parts)
    return b.Concat(*parts, axis=axis)


def _empty(b: Builder, node: ir.Node, inputs: Operands) -> Parts:
    return ()


# What makes a tensor or a sequence, which is a tuple, of the operands of a node.
SEQUENCES: dict[str, Callable[[Builder, ir.Node, Operands], ir.Value | Parts]] = {
    "ConcatFromSequence": _concat,
    "SequenceAt": _at,
    "SequenceConstruct": _construct,
    "SequenceEmpty": _empty,
    "SequenceErase": _erase,
    "SequenceInsert": _insert,
    "SequenceLength": _length,
    "SplitToSequence": _split,
}
# Those that make a tensor.
SEQUENCE_READERS = ("ConcatFromSequence", "SequenceAt")


def _tensor(node: ir.Node, operand: Operand) -> ir.Value:
    if isinstance(operand, ir.Value):
        return operand
    raise UnsupportedError(f"{node.op_type} of a sequence of sequences is not supported")


def _parts(node: ir.Node, operand: Operand) -> Parts:
    if isinstance(operand, tuple):
        return operand
    raise UnsupportedError(
        f"{node.op_type} of a sequence that is known only at run time",
        hint="export the model with tensors instead of lists",
    )


def _constant_integers(
    node: ir.Node, operand: Operand
) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    content = constant_of(operand) if isinstance(operand, ir.Value) else None
    if content is None:
        raise UnsupportedError(
            f"{node.op_type} by a number that is known only at run time",
            hint="export the model with numbers that are fixed",
        )
    return content


def read_sequence(
    b: Builder, node: ir.Node, inputs: Sequence[ir.Value | None], map_body: MapBody
) -> ir.Value:
    """The output of one of `SEQUENCE_READERS`, made of the tensors that its sequence holds."""
    made = SEQUENCES[node.op_type](b, node, [_elements(b, v, map_body) for v in inputs])
    assert isinstance(made, ir.Value), f"{node.op_type} makes a tensor"
    return b.Identity(made)


def _elements(b: Builder, value: ir.Value | None, map_body: MapBody) -> ir.Value | Parts | None:
    """The tensors that a sequence holds; other values as they are."""
    if value is None or not isinstance(value.type, ir.SequenceType):
        return value
    n = value.producer()
    inputs = [_elements(b, v, map_body) for v in n.inputs] if n is not None else []
    if n is not None and n.op_type == "Identity":
        return inputs[0]
    if n is not None and n.op_type == "SequenceMap":
        return _map_elements(n, inputs, list(n.outputs).index(value), map_body)
    if n is None or n.op_type not in SEQUENCES:
        raise UnsupportedError(
            "a sequence that the graph does not make itself has no known elements",
            hint="make it of tensors inside the model",
        )
    return SEQUENCES[n.op_type](b, n, inputs)


def _map_elements(
    n: ir.Node, inputs: Sequence[ir.Value | Parts | None], output: int, map_body: MapBody
) -> Parts:
    """An output of the graph inside a SequenceMap for each element."""
    body = n.attributes["body"].as_graph()
    first = inputs[0]
    assert isinstance(first, tuple), f"{n.name} maps a sequence"
    rows = [[v[i] if isinstance(v, tuple) else v for v in inputs] for i in range(len(first))]
    return tuple(v for row in rows if (v := map_body(body, row)[output]) is not None)
