"""Class numbers and numbers of rows: which inputs of a graph hold them, and for how many."""

from typing import NamedTuple

import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute

__all__ = ["IndexNumbers", "annotate_class_numbers", "index_numbers"]

_KEY = "class_numbers"
# What hands every element on, and nothing else.
_MOVES = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


class IndexNumbers(NamedTuple):
    """An input that a layer reads as numbers in [least, below), or `ignored`.

    Those of classes begin with 0; rows are counted from the end of a table by numbers below 0.
    """

    least: int
    below: int
    layer: str
    source: str | None
    ignored: int | None = None


def annotate_class_numbers(
    b: Builder, labels: ir.Value, scores: ir.Value, axis: int = -1, ignored: int | None = None
) -> None:
    """Say of the input that `labels` come from, if any, that it numbers the classes of `scores`."""
    value: ir.Value | None = labels
    while value is not None and (node := value.producer()) is not None:
        value = node.inputs[0] if node.op_type in _MOVES and not node.domain else None
    classes = _size(scores, axis)
    if value is None or classes is None or not value.is_graph_input():
        return
    known = value.meta.get(_KEY)
    made = IndexNumbers(0, classes, b.prefix, b.source, ignored)
    value.meta[_KEY] = made if known is None or made.below < known.below else known


def index_numbers(value: ir.Value) -> IndexNumbers | None:
    """The numbers that layers take an input for; None if they take it for none."""
    found: IndexNumbers | None = value.meta.get(_KEY)
    if found is not None or not isinstance(value.type, ir.TensorType):
        return found
    return _row_numbers(value) if value.type.dtype.is_integer() else None


def _row_numbers(value: ir.Value) -> IndexNumbers | None:
    """The rows of the smallest table that is read by the elements of an input."""
    smallest: IndexNumbers | None = None
    todo = [value]
    while todo:
        for node, position in todo.pop().uses():
            if node.op_type in _MOVES and not node.domain and position == 0:
                todo += node.outputs
            elif node.op_type == "Gather" and not node.domain and position == 1:
                rows = _size(node.inputs[0], attribute(node, "axis", 0))
                if rows and (smallest is None or rows < smallest.below):
                    source = node.meta.get("source")
                    smallest = IndexNumbers(-rows, rows, node.name or "", source)
    return smallest


def _size(value: ir.Value | None, axis: int) -> int | None:
    """The size of a value along an axis, if it is fixed."""
    if value is None or value.shape is None or not -len(value.shape) <= axis < len(value.shape):
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None
