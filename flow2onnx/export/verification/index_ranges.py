"""The whole numbers that an input may hold, by what the graph indexes or divides with it."""

from collections.abc import Mapping

import onnx
from flow2onnx_runtime.dtypes import Array

__all__ = ["index_ranges"]

Shapes = Mapping[str, tuple[int, ...]]
Range = tuple[int, int]  # from the first, below the second

# What shows the same numbers, or some of them, in another place or type.
_SAME = {
    "Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Tile",
    "Transpose", "Unsqueeze",
}  # fmt: skip
_DIVIDES = ("Div", "Mod")
_DIVISORS: Range = (1, 3)
_BY_AXIS = {"Gather": 0, "GatherElements": 0, "ScatterElements": 0}


def index_ranges(
    graph: onnx.GraphProto, shapes: Shapes, constants: Mapping[str, Array]
) -> dict[str, Range]:
    """The range of each value that must stay in one: indices, labels, divisors."""
    ranges: dict[str, Range] = {}
    for node in reversed(graph.node):
        if node.op_type in _SAME:
            found = [ranges[o] for o in node.output if o in ranges]
            for name in node.input if node.op_type == "Concat" else node.input[:1]:
                _note(ranges, name, found)
        elif node.op_type in _DIVIDES:
            _note(ranges, node.input[1], [_DIVISORS])
        elif len(node.input) > 1:
            name, size = _index_input(node, shapes, constants)
            _note(ranges, name, [(0, max(size, 1))] if size is not None else [])
    return ranges


def _note(ranges: dict[str, Range], name: str, found: list[Range]) -> None:
    for low, high in found:
        known = ranges.get(name, (low, high))
        ranges[name] = max(low, known[0]), min(high, known[1])


def _index_input(
    node: onnx.NodeProto, shapes: Shapes, constants: Mapping[str, Array]
) -> tuple[str, int | None]:
    """The input that a node indexes with, and the size of what it indexes if that is known."""
    shape = shapes.get(node.input[0], ())
    if node.op_type in _BY_AXIS:
        axis = next((a.i for a in node.attribute if a.name == "axis"), _BY_AXIS[node.op_type])
        return node.input[1], shape[axis] if -len(shape) <= axis < len(shape) else None
    if node.op_type in ("GatherND", "ScatterND"):
        depth = shapes.get(node.input[1], (0,))[-1]
        return node.input[1], min(shape[:depth], default=None)
    if node.op_type in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        return node.input[1], shape[1] if len(shape) > 1 else None
    depths = constants.get(node.input[1]) if node.op_type == "OneHot" else None
    return node.input[0], None if depths is None else int(depths.ravel()[0])
