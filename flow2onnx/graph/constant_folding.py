"""Constant folding while a graph is built: of shapes and the like, not of data."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from flow2onnx.dtypes import by_code
from flow2onnx.errors import ArgumentError
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import RANDOM_OPERATORS, attribute

__all__ = ["fold_constants"]

_LARGEST_CONSTANT = 4096  # elements
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def fold_constants(b: Builder, outputs: tuple[ir.Value, ...]) -> tuple[ir.Value, ...]:
    """The outputs of the node made last, as constants where they are small and known already."""
    node = outputs[0].producer()
    assert node is not None, "a node was made last"
    contents = _constant_outputs(b, node)
    if contents is None:
        return outputs
    if any(b.free_size in c.shape for c in contents):
        return outputs
    b.undo()
    return tuple(b.const(c) for c in contents)


def _constant_outputs(b: Builder, node: ir.Node) -> Sequence[np.ndarray[Any, Any]] | None:
    if node.domain or any(not _is_small(v) for v in node.outputs):
        return None
    if node.op_type in ("Shape", "Size"):
        return _shape_content(node)
    is_known = all(v is None or v.const_value is not None for v in node.inputs)
    if not is_known or node.op_type in RANDOM_OPERATORS | _CONTROL_FLOW:
        return None
    if node.op_type == "Identity":  # often in loops, where the evaluator's start would count
        return [v.const_value.numpy() for v in node.inputs if v is not None and v.const_value]
    return _evaluate(b, node)


def _is_small(value: ir.Value) -> bool:
    if not isinstance(value.type, ir.TensorType):
        return False
    if value.shape is None or not value.shape.is_static():
        # known inputs, so it is known: the number of results is what depends on them
        return True
    return math.prod(value.shape.numpy()) <= _LARGEST_CONSTANT


def _shape_content(node: ir.Node) -> Sequence[np.ndarray[Any, Any]] | None:
    value = node.inputs[0]
    assert value is not None, f"{node.name} has no input"
    if value.shape is None or not value.shape.is_static():
        return None
    sizes = np.asarray(value.shape.numpy(), np.int64)
    if node.op_type == "Size":
        return [np.asarray(sizes.prod(), np.int64)]
    return [sizes[attribute(node, "start") : attribute(node, "end")]]


def _evaluate(b: Builder, node: ir.Node) -> Sequence[np.ndarray[Any, Any]]:
    from onnx.reference import ReferenceEvaluator  # a tenth of a second that few jobs need

    feeds = {
        str(v.name): v.const_value.numpy() for v in node.inputs if v is not None and v.const_value
    }
    known = {v.name: v for v in node.inputs if v is not None}
    graph = onnx.helper.make_graph(
        [b.node_proto(node)],
        "fold_constants",
        [onnx.ValueInfoProto(name=n, type=b.type_proto(v)) for n, v in known.items()],
        [onnx.ValueInfoProto(name=v.name or "", type=b.type_proto(v)) for v in node.outputs],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", b.opset)])
    try:
        with np.errstate(all="ignore"):  # what is no number here is none on the runtime either
            found = ReferenceEvaluator(model).run(None, feeds)
    except Exception as error:  # of many classes with no common base
        raise ArgumentError(f"{node.op_type} of constants has no result: {error}") from error
    kinds = [by_code(int(v.dtype or 0)).numpy for v in node.outputs]
    return [np.asarray(f, k) for f, k in zip(found, kinds, strict=True)]
