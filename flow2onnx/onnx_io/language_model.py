"""Language models as onnxruntime-genai's builder and its like write them, in the form for training.

A model that serves reads and returns the keys and values of what went before. One that trains reads
whole texts, so that there is nothing before.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.contrib import CONTRIB_DOMAIN

__all__ = ["contrib_operators", "fill_initializers", "widen_half", "without_past"]

_ATTENTION = "GroupQueryAttention"
_PAST = slice(3, 5)  # of the inputs of grouped attention: keys and values


def without_past(model: onnx.ModelProto, logits: str) -> None:
    """Leave out what went before a text, in place; `logits` is the only output then.

    Products compute in single precision: `accuracy_level` is how coarsely they may round what they
    multiply. Raises UnsupportedError for a model whose past is read by another operator than
    grouped attention.
    """
    graph = model.graph
    past = _cut_past(graph)
    for node in graph.node:
        if node.op_type == "MatMulNBits" and node.domain == CONTRIB_DOMAIN:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 0
    _keep(graph.output, lambda o: o.name == logits)
    if not graph.output:
        raise UnsupportedError(
            f"the model has no output {logits!r}", hint="name the one with the logits: logits="
        )
    _keep(graph.input, lambda v: v.name not in past)
    left = [v.name for v in graph.input if "past" in v.name and _is_real(v)]
    if left:
        raise UnsupportedError(
            f"the model reads what went before, {left[0]}, and not in {_ATTENTION}",
            hint="export it without a cache (use_cache=False), or by onnxruntime-genai's builder",
        )


def _cut_past(graph: onnx.GraphProto) -> set[str]:
    """Let attention read and return nothing of a past; the names of what it read."""
    read = set()
    for node in graph.node:
        if node.op_type != _ATTENTION or node.domain != CONTRIB_DOMAIN:
            continue
        for i in range(*_PAST.indices(len(node.input))):
            read.add(node.input[i])
            node.input[i] = ""
        del node.output[1:]
    return read


def _keep(values: Any, wanted: Any) -> None:
    """Leave of a repeated field of a message what is wanted."""
    kept = [v for v in values if wanted(v)]
    del values[:]
    values.extend(kept)


def _is_real(value: onnx.ValueInfoProto) -> bool:
    return value.type.tensor_type.elem_type in (
        onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16,
    )  # fmt: skip


def fill_initializers(model: onnx.ModelProto, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
    """Make initializers of these values of the inputs that have these names, in place."""
    _keep(model.graph.input, lambda v: v.name not in arrays)
    _keep(model.graph.initializer, lambda t: t.name not in arrays)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(a), n) for n, a in arrays.items()
    )


def widen_half(model: onnx.ModelProto) -> None:
    """Let what a model says of half precision be single precision, in place.

    Tensors in other files stay what they are: whoever reads them casts them.
    """
    half, single = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    tensors = [t for t in model.graph.initializer if t.data_location != t.EXTERNAL]
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == half:
                attribute.i = single
    for tensor in tensors:
        if tensor.data_type == half:
            wide = numpy_helper.to_array(tensor).astype(np.float32)
            tensor.CopyFrom(numpy_helper.from_array(wide, tensor.name))
    for value in (*model.graph.input, *model.graph.output):
        if value.type.tensor_type.elem_type == half:
            value.type.tensor_type.elem_type = single
    del model.graph.value_info[:]


def contrib_operators(model: onnx.ModelProto) -> frozenset[str]:
    """The operators of the runtime's own domain that a model uses, ``domain::Operator``."""
    return frozenset(
        f"{n.domain}::{n.op_type}" for n in model.graph.node if n.domain == CONTRIB_DOMAIN
    )
