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
_BRANCH, _MASK, _PLACES = "use_cache_branch", "attention_mask", "position_ids"
_TOKENS = ("input_ids", "inputs_embeds")
_MADE = "without_past"  # how names of what is added begin
_ROUNDING = ("MatMulNBits", "QMoE")  # by accuracy_level, what they multiply
_RING = "sliding_window_cache"  # how a past is kept, of which there is none
_PAST = slice(3, 5)  # of the inputs of grouped attention: keys and values


def without_past(model: onnx.ModelProto, logits: str, size: int | None = None) -> None:
    """Leave out what went before a text, in place; `logits` is the only output then.

    Products compute in single precision: `accuracy_level` is how coarsely they may round what they
    multiply. Where the model reads places and a mask, places are counted from the mask. `size` is
    that of keys and values of a head, where their inputs do not say it. Raises
    UnsupportedError for a model that is two, with a past and without, or whose past is of a form
    that is not known.
    """
    graph = model.graph
    _refuse_branches(graph)
    past = _cut_past(graph)
    for node in graph.node:
        if node.op_type in _ROUNDING and node.domain == CONTRIB_DOMAIN:
            for attribute in node.attribute:
                if attribute.name == "accuracy_level":
                    attribute.i = 0
    _keep(graph.output, lambda o: o.name == logits)
    if not graph.output:
        raise UnsupportedError(
            f"the model has no output {logits!r}", hint="name the one with the logits: logits="
        )
    _keep(graph.input, lambda v: v.name not in past)
    _empty_past(graph, size)
    _count_places(graph)


def _refuse_branches(graph: onnx.GraphProto) -> None:
    """Raise UnsupportedError for a model that is two: with a past, and without."""
    if any(v.name == _BRANCH for v in graph.input):
        raise UnsupportedError(
            f"the model is two in one, between which {_BRANCH} decides",
            hint="export it without merging: decoder_model.onnx, or decoder_with_past_model.onnx",
        )


def _empty_past(graph: onnx.GraphProto, size: int | None) -> None:
    """Let keys and values of what went before be computed: as many texts as there are, no rows.

    Their inputs are (batch, heads, rows, size); heads and size have to be numbers, if `size` is
    none.
    """
    past = [v for v in graph.input if "past" in v.name and _is_real(v)]
    if not past:
        return
    tokens = next((v.name for v in graph.input if v.name in _TOKENS), None)
    nodes = [] if tokens is None else [
        onnx.helper.make_node("Shape", [tokens], [f"{_MADE}/images"], f"{_MADE}/images",
                              start=0, end=1)
    ]  # fmt: skip
    for value in past:
        dims = [d.dim_value for d in value.type.tensor_type.shape.dim]
        if len(dims) == 4:
            dims[3] = dims[3] or size or 0
        if tokens is None or len(dims) != 4 or not dims[1] or not dims[3]:
            raise UnsupportedError(
                f"the model reads what went before, {value.name}, in a form that is not known",
                hint="export it without a cache (use_cache=False), or by onnxruntime-genai's "
                "builder",
            )
        stem = f"{_MADE}/{value.name}"
        graph.initializer.append(
            numpy_helper.from_array(np.asarray([dims[1], 0, dims[3]]), f"{stem}/sizes")
        )
        zero = onnx.helper.make_tensor("zero", value.type.tensor_type.elem_type, [1], [0])
        nodes += [
            onnx.helper.make_node("Concat", [f"{_MADE}/images", f"{stem}/sizes"],
                                  [f"{stem}/shape"], f"{stem}/shape", axis=0),
            onnx.helper.make_node("ConstantOfShape", [f"{stem}/shape"], [value.name], stem,
                                  value=zero),
        ]  # fmt: skip
    _put_first(graph, nodes, {v.name for v in past})


def _count_places(graph: onnx.GraphProto) -> None:
    """Let the places of tokens be counted from the mask, where the model reads both."""
    names = {v.name for v in graph.input}
    if not {_PLACES, _MASK} <= names:
        return
    stem = f"{_MADE}/{_PLACES}"
    for name, number in (("axis", 1), ("one", 1), ("none", 0)):
        graph.initializer.append(numpy_helper.from_array(np.asarray(number), f"{stem}/{name}"))
    node = onnx.helper.make_node
    _put_first(graph, [
        node("CumSum", [_MASK, f"{stem}/axis"], [f"{stem}/count"], f"{stem}/count"),
        node("Sub", [f"{stem}/count", f"{stem}/one"], [f"{stem}/last"], f"{stem}/last"),
        node("Max", [f"{stem}/last", f"{stem}/none"], [_PLACES], stem),
    ], {_PLACES})  # fmt: skip


def _put_first(graph: onnx.GraphProto, nodes: list[onnx.NodeProto], made: set[str]) -> None:
    """Compute the inputs `made` by nodes before all others."""
    _keep(graph.input, lambda v: v.name not in made)
    old = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *old])


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
        kept = [a for a in node.attribute if a.name != _RING]
        del node.attribute[:]
        node.attribute.extend(kept)
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
