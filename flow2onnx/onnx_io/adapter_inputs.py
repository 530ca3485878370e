"""The served form of a model, with adapters as inputs that take what training has of them."""

from collections.abc import Iterable, Mapping, Sequence

import onnx
from onnx import TensorProto, helper

from flow2onnx.dtypes import by_code
from flow2onnx.onnx_io.adapter_slots import Slot, slots_of
from flow2onnx.onnx_io.serialize import Signature

__all__ = ["drop_before_adapters", "read_adapters", "scale_adapters", "signatures"]


def read_adapters(
    model: onnx.ModelProto,
    slots: Iterable[Slot],
    shapes: Mapping[str, Sequence[int]],
    scales: Mapping[str, float],
) -> None:
    """Turn slots of a model into inputs without first values, in place.

    They take A and B in float32, of the given shapes by name; the model multiplies B by the scale
    of its module and casts both to what its products read. Slots of other modules stay empty.
    """
    graph = model.graph
    taken = {name for slot in slots for name in (slot.down, slot.up)}
    factors = {slot.up: scales.get(slot.module, 1.0) for slot in slots}
    other = {n for s in slots_of(model).values() for n in (s.down, s.up, s.factor)} - taken
    served, nodes = dict[str, str](), list[onnx.NodeProto]()
    for value in graph.input:
        if value.name in taken:
            element = value.type.tensor_type.elem_type
            made = _convert(value.name, factors.get(value.name, 1.0), element)
            nodes += made
            served[value.name] = made[-1].output[0] if made else value.name
            value.CopyFrom(
                helper.make_tensor_value_info(value.name, TensorProto.FLOAT, shapes[value.name])
            )
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = served.get(name, name)
    inputs = [v for v in graph.input if v.name not in other]
    initializers = [t for t in graph.initializer if t.name not in taken]
    nodes += graph.node
    for field, kept in ((graph.input, inputs), (graph.initializer, initializers),
                        (graph.node, nodes)):  # fmt: skip
        del field[:]
        field.extend(kept)


def scale_adapters(
    model: onnx.ModelProto, slots: Iterable[Slot], scales: Mapping[str, float]
) -> None:
    """Let a model multiply the B of its slots by the scales of their modules, in place.

    A and B are read in float32, and cast to what their products read.
    """
    graph = model.graph
    elements = {v.name: v.type.tensor_type.elem_type for v in graph.input}
    factors = {n: f for s in slots for n, f in ((s.down, 1.0), (s.up, scales[s.module]))}
    nodes, served = list[onnx.NodeProto](), dict[str, str]()
    for name, factor in factors.items():
        made = _convert(name, factor, elements[name])
        nodes += made
        served[name] = made[-1].output[0] if made else name
    for node in graph.node:
        for i, name in enumerate(node.input):
            node.input[i] = served.get(name, name)
    nodes += graph.node
    del graph.node[:]
    graph.node.extend(nodes)


def drop_before_adapters(
    model: onnx.ModelProto, slots: Iterable[Slot], share: float, seed: int
) -> None:
    """Let a share of what the A of slots read be dropped, each time anew, in place."""
    graph = model.graph
    downs = {slot.down for slot in slots}
    nodes = list[onnx.NodeProto]()
    for count, node in enumerate(graph.node):
        taken = len(node.input) > 1 and node.input[1] in downs
        if taken:
            stem = f"{node.name}/dropout"
            ratio = helper.make_tensor("", TensorProto.FLOAT, [], [share])
            trains = helper.make_tensor("", TensorProto.BOOL, [], [True])
            nodes += [
                helper.make_node("Constant", [], [f"{stem}/ratio"], f"{stem}/ratio", value=ratio),
                helper.make_node("Constant", [], [f"{stem}/on"], f"{stem}/on", value=trains),
                helper.make_node("Dropout", [node.input[0], f"{stem}/ratio", f"{stem}/on"], [stem],
                                 stem, seed=seed + count),
            ]  # fmt: skip
            node.input[0] = stem
        nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _convert(name: str, factor: float, element: int) -> list[onnx.NodeProto]:
    """The nodes from a matrix as training has it to what products read."""
    nodes, x = [], name
    if factor != 1.0:
        number = helper.make_tensor("", TensorProto.FLOAT, [], [factor])
        y = f"{name}/scaled"
        nodes.append(helper.make_node("Constant", [], [f"{name}/scale"], value=number))
        nodes.append(helper.make_node("Mul", [x, f"{name}/scale"], [y], y))
        x = y
    if element != TensorProto.FLOAT:
        y = f"{name}/cast"
        nodes.append(helper.make_node("Cast", [x], [y], y, to=element))
    return nodes


def signatures(values: Iterable[onnx.ValueInfoProto]) -> tuple[Signature, ...]:
    """Names, shapes and element types of inputs or outputs; a size without a name is ``"?"``."""
    return tuple(
        Signature(v.name, _shape(v), by_code(v.type.tensor_type.elem_type).name) for v in values
    )


def _shape(value: onnx.ValueInfoProto) -> tuple[int | str, ...]:
    sizes = value.type.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in sizes)
