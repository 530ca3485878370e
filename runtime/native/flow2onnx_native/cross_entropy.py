"""Cross entropies of classes and their gradients, as one operator: `CrossEntropy`."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, MOST_DIMENSIONS, MOST_TASKS
from flow2onnx_native.gather_scatter import IndexOrigin, plain_indices
from flow2onnx_native.graph import (
    dims,
    is_float,
    is_standard,
    is_static,
    number,
    only_user,
    replace_value,
    size,
    values_read,
)

__all__ = ["replace_cross_entropies"]

_SPREADING = ("Expand", "Identity", "Reshape", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class _Gradient:
    """factor * (e^scores - one at the column of each row), scores = LogSoftmax(logits)."""

    node: ir.Node
    logits: ir.Value
    scores: ir.Value
    column: ir.Value
    factor: ir.Value


def replace_cross_entropies(
    graph: ir.Graph, operators: Collection[str], threads: int, index_origin: IndexOrigin
) -> None:
    """Put `CrossEntropy` in the place of softmax - onehot times a factor, and of -log softmax.

    What computed them before stays, unread unless somebody else reads it.
    """
    if "CrossEntropy" not in operators:
        return
    for node in list(graph):
        gradient = _gradient(node)
        if gradient is not None:
            _replace(graph, gradient, _losses(gradient), threads, index_origin)


def _replace(
    graph: ir.Graph,
    gradient: _Gradient,
    losses: ir.Value | None,
    threads: int,
    index_origin: IndexOrigin,
) -> None:
    labels = plain_indices(gradient.column, dims(gradient.logits)[-1], index_origin)
    shape = dims(gradient.column if losses is None else losses)
    tasks = min(max(threads, 1), MOST_TASKS)
    native = ir.Node(
        DOMAIN, "CrossEntropy", [gradient.logits, labels, gradient.factor],
        [ir.AttrInt64("tasks", tasks), ir.AttrInt64s("shape", shape)],
        num_outputs=2, name=gradient.node.name,
    )  # fmt: skip
    graph.insert_after(gradient.node, native)
    replace_value(gradient.node.outputs[0], native.outputs[1])
    if losses is not None:
        replace_value(losses, native.outputs[0])


def _gradient(node: ir.Node) -> _Gradient | None:
    """The gradient times a factor, in either order, that a multiplication computes, or None."""
    if not _is(node, "Mul"):
        return None
    for difference, factor in (node.inputs, node.inputs[::-1]):
        scatter = difference.producer() if difference is not None else None
        if scatter is None or factor is None or not _subtracts_one(scatter):
            continue
        powers, column, _ = (v for v in scatter.inputs if v is not None)
        single = _before_spreading(factor)
        softmax = _softmax(powers)
        if softmax is None or not (size(single) == 1 or dims(single) == dims(column)):
            continue
        (logits,) = (v for v in softmax.inputs if v is not None)
        if _is_last(scatter, "axis", 0) and dims(column) == (*dims(logits)[:-1], 1):
            return _Gradient(node, logits, softmax.outputs[0], column, single)
    return None


def _is(node: ir.Node | None, name: str) -> bool:
    """True if a node is this standard operator, over tensors of known sizes."""
    return (
        node is not None
        and is_standard(node, name)
        and all(v is not None and is_static(v) for v in (*node.inputs, *node.outputs))
    )


def _is_last(node: ir.Node, name: str, default: int) -> bool:
    """True if an attribute names the last axis."""
    return number(node, name, default) in (-1, len(dims(node.outputs[0])) - 1)


def _subtracts_one(scatter: ir.Node) -> bool:
    """True if a node takes one from each of the elements that indices name."""
    reduction = scatter.attributes.get("reduction")
    if not _is(scatter, "ScatterElements") or reduction is None or scatter.inputs[2] is None:
        return False
    added = _before_spreading(scatter.inputs[2]).const_value
    is_one = added is not None and bool(np.all(added.numpy() == -1))
    return is_one and reduction.as_string() == "add"


def _softmax(powers: ir.Value) -> ir.Node | None:
    """The LogSoftmax of rows of floats whose powers these are."""
    exp = powers.producer()
    scores = exp.inputs[0] if exp is not None and _is(exp, "Exp") else None
    softmax = scores.producer() if scores is not None else None
    if softmax is None or not _is(softmax, "LogSoftmax") or not _is_last(softmax, "axis", -1):
        return None
    is_fit = is_float(powers) and len(dims(powers)) <= MOST_DIMENSIONS
    return softmax if is_fit and size(powers) > 0 else None


def _before_spreading(value: ir.Value) -> ir.Value:
    """The one number that all elements of a value are, if it is spread so; else the value."""
    source, found = value, value
    while (node := source.producer()) is not None and is_standard(node, *_SPREADING):
        nearer = node.inputs[0]
        if nearer is None or not is_static(nearer):
            break
        source = nearer
        found = source if size(source) == 1 else found
    return found


def _losses(gradient: _Gradient) -> ir.Value | None:
    """The value that is minus the score of each label, unless the factor is made of it."""
    for gather in (use.node for use in gradient.scores.uses()):
        if not _is(gather, "GatherElements") or gather.inputs[1] is not gradient.column:
            continue
        if not _is_last(gather, "axis", 0):
            continue
        node = only_user(gather.outputs[0])
        if node is not None and _is(node, "Reshape"):
            node = only_user(node.outputs[0])
        if node is None or not _is(node, "Neg") or _depends(gradient.factor, node):
            continue
        if len(dims(node.outputs[0])) <= MOST_DIMENSIONS:
            return node.outputs[0]
    return None


def _depends(value: ir.Value, node: ir.Node) -> bool:
    """True if a value is made of what a node computes."""
    seen: set[ir.Node] = set()
    pending = [value]
    while pending:
        maker = pending.pop().producer()
        if maker is node:
            return True
        if maker is not None and maker not in seen:
            seen.add(maker)
            pending += values_read(maker)
    return False
