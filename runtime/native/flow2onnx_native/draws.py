"""Draws that are counted, not made by a generator: which places of a tensor are kept, `Draw`."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from flow2onnx_native import abi
from flow2onnx_native.graph import (
    VIEWS,
    dims,
    is_standard,
    is_static,
    replace_value,
    scalar,
    size,
)

__all__ = ["CountedDraw", "counted_draw", "replace_draws"]


@dataclass(frozen=True)
class CountedDraw:
    """The numbers of an `abi.Draw`, and the values that hold its counters."""

    start: int
    step: int
    least: int
    counters: tuple[ir.Value, ...]

    @property
    def record(self) -> abi.Draw:
        """The attribute `draw` of an operator."""
        return abi.Draw(self.start, self.step, self.least, len(self.counters))


def replace_draws(graph: ir.Graph, operators: Collection[str]) -> None:
    """Put `Draw` in the place of counted draws; what computed them before stays, unread."""
    if "Draw" not in operators:
        return
    for node in [n for n in graph if is_standard(n, "GreaterOrEqual")]:
        draw = counted_draw(node.outputs[0])
        if draw is None:
            continue
        attributes = [
            ir.AttrInt64s("draw", [*draw.record]),
            ir.AttrInt64s("shape", dims(node.outputs[0])),
        ]
        made = ir.Node(abi.DOMAIN, "Draw", draw.counters, attributes, num_outputs=1, name=node.name)
        graph.insert_after(node, made)
        replace_value(node.outputs[0], made.outputs[0])


def counted_draw(mask: ir.Value | None) -> CountedDraw | None:
    """The draw that truths are, at places counted in row-major order; None for other truths."""
    node = mask.producer() if mask is not None else None
    if mask is None or node is None or not is_standard(node, "GreaterOrEqual"):
        return None
    least = _number(node.inputs[1])
    is_known = is_static(mask) and 0 < size(mask) < abi.MOST_DRAWN
    if least is None or not 0 < least <= abi.DRAW_PRIME or not is_known:
        return None
    for places, key, step in _hashes(_behind_views(node.inputs[0])):
        found = _key(key)
        if found is not None and _counts(places) == size(mask) and found[1]:
            start, counters = found
            return CountedDraw(start, step, least, counters)
    return None


def _hashes(value: ir.Value | None) -> Iterator[tuple[ir.Value, ir.Value, int]]:
    """The places, the key and the step of which ((places + key)^5 + (key + step)^5)^5 is made."""
    for first, second in _summands(_fifth_root(value)):
        for key, steps in _summands(_fifth_root(second)):
            step = _number(steps)
            for places, other in _summands(_fifth_root(first)):
                if other is key and step is not None and 0 <= step < abi.DRAW_PRIME:
                    yield places, key, step


def _key(value: ir.Value) -> tuple[int, tuple[ir.Value, ...]] | None:
    """The number that a key begins with, and the counters that are mixed into it one by one."""
    start = _number(value)
    if start is not None:
        return (start, ()) if 0 <= start < abi.DRAW_PRIME else None
    for before, reduced in _summands(_fifth_root(value)):
        counter, found = _remainder(reduced), _key(before)
        if counter is not None and found is not None and len(found[1]) < abi.MOST_COUNTERS:
            is_one = is_static(counter) and size(counter) == 1
            is_whole = counter.dtype == ir.DataType.INT64
            return (found[0], (*found[1], counter)) if is_one and is_whole else None
    return None


def _counts(places: ir.Value) -> int | None:
    """The number of places that a value counts from 0 on; None if it does not."""
    node = places.producer()
    if node is None or not is_standard(node, "Range"):
        return None
    first, end, step = map(_number, node.inputs)
    return end if (first, step) == (0, 1) else None


def _behind_views(value: ir.Value | None) -> ir.Value | None:
    """The value of which this one is another shape."""
    while value is not None and is_standard(value.producer(), *VIEWS):
        node = value.producer()
        value = node.inputs[0] if node is not None else None
    return value


def _fifth_root(value: ir.Value | None) -> ir.Value | None:
    """The value x of which x^5 modulo the prime is this one."""
    for fourth, x in _operands(_remainder(value), "Mul"):
        square = _square_root(fourth)
        if square is not None and _square_root(square) is x:
            return x
    return None


def _square_root(value: ir.Value) -> ir.Value | None:
    """The value x of which x^2 modulo the prime is this one."""
    return next((x for x, other in _operands(_remainder(value), "Mul") if x is other), None)


def _remainder(value: ir.Value | None) -> ir.Value | None:
    """The value of which this one is the remainder modulo the prime, of the divisor's sign."""
    node = value.producer() if value is not None else None
    if node is None or not is_standard(node, "Mod") or _number(node.inputs[1]) != abi.DRAW_PRIME:
        return None
    return node.inputs[0]


def _summands(value: ir.Value | None) -> Iterator[tuple[ir.Value, ir.Value]]:
    return _operands(value, "Add")


def _operands(value: ir.Value | None, op_type: str) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The two operands of the operator that makes a value, in both orders."""
    node = value.producer() if value is not None else None
    if node is not None and is_standard(node, op_type):
        a, b = node.inputs
        if a is not None and b is not None:
            yield from ((a, b), (b, a))


def _number(value: ir.Value | None) -> int | None:
    """The whole number that a constant of one element is."""
    found = scalar(value)
    is_whole = value is not None and value.dtype == ir.DataType.INT64
    return int(found) if found is not None and is_whole else None
