"""Gradients of slices of one value, put side by side in place of added up.

The gradient of a slice is as large as the whole value: it is padded with zeros. Of n slices, as of
the steps of a sequence, n of those would be added, which takes time and memory by n². Slices that
do not overlap are one Concat, each padded only as far as the next begins; the result is the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flow2onnx.autodiff.registry import attribute
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import constant_of, sizes_of

__all__ = ["join_slices"]


class _Part(NamedTuple):
    """A gradient that stands at `start` to `end` of an axis with `length` elements, among zeros."""

    start: int
    end: int
    length: int
    gradient: Value


def join_slices(b: Builder, parts: Sequence[Value]) -> list[Value]:
    """Values with the sum of the parts, as few as can be without adding.

    Parts that are padded along one axis are joined with others of that axis; what overlaps goes to
    another Concat.
    """
    along: dict[int, list[_Part]] = defaultdict(list)
    others = []
    for value in parts:
        found = _unpad(value)
        if found is None:
            others.append(value)
        else:
            along[found[0]].append(found[1])
    if max(map(len, along.values()), default=0) < 2:
        return list(parts)
    for axis, found_parts in along.items():
        others += [_join(b, axis, layer) for layer in _layers(found_parts)]
    return others


def _unpad(value: Value) -> tuple[int, _Part] | None:
    """The axis that a value is padded with zeros along, and its part of it; None if none is."""
    node = value.producer()
    if node is None or node.op_type != "Pad" or attribute(node, "mode", "constant") != "constant":
        return None
    pads = constant_of(node.inputs[1])
    if pads is None or len(node.inputs) > 2 or node.inputs[0] is None:
        return None
    rank = len(pads) // 2
    axes = [i for i in range(rank) if pads[i] or pads[rank + i]]
    size = sizes_of(node.inputs[0])[axes[0]] if len(axes) == 1 else None
    if not isinstance(size, int) or min(pads) < 0:
        return None
    before, after = int(pads[axes[0]]), int(pads[rank + axes[0]])
    return axes[0], _Part(before, before + size, before + size + after, node.inputs[0])


def _layers(parts: Iterable[_Part]) -> list[list[_Part]]:
    """The parts in order, those that overlap in different layers: as few as there can be."""
    layers: list[list[_Part]] = []
    for part in sorted(parts, key=lambda p: (p.start, p.end)):
        free = next((layer for layer in layers if layer[-1].end <= part.start), None)
        if free is None:
            layers.append([part])
        else:
            free.append(part)
    return layers


def _join(b: Builder, axis: int, parts: Sequence[_Part]) -> Value:
    """The sum of parts in order that do not overlap."""
    nexts = [part.start for part in parts[1:]] + [parts[0].length]
    pieces = [
        _pad(b, part.gradient, axis, part.start if part is parts[0] else 0, stop - part.end)
        for part, stop in zip(parts, nexts, strict=True)
    ]
    return b.Concat(*pieces, axis=axis) if len(pieces) > 1 else pieces[0]


def _pad(b: Builder, value: Value, axis: int, before: int, after: int) -> Value:
    if not before and not after:
        return value
    pads = [0] * (2 * len(sizes_of(value)))
    pads[axis], pads[len(pads) // 2 + axis] = before, after
    return b.Pad(value, pads)
