"""Vectors that a graph gives or takes as their slices: who binds them lays them end to end.

A vector of gradients costs a copy to make and one to take apart. Where its slices are outputs and
inputs of their own, and their memory is that of the vector, neither is made.
"""

from collections.abc import Collection, Sequence

import onnx_ir as ir

from flow2onnx.graph.types import is_static
from flow2onnx.passes.dead_code import DeadCodeElimination

__all__ = ["slice_inputs", "slice_outputs", "vector_of"]

_SLICE = "slice/"  # begins the names of slices


def vector_of(name: str) -> str:
    """The vector that a slice is of; any other name is its own.

    >>> vector_of("slice/3/bucket/0"), vector_of("loss")
    ('bucket/0', 'loss')
    """
    return name.split("/", 2)[2] if name.startswith(_SLICE) else name


def slice_outputs(model: ir.Model, vectors: Collection[str]) -> ir.Model:
    """A copy of a model with the slices of these outputs in their place, behind all others.

    Given:   bucket = Concat(Reshape(g, [-1]), Reshape(h, [-1]))       (output bucket)
    Result:  slice/0/bucket = g, slice/1/bucket = h                      (outputs)
    Kept:    the elements and their order; a vector that is not joined has one slice
    """
    copy = model.clone()
    graph, outputs = copy.graph, list(copy.graph.outputs)
    graph.outputs.clear()
    graph.outputs.extend(v for v in outputs if v.name not in vectors)
    for vector in (v for v in outputs if v.name in vectors):
        name = str(vector.name)
        vector.name = f"{name}/joined"  # it may go on, as a slice or within the graph
        for k, part in enumerate(_joined_parts(vector)):
            graph.outputs.append(_output(graph, part, _slice_name(name, k)))
    DeadCodeElimination().run(graph)
    return copy


def slice_inputs(model: ir.Model, vectors: Collection[str]) -> ir.Model:
    """A copy of a model with the slices of these inputs in their place, behind all others.

    Given:   a, b = Split(bucket); g = Reshape(a, [2, 3])                (input bucket)
    Result:  g = slice/0/bucket [2, 3], b = slice/1/bucket               (inputs)
    Kept:    the elements and their order; a vector that is not split has one slice
    """
    copy = model.clone()
    graph = copy.graph
    for vector in [v for v in graph.inputs if v.name in vectors]:
        for k, part in enumerate(_split_parts(vector)):
            shaped = _only_shape(part)
            own = ir.Value(
                name=_slice_name(str(vector.name), k), shape=shaped.shape, type=shaped.type
            )
            graph.inputs.append(own)
            shaped.replace_all_uses_with(own)
        graph.inputs.remove(vector)
    DeadCodeElimination().run(graph)
    return copy


def _slice_name(vector: str, k: int) -> str:
    return f"{_SLICE}{k}/{vector}"


def _joined_parts(vector: ir.Value) -> Sequence[ir.Value]:
    """The values that a vector has end to end, each in the shape in which it was made."""
    maker = vector.producer()
    if maker is None or maker.op_type != "Concat":
        return [_before_reshape(vector)]
    return [_before_reshape(v) for v in maker.inputs if v is not None]


def _before_reshape(value: ir.Value) -> ir.Value:
    maker = value.producer()
    if maker is None or maker.op_type != "Reshape" or maker.inputs[0] is None:
        return value
    return maker.inputs[0]


def _output(graph: ir.Graph, value: ir.Value, name: str) -> ir.Value:
    """The value as an output of this name: a copy where it is an input, or an output already."""
    if value.producer() is None or value.is_graph_output():
        node = ir.node("Identity", [value], name=f"{name}/copy")
        made = node.outputs[0]
        made.shape, made.type = value.shape, value.type
        graph.append(node)
        value = made
    value.name = name
    return value


def _split_parts(vector: ir.Value) -> Sequence[ir.Value]:
    uses = list(vector.uses())
    if len(uses) == 1 and uses[0].node.op_type == "Split" and uses[0].idx == 0:
        return uses[0].node.outputs
    return [vector]


def _only_shape(part: ir.Value) -> ir.Value:
    """The value in the one shape that all else reads it in; itself if there are several."""
    uses = list(part.uses())
    if len(uses) != 1 or uses[0].node.op_type != "Reshape" or uses[0].idx != 0:
        return part
    shaped = uses[0].node.outputs[0]
    return shaped if is_static(shaped) and not shaped.is_graph_output() else part
