"""Symbolic sizes, known at run time only: their names, where they are read, upper bounds."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import constant_of

__all__ = ["Bounds", "SymbolicSize", "known_bounds", "output_bounds"]

# For each dimension the most it may be; None where nothing says.
Bounds = tuple[int | None, ...]


@dataclass(frozen=True)
class SymbolicSize:
    """A size that has a name: that of `value` along `axis`, at most `bound`."""

    value: ir.Value
    axis: int
    bound: int | None


def known_bounds(value: ir.Value | None) -> Bounds:
    """The most that each dimension of a value may be."""
    if value is None or value.shape is None:
        return ()
    said: Bounds | None = value.meta.get("bounds")
    return said or tuple(d if isinstance(d, int) else None for d in value.shape)


def output_bounds(node: ir.Node, found: Sequence[onnx.TypeProto | None]) -> list[Bounds]:
    """The bounds of every output; `found` is what inference gives for inputs at their bounds."""
    return [_bounds_of_output(node, v, proto) for v, proto in zip(node.outputs, found, strict=True)]


def _bounds_of_output(node: ir.Node, value: ir.Value, proto: onnx.TypeProto | None) -> Bounds:
    rank = 0 if value.shape is None else len(value.shape)
    own = _BOUNDS.get(node.op_type)
    other = own(node) if own is not None else _broadcast_bounds(node, rank)
    if node.op_type == "Unique" and value is not node.outputs[0]:
        # beside the values numbers, one for each of them
        other = (other[attribute(node, "axis", 0)],)
    shape = proto.tensor_type.shape.dim if proto is not None else ()
    if len(shape) != rank:
        return other
    known = (d.dim_value if d.HasField("dim_value") else None for d in shape)
    return tuple(d if e is None else e for d, e in zip(other, known, strict=True))


def _broadcast_bounds(node: ir.Node, rank: int) -> Bounds:
    """The largest of the operands' bounds, for broadcasts whose bounds do not fit each other."""
    if node.op_type not in _BROADCASTS:
        return (None,) * rank
    shapes = [(1,) * (rank - len(s)) + s for s in map(known_bounds, node.inputs) if len(s) <= rank]
    return tuple(
        None if None in sizes else max(d for d in sizes if d is not None)
        for sizes in zip(*shapes, strict=True)
    )


def _element_count(bounds: Bounds) -> int | None:
    return None if None in bounds else math.prod(d for d in bounds if d is not None)


def _input_bounds(node: ir.Node) -> Bounds:
    return known_bounds(node.inputs[0])


def _non_zero_bounds(node: ir.Node) -> Bounds:
    return len(_input_bounds(node)), _element_count(_input_bounds(node))


def _selection_bounds(node: ir.Node) -> Bounds:
    """At most all of the input: along an axis, or of all its elements."""
    is_whole = "axis" in node.attributes
    return _input_bounds(node) if is_whole else (_element_count(_input_bounds(node)),)


def _reshape_bounds(node: ir.Node) -> Bounds:
    operand = node.inputs[1]
    assert operand is not None, "a Reshape has a shape"
    content = constant_of(operand)
    sizes = operand.meta.get("sizes") if content is None else [int(d) for d in content]
    rank = len(node.outputs[0].shape or ())
    if sizes is None or any(isinstance(d, str) for d in sizes):
        return (None,) * rank
    known, total = math.prod(d for d in sizes if d > 0), _element_count(_input_bounds(node))
    rest = None if total is None else total // max(known * _copied_count(node, sizes), 1)
    return tuple(
        d if d > 0 else _input_bounds(node)[i] if d == 0 else rest for i, d in enumerate(sizes)
    )


def _copied_count(node: ir.Node, sizes: Sequence[int]) -> int:
    """The product of the dimensions that a Reshape takes over from its input."""
    return math.prod(_input_bounds(node)[i] or 1 for i, d in enumerate(sizes) if d == 0)


def _box_bounds(node: ir.Node) -> Bounds:
    images, classes, boxes = known_bounds(node.inputs[1])
    most = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    kept = boxes if most is None or boxes is None else min(boxes, int(most.ravel()[0]))
    return _element_count((images, classes, kept)), 3


_BROADCASTS = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
     "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where"}
)  # fmt: skip

_BOUNDS: dict[str, Callable[[ir.Node], Bounds]] = {
    "Compress": _selection_bounds,
    "NonMaxSuppression": _box_bounds,
    "NonZero": _non_zero_bounds,
    "Reshape": _reshape_bounds,
    "Unique": _selection_bounds,
    "Slice": _input_bounds,
}
