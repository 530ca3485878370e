"""Cross entropies of classes and what they hand back, as one operator of the native library."""

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.nodes import read_values
from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.passes.base import only_user
from flow2onnx.passes.native.operations import number
from flow2onnx.passes.native.programs import DOMAIN, take_place
from flow2onnx.passes.native.rows import MOST_DIMENSIONS, MOST_TASKS, plain_indices

__all__ = ["use_native_losses"]

_SPREADING = ("Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class _Slopes:
    """factor * (e^scores - one at the column of each row), scores = LogSoftmax(logits)."""

    node: ir.Node
    logits: ir.Value
    scores: ir.Value
    column: ir.Value
    factor: ir.Value


def use_native_losses(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put `CrossEntropy` in the place of softmax - onehot times a factor, and of -log softmax.

    What computed them before stays, unread unless somebody else reads it.
    """
    if "CrossEntropy" not in operators:
        return
    for node in list(graph):
        slopes = _slopes(node)
        if slopes is not None:
            _replace(graph, slopes, _losses(slopes), min(max(threads, 1), MOST_TASKS))


def _replace(graph: ir.Graph, slopes: _Slopes, losses: ir.Value | None, tasks: int) -> None:
    labels = plain_indices(slopes.column, dims(slopes.logits)[-1])
    shape = dims(slopes.column if losses is None else losses)
    made = ir.Node(
        DOMAIN, "CrossEntropy", [slopes.logits, labels, slopes.factor],
        [ir.AttrInt64("tasks", tasks), ir.AttrInt64s("shape", shape)],
        num_outputs=2, name=slopes.node.name,
    )  # fmt: skip
    graph.insert_after(slopes.node, made)
    take_place(graph, slopes.node.outputs[0], made.outputs[1])
    if losses is not None:
        take_place(graph, losses, made.outputs[0])


def _slopes(node: ir.Node) -> _Slopes | None:
    """What a multiplication makes, if it is slopes times a factor in either order."""
    if not _is(node, "Mul"):
        return None
    for difference, factor in (node.inputs, node.inputs[::-1]):
        scatter = difference.producer() if difference is not None else None
        if scatter is None or factor is None or not _takes_one(scatter):
            continue
        powers, column, _ = (v for v in scatter.inputs if v is not None)
        single = _single(factor)
        softmax = _softmax(powers)
        if softmax is None or not (_size(single) == 1 or dims(single) == dims(column)):
            continue
        (logits,) = (v for v in softmax.inputs if v is not None)
        if _is_last(scatter, "axis", 0) and dims(column) == (*dims(logits)[:-1], 1):
            return _Slopes(node, logits, softmax.outputs[0], column, single)
    return None


def _is(node: ir.Node | None, name: str) -> bool:
    """Whether a node is this standard operator, over tensors of known sizes."""
    return (
        node is not None
        and node.domain == ""
        and node.op_type == name
        and all(v is not None and is_static(v) for v in (*node.inputs, *node.outputs))
    )


def _is_last(node: ir.Node, name: str, default: int) -> bool:
    """Whether an attribute names the last axis."""
    return number(node, name, default) in (-1, len(dims(node.outputs[0])) - 1)


def _takes_one(scatter: ir.Node) -> bool:
    """Whether a node takes one from each of the elements that indices name."""
    reduction = scatter.attributes.get("reduction")
    if not _is(scatter, "ScatterElements") or reduction is None or scatter.inputs[2] is None:
        return False
    added = _single(scatter.inputs[2]).const_value
    is_one = added is not None and bool(np.all(added.numpy() == -1))
    return is_one and reduction.as_string() == "add"


def _softmax(powers: ir.Value) -> ir.Node | None:
    """The LogSoftmax of rows of floats whose powers these are."""
    exp = powers.producer()
    scores = exp.inputs[0] if exp is not None and _is(exp, "Exp") else None
    softmax = scores.producer() if scores is not None else None
    if softmax is None or not _is(softmax, "LogSoftmax") or not _is_last(softmax, "axis", -1):
        return None
    shape = dims(powers)
    is_fit = dtype_of(powers).name == "float32" and len(shape) <= MOST_DIMENSIONS
    return softmax if is_fit and _size(powers) > 0 else None


def _single(value: ir.Value) -> ir.Value:
    """The one number that all elements of a value are, if it is spread so; else the value."""
    source, found = value, value
    while (node := source.producer()) is not None and node.domain == "":
        nearer = node.inputs[0] if node.op_type in _SPREADING else None
        if nearer is None or not is_static(nearer):
            break
        source = nearer
        found = source if _size(source) == 1 else found
    return found


def _losses(slopes: _Slopes) -> ir.Value | None:
    """What is minus the score of each label, unless the factor is made of it."""
    for gather in (use.node for use in slopes.scores.uses()):
        if not _is(gather, "GatherElements") or gather.inputs[1] is not slopes.column:
            continue
        if not _is_last(gather, "axis", 0):
            continue
        node = only_user(gather.outputs[0])
        if node is not None and _is(node, "Reshape"):
            node = only_user(node.outputs[0])
        if node is None or not _is(node, "Neg") or _depends(slopes.factor, node):
            continue
        if len(dims(node.outputs[0])) <= MOST_DIMENSIONS:
            return node.outputs[0]
    return None


def _depends(value: ir.Value, node: ir.Node) -> bool:
    """Whether a value is made of what a node makes."""
    seen: set[ir.Node] = set()
    pending = [value]
    while pending:
        maker = pending.pop().producer()
        if maker is node:
            return True
        if maker is not None and maker not in seen:
            seen.add(maker)
            pending += [v for v in read_values(maker) if v is not None]
    return False


def _size(value: ir.Value) -> int:
    return math.prod(dims(value))
