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

__all__ = ["PICTURES", "contrib_operators", "fill_initializers", "widen_half", "without_past"]

_ATTENTION = "GroupQueryAttention"
_BRANCH, _MASK, _PLACES = "use_cache_branch", "attention_mask", "position_ids"
_ROW = "cache_position"  # places of the tokens of one row, the same in all
_TOKENS = ("input_ids", "inputs_embeds")
PICTURES = "pixel"  # how the names of inputs begin that are pictures
_MADE = "without_past"  # how names of what is added begin
_IMAGES = f"{_MADE}/images"  # the value with the number of texts
_ROUNDING = ("MatMulNBits", "QMoE")  # by accuracy_level, what they multiply
_RING = "sliding_window_cache"  # how a past is kept, of which there is none
_PAST = slice(3, 5)  # of the inputs of grouped attention: keys and values
# the places of keys and values of a past among the operands of other attention, by domain
_READS_PAST = {
    ("", "Attention"): (4, 5),
    (CONTRIB_DOMAIN, "Attention"): (4,),
    (CONTRIB_DOMAIN, "MultiHeadAttention"): (6, 7),
    (CONTRIB_DOMAIN, "DecoderMaskedMultiHeadAttention"): (5, 6),
}
# what new keys and values are put into
_GROWS = ("Concat", "ScatterElements", "ScatterND", "TensorScatter")
_MOVES = ("Cast", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
          "Unsqueeze")  # fmt: skip


def without_past(model: onnx.ModelProto, logits: str, size: int | None = None) -> None:
    """Leave out what went before a text, in place; `logits` is the only output then.

    Products compute in single precision: `accuracy_level` is how coarsely they may round what they
    multiply. Places are counted from the mask, where the model reads one. `size` is that of keys
    and values of a head, where their inputs do not say it. Raises UnsupportedError for a model that
    is two, with a past and without, whose texts are of one length, whose past is of a form that is
    not known, or that reads something else than rows of numbers by token.
    """
    graph = model.graph
    _refuse_branches(graph)
    _refuse_fixed_length(graph)
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
    _refuse_others(graph)


def _refuse_branches(graph: onnx.GraphProto) -> None:
    """Raise UnsupportedError for a model that is two: with a past, and without."""
    if any(v.name == _BRANCH for v in graph.input):
        raise UnsupportedError(
            f"the model is two in one, between which {_BRANCH} decides",
            hint="export it without merging: decoder_model.onnx, or decoder_with_past_model.onnx",
        )


def _refuse_fixed_length(graph: onnx.GraphProto) -> None:
    """Raise UnsupportedError for a model that takes texts of one length alone."""
    tokens = _tokens(graph)
    dims = [] if tokens is None else [d.dim_value for d in tokens.type.tensor_type.shape.dim]
    if tokens is not None and len(dims) > 1 and dims[1]:
        raise UnsupportedError(
            f"the model takes texts of {dims[1]} tokens alone: {tokens.name} is "
            f"{_sizes_text(tokens)}",
            hint="export it with free axes: dynamic_shapes={'input_ids': {0: 'batch', 1: "
            "'sequence'}, …}, with the older exporter dynamic_axes=",
        )


def _empty_past(graph: onnx.GraphProto, size: int | None) -> None:
    """Let keys and values of what went before be computed: as many texts as there are, no rows.

    One free axis of their inputs is that of the rows, and one may be that of the texts: the one
    called as the texts of the tokens are, or else the first. `size` is that of the last axis of
    four, if it is free.
    """
    tokens = _tokens(graph)
    past = _pasts(graph)
    if not past:
        return
    nodes = [] if tokens is None else _first_sizes(graph, tokens.name, 1, _IMAGES)
    for value in past:
        shape = None if tokens is None else _past_shape(value, tokens, size)
        if shape is None:
            raise UnsupportedError(
                f"the model reads what went before, {value.name} {_sizes_text(value)}, in a form "
                "that is not known",
                hint="export it without a cache (use_cache=False), by onnxruntime-genai's "
                "builder, or with names for the texts and the rows alone: (batch, 2, past, 16)",
            )
        stem = f"{_MADE}/{value.name}"
        parts = []
        for i, part in enumerate(shape):
            parts.append(_IMAGES if part is None else f"{stem}/{i}")
            if part is not None:
                graph.initializer.append(numpy_helper.from_array(np.asarray(part), f"{stem}/{i}"))
        zero = onnx.helper.make_tensor("zero", value.type.tensor_type.elem_type, [1], [0])
        nodes += [
            onnx.helper.make_node("Concat", parts, [f"{stem}/shape"], f"{stem}/shape", axis=0),
            onnx.helper.make_node("ConstantOfShape", [f"{stem}/shape"], [value.name], stem,
                                  value=zero),
        ]  # fmt: skip
    _put_first(graph, nodes, {v.name for v in past})


def _past_shape(
    value: onnx.ValueInfoProto, tokens: onnx.ValueInfoProto, size: int | None
) -> list[list[int] | None] | None:
    """The sizes of an empty past, in parts, of which None stands for the texts; None if unknown."""
    dims = list(value.type.tensor_type.shape.dim)
    free = [i for i, d in enumerate(dims) if not d.dim_value]
    if len(dims) == 4 and size and 3 in free:
        free.remove(3)
    texts = tokens.type.tensor_type.shape.dim[0]
    named = [i for i in free if texts.dim_param and dims[i].dim_param == texts.dim_param]
    images = (named or free)[:1] if len(free) > 1 or named else []
    rows = [i for i in free if i not in images]
    if len(rows) != 1:
        return None
    known = {i: [d.dim_value or size or 0] for i, d in enumerate(dims)}
    known |= {rows[0]: [0]}
    return [None if i in images else known[i] for i in range(len(dims))]


