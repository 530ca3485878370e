"""Models in bfloat16 as models in float32: the runtime's CPU provider has no kernels for it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import TensorProto, numpy_helper

__all__ = ["has_bfloat16", "widen_bfloat16", "widen_tensor"]

_HALF, _WIDE = TensorProto.BFLOAT16, TensorProto.FLOAT
# Attributes that name an element type.
_TYPES = ("dtype", "to", "output_dtype", "softmax_precision", "stash_type")


def has_bfloat16(graph: onnx.GraphProto, tensors: Mapping[str, Any]) -> bool:
    """True if a tensor or a node of a graph is of bfloat16."""
    return any(int(t.dtype) == _HALF for t in tensors.values()) or _mentions(graph)


def _mentions(graph: onnx.GraphProto) -> bool:
    values = (*graph.input, *graph.output, *graph.value_info)
    if any(t.data_type == _HALF for t in graph.initializer):
        return True
    if any(v.type.tensor_type.elem_type == _HALF for v in values):
        return True
    return any(_attribute_mentions(a) for node in graph.node for a in node.attribute)


def _attribute_mentions(attribute: onnx.AttributeProto) -> bool:
    if attribute.name in _TYPES and attribute.i == _HALF:
        return True
    inner = (attribute.g, *attribute.graphs)
    return attribute.t.data_type == _HALF or any(_mentions(graph) for graph in inner)


def widen_tensor(tensor: Any) -> Any:
    """A tensor in float32 if it is of bfloat16; its content is converted when it is asked for."""
    if int(tensor.dtype) != _HALF:
        return tensor
    return ir.LazyTensor(
        lambda: ir.tensor(tensor.numpy().astype(np.float32), name=tensor.name),
        dtype=ir.DataType.FLOAT,
        shape=tensor.shape,
        name=tensor.name,
    )


def widen_bfloat16(graph: onnx.GraphProto) -> None:
    """Make float32 of bfloat16 in a graph and the graphs inside its nodes, in place."""
    for tensor in graph.initializer:
        _widen_proto(tensor)
    for value in (*graph.input, *graph.output, *graph.value_info):
        _widen_type(value.type)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i == _HALF:
                attribute.i = _WIDE
            _widen_proto(attribute.t)
            for inner in (attribute.g, *attribute.graphs):
                widen_bfloat16(inner)


def _widen_type(kind: onnx.TypeProto) -> None:
    which = kind.WhichOneof("value")
    if which == "tensor_type" and kind.tensor_type.elem_type == _HALF:
        kind.tensor_type.elem_type = _WIDE
    elif which in ("optional_type", "sequence_type"):
        _widen_type(getattr(kind, which).elem_type)


def _widen_proto(tensor: onnx.TensorProto) -> None:
    if tensor.data_type == _HALF:
        content = numpy_helper.to_array(tensor).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(content, tensor.name))
