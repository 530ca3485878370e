"""Sizes known at run time only: their names, where each is read, and how large it may be."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from flow2onnx.graph.types import constant_of

__all__ = ["Bounds", "Extent", "bounds_known", "largest"]

# For each dimension the most it may be; None where nothing says.
Bounds = tuple[int | None, ...]


@dataclass(frozen=True)
class Extent:
    """A size that has a name: that of `value` along `axis`, at most `bound`."""

    value: ir.Value
    axis: int
    bound: int | None


def bounds_known(value: ir.Value | None) -> Bounds:
    """The most that each dimension of a value may be."""
    if value is None or value.shape is None:
        return ()
    said: Bounds | None = value.meta.get("bounds")
    return said or tuple(d if isinstance(d, int) else None for d in value.shape)


def largest(node: ir.Node, found: Sequence[onnx.TypeProto | None]) -> list[Bounds]:
    """The bounds of every output; `found` is what inference gives for inputs at their bounds."""
    return [_largest(node, v, proto) for v, proto in zip(node.outputs, found, strict=True)]


def _largest(node: ir.Node, value: ir.Value, proto: onnx.TypeProto | None) -> Bounds:
    rank = 0 if value.shape is None else len(value.shape)
    own = _BOUNDS.get(node.op_type)
    other = own(node) if own is not None else _widest(node, rank)
    if node.op_type == "Unique" and value is not node.outputs[0]:
        axis = node.attributes.get("axis")  # beside the values numbers, one for each of them
        other = (other[axis.as_int() if axis else 0],)
    shape = proto.tensor_type.shape.dim if proto is not None else ()
    if len(shape) != rank:
        return other
    known = (d.dim_value if d.HasField("dim_value") else None for d in shape)
    return tuple(d if e is None else e for d, e in zip(other, known, strict=True))


def _widest(node: ir.Node, rank: int) -> Bounds:
    """The largest of the operands' bounds, for broadcasts whose bounds do not fit each other."""
    if node.op_type not in _BROADCASTS:
        return (None,) * rank
    shapes = [(1,) * (rank - len(s)) + s for s in map(bounds_known, node.inputs) if len(s) <= rank]
    return tuple(
        None if None in sizes else max(d for d in sizes if d is not None)
        for sizes in zip(*shapes, strict=True)
    )


def _count(bounds: Bounds) -> int | None:
    return None if None in bounds else math.prod(d for d in bounds if d is not None)


def _whole(node: ir.Node) -> Bounds:
    return bounds_known(node.inputs[0])


def _non_zero(node: ir.Node) -> Bounds:
    return len(_whole(node)), _count(_whole(node))


def _along(node: ir.Node) -> Bounds:
    """At most all of the input: along an axis, or of all its elements."""
    axis = node.attributes.get("axis")
    return _whole(node) if axis is not None else (_count(_whole(node)),)


def _reshaped(node: ir.Node) -> Bounds:
    operand = node.inputs[1]
    assert operand is not None, "a Reshape has a shape"
    content = constant_of(operand)
    sizes = operand.meta.get("sizes") if content is None else [int(d) for d in content]
    rank = len(node.outputs[0].shape or ())
    if sizes is None or any(isinstance(d, str) for d in sizes):
        return (None,) * rank
    known, total = math.prod(d for d in sizes if d > 0), _count(_whole(node))
    rest = None if total is None else total // max(known * _copied(node, sizes), 1)
    return tuple(d if d > 0 else _whole(node)[i] if d == 0 else rest for i, d in enumerate(sizes))


def _copied(node: ir.Node, sizes: Sequence[int]) -> int:
    """The product of the dimensions that a Reshape takes over from its input."""
    return math.prod(_whole(node)[i] or 1 for i, d in enumerate(sizes) if d == 0)


def _boxes(node: ir.Node) -> Bounds:
    images, classes, boxes = bounds_known(node.inputs[1])
    most = constant_of(node.inputs[2]) if len(node.inputs) > 2 else None
    kept = boxes if most is None or boxes is None else min(boxes, int(most.ravel()[0]))
    return _count((images, classes, kept)), 3


_BROADCASTS = frozenset(
    {"Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max",
     "Min", "Mod", "Mul", "Or", "Pow", "Sub", "Sum", "Where"}
)  # fmt: skip

_BOUNDS: dict[str, Callable[[ir.Node], Bounds]] = {
    "Compress": _along,
    "NonMaxSuppression": _boxes,
    "NonZero": _non_zero,
    "Reshape": _reshaped,
    "Unique": _along,
    "Slice": _whole,
}
