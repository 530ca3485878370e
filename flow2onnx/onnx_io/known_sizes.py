"""A model as it is for one row: every axis of free size has the size 1."""

import onnx_ir as ir

from flow2onnx.graph import Model

__all__ = ["unit_sizes"]


def unit_sizes(model: Model) -> Model:
    """A copy of a model whose values all have known sizes: what is free counts as 1."""
    copy = model.clone()
    values = [v for node in copy.graph.all_nodes() for v in node.outputs]
    for value in (*copy.graph.inputs, *values):
        if value.shape is not None and not value.shape.is_static():
            value.shape = ir.Shape([d if isinstance(d, int) else 1 for d in value.shape])
    return copy
