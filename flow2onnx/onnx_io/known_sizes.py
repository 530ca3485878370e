"""A model as it is for sizes of its free axes, such as one row."""

import math
from collections.abc import Mapping

import onnx_ir as ir

from flow2onnx.graph import Model

__all__ = ["known_sizes"]


def known_sizes(model: Model, sizes: Mapping[str, int]) -> Model:
    """A copy of a model whose values all have known sizes: what `sizes` do not name counts as 1."""
    copy = model.clone()
    values = [v for node in copy.graph.all_nodes() for v in node.outputs]
    for value in (*copy.graph.inputs, *values):
        if value.shape is not None and not value.shape.is_static():
            found = [d if isinstance(d, int) else _size(d.value, sizes) for d in value.shape]
            value.shape = ir.Shape(found)
    return copy


def _size(name: str | None, sizes: Mapping[str, int]) -> int:
    """The size of an axis such as ``2*sequence``; 1 where nothing of it is known."""
    parts = (name or "").split("*")
    if not any(part in sizes for part in parts):
        return 1
    return math.prod(int(p) if p.isdigit() else sizes.get(p, 1) for p in parts)
