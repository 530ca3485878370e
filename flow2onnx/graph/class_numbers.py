"""Class numbers: which inputs of a graph hold them, and for how many classes."""

from typing import NamedTuple

import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.types import dims

__all__ = ["ClassNumbers", "annotate_class_numbers", "class_numbers"]

_KEY = "class_numbers"
# What hands every element on, and nothing else.
_MOVES = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


class ClassNumbers(NamedTuple):
    """An input that a layer reads as numbers in [0, classes)."""

    classes: int
    layer: str
    source: str | None


def annotate_class_numbers(b: Builder, labels: ir.Value, scores: ir.Value) -> None:
    """Say of the input that `labels` come from, if any, that it numbers the classes of `scores`."""
    value: ir.Value | None = labels
    while value is not None and (node := value.producer()) is not None:
        value = node.inputs[0] if node.op_type in _MOVES and not node.domain else None
    if value is None or not value.is_graph_input():
        return
    known = value.meta.get(_KEY)
    made = ClassNumbers(dims(scores)[-1], b.prefix, b.source)
    value.meta[_KEY] = made if known is None or made.classes < known.classes else known


def class_numbers(value: ir.Value) -> ClassNumbers | None:
    """The class numbers that a layer takes an input for; None if it takes it for none."""
    found: ClassNumbers | None = value.meta.get(_KEY)
    return found