def _sizes_text(value: onnx.ValueInfoProto) -> str:
    dims = value.type.tensor_type.shape.dim
    return f"({', '.join(d.dim_param or str(d.dim_value or '?') for d in dims)})"


def _refuse_others(graph: onnx.GraphProto) -> None:
    """Raise UnsupportedError for an input that is not of (texts, tokens), but for slots."""
    slots = {t.name for t in graph.initializer}  # their first values
    for value in graph.input:
        kind = value.type.tensor_type
        if value.name not in slots and kind.HasField("shape") and len(kind.shape.dim) != 2:
            raise UnsupportedError(
                f"the model reads {value.name} {_sizes_text(value)}, and texts are rows of tokens",
                hint="export it with input_ids and an attention_mask of two axes, (batch, "
                "sequence), from which it computes what it reads now",
            )


def _pasts(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    """The inputs that are keys and values of what went before, whatever they are called.

    Where the name does not tell, they have more axes than texts and tokens, and new ones are put
    behind them, or attention reads them as such; a mask of four axes is added to scores.
    """
    readers: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in graph.node:
        for place, name in enumerate(node.input):
            readers.setdefault(name, []).append((node, place))
    return [
        v for v in graph.input
        if _is_real(v) and ("past" in v.name or (_axes(v) > 2 and _holds_past(v.name, readers)))
    ]  # fmt: skip


def _axes(value: onnx.ValueInfoProto) -> int:
    return len(value.type.tensor_type.shape.dim)


def _holds_past(name: str, readers: Mapping[str, list[tuple[onnx.NodeProto, int]]]) -> bool:
    """True for a value that new keys and values are put behind, perhaps after it is moved."""
    for node, place in readers.get(name, ()):
        if node.op_type in _GROWS or place in _READS_PAST.get((node.domain, node.op_type), ()):
            return True
        is_moved = node.op_type in _MOVES and place == 0
        if is_moved and any(_holds_past(y, readers) for y in node.output):
            return True
    return False


def _tokens(graph: onnx.GraphProto) -> onnx.ValueInfoProto | None:
    return next((v for v in graph.input if v.name in _TOKENS), None)


def _count_places(graph: onnx.GraphProto) -> None:
    """Let the places of tokens be counted from the mask, or without one from the first token on."""
    names = {v.name for v in graph.input}
    if _PLACES in names and not names.isdisjoint({_MASK, *_TOKENS}):
        _count_each(graph, _MASK if _MASK in names else None)
    if _ROW in names and (tokens := _tokens(graph)) is not None:
        stem, node = f"{_MADE}/{_ROW}", onnx.helper.make_node
        _constants(graph, stem, none=0, one=1)
        _put_first(graph, [
            node("Shape", [tokens.name], [f"{stem}/shape"], f"{stem}/shape"),
            node("Gather", [f"{stem}/shape", f"{stem}/one"], [f"{stem}/size"], f"{stem}/size"),
            node("Range", [f"{stem}/none", f"{stem}/size", f"{stem}/one"], [_ROW], stem),
        ], {_ROW})  # fmt: skip


def _count_each(graph: onnx.GraphProto, mask: str | None) -> None:
    """Let the places of tokens be counted, those that a mask shows or all."""
    stem, node, nodes = f"{_MADE}/{_PLACES}", onnx.helper.make_node, []
    _constants(graph, stem, axis=1, one=1, none=0)
    counted = f"{stem}/shown"
    if mask is None:
        tokens = _tokens(graph)
        assert tokens is not None, "places are those of tokens"
        one = onnx.helper.make_tensor("one", onnx.TensorProto.INT64, [1], [1])
        nodes += [
            *_first_sizes(graph, tokens.name, 2, f"{stem}/shape"),
            node("ConstantOfShape", [f"{stem}/shape"], [counted], counted, value=one),
        ]
    else:
        nodes.append(node("Cast", [mask], [counted], counted, to=onnx.TensorProto.INT64))
    _put_first(graph, [
        *nodes,
        node("CumSum", [counted, f"{stem}/axis"], [f"{stem}/count"], f"{stem}/count"),
        node("Sub", [f"{stem}/count", f"{stem}/one"], [f"{stem}/last"], f"{stem}/last"),
        node("Max", [f"{stem}/last", f"{stem}/none"], [_PLACES], stem),
    ], {_PLACES})  # fmt: skip


def _first_sizes(graph: onnx.GraphProto, value: str, count: int, name: str) -> list[onnx.NodeProto]:
    """Nodes that make the first sizes of a value; Shape has no end before opset 15."""
    whole, axes, node = f"{name}/whole", f"{name}/axes", onnx.helper.make_node
    graph.initializer.append(numpy_helper.from_array(np.arange(count), axes))
    return [node("Shape", [value], [whole], whole), node("Gather", [whole, axes], [name], name)]


def _constants(graph: onnx.GraphProto, stem: str, **numbers: int) -> None:
    for name, number in numbers.items():
        graph.initializer.append(numpy_helper.from_array(np.asarray(number), f"{stem}/{name}"))


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
