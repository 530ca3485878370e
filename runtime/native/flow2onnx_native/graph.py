"""Queries and edits of graphs that several passes share."""

import functools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import onnx
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from flow2onnx_native.abi import DOMAIN

__all__ = [
    "ON_CPU",
    "ON_CUDA",
    "VIEWS",
    "Reals",
    "addition",
    "dead_code_removed",
    "describe",
    "detach",
    "dims",
    "fed_values_unknown",
    "has_subgraphs",
    "integers",
    "is_float",
    "is_standard",
    "is_static",
    "is_transpose",
    "merge_nodes",
    "nodes_inside",
    "number",
    "only_user",
    "readers",
    "remove_dead_code",
    "replace_value",
    "scalar",
    "size",
    "sort",
    "values_read",
]

_KNOWN = frozenset({int})  # the types of dimensions that are known
_GRAPH, _GRAPHS = ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS
# Their output is the memory of their input.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# The types of numbers that kernels read and write; those on CUDA compute in single precision.
Reals: TypeAlias = Collection[ir.DataType | None]
ON_CPU: Reals = (ir.DataType.FLOAT,)
ON_CUDA: Reals = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def is_static(value: ir.Value) -> bool:
    """True if every dimension is known."""
    shape = value.shape  # asked of hundreds of thousands of values, and so without a generator each
    return shape is not None and _KNOWN.issuperset(map(type, shape.dims))


def dims(value: ir.Value) -> tuple[int, ...]:
    """The shape of a value whose every dimension is known."""
    assert value.shape is not None, f"{value.name} has no shape"
    return value.shape.dims  # type: ignore[return-value]  # they are known, which the caller asked


def size(value: ir.Value) -> int:
    """The number of elements of a value whose every dimension is known."""
    return math.prod(dims(value))


def is_float(value: ir.Value) -> bool:
    """True if a value is of single precision."""
    return value.dtype == ir.DataType.FLOAT


def scalar(value: ir.Value | None) -> float | None:
    """The number that a constant of one element is; None for others."""
    content = value.const_value if value is not None else None
    return float(content.numpy().reshape(())) if content is not None and content.size == 1 else None


def is_standard(node: ir.Node | None, *operators: str) -> bool:
    """True if a node is one of these standard operators."""
    return node is not None and node.domain == "" and node.op_type in operators


def is_transpose(node: ir.Node | None, perm: Sequence[int]) -> bool:
    """True if a node puts axes in this order."""
    found = None if node is None else node.attributes.get("perm")
    return is_standard(node, "Transpose") and found is not None and [*found.as_ints()] == [*perm]


def describe(value: ir.Value, name: str, dtype: ir.DataType, shape: Sequence[int]) -> None:
    """Give a value its name, type and shape."""
    value.name, value.type, value.shape = name, ir.TensorType(dtype), ir.Shape(shape)


def number(node: ir.Node, name: str, default: float) -> float:
    """A number among the attributes of a node."""
    found = node.attributes.get(name)
    return default if found is None else float(found.value)


def integers(attributes: Mapping[str, ir.Attr], name: str, default: Sequence[int]) -> list[int]:
    """A list of whole numbers among the attributes of a node."""
    return list(attributes[name].as_ints() if name in attributes else default)


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that reads a value which is no output of the graph, or None."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def addition(value: ir.Value) -> tuple[ir.Node, ir.Value] | None:
    """The only reader of a value, and what it adds to it; None if it is no Add of another value."""
    add = only_user(value)
    if add is None or not is_standard(add, "Add"):
        return None
    others = [v for v in add.inputs if v is not None and v is not value]
    return (add, others[0]) if len(others) == 1 else None


def readers(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that read what a node computes."""
    for value in node.outputs:
        yield from (use.node for use in value.uses())


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """The inputs of a node, and all that the nodes of its subgraphs read."""
    yield from (v for v in node.inputs if v is not None)
    for graph in _subgraphs(node):
        for inner in graph.all_nodes():
            yield from (v for v in inner.inputs if v is not None)
        yield from graph.outputs


def nodes_inside(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes of its subgraphs, and of those within them."""
    for graph in _subgraphs(node):
        yield from graph.all_nodes()


def _subgraphs(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.data.values():  # most of thousands of nodes have none
        if attribute.type is _GRAPH:
            yield attribute.as_graph()
        elif attribute.type is _GRAPHS:
            yield from attribute.as_graphs()


def has_subgraphs(nodes: Iterable[ir.Node]) -> bool:
    """True if a node has a subgraph, which may read values that are no inputs of the node."""
    attributes = (a for node in nodes for a in node.attributes.data.values())
    return any(a.type is _GRAPH or a.type is _GRAPHS for a in attributes)


def sort(graph: ir.Graph) -> None:
    """Put nodes behind those whose values they read; a graph in which they are stays as it is."""
    if has_subgraphs(graph) or not _is_sorted(graph):
        graph.sort()


def _is_sorted(graph: ir.Graph) -> bool:
    """True if every node of a graph without subgraphs comes after those whose values it reads."""
    before = set[ir.Node | None]([None])
    for node in graph:
        if any(v is not None and v.producer() not in before for v in node.inputs):
            return False
        before.add(node)
    return True


@contextmanager
def fed_values_unknown(graph: ir.Graph) -> Iterator[None]:
    """Inside, initializers that are inputs too are no constants: a run may feed others."""
    defaults = [(v, v.const_value) for v in graph.inputs if v.const_value is not None]
    for value, _ in defaults:
        value.const_value = None
    try:
        yield
    finally:
        for value, content in defaults:
            value.const_value = content


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let all who read `old` read `new`, which takes over its name, type and shape."""
    new.name, new.type, new.shape = old.name, old.type, old.shape
    if old.is_graph_output():
        assert old.graph is not None, "it is an output of one"
        old.graph.outputs[_output_position(old.graph, old)] = new
    old.replace_all_uses_with(new)


def merge_nodes(
    graph: ir.Graph, nodes: Sequence[ir.Node], op_type: str, attributes: Sequence[ir.Attr],
    name: str,
) -> None:  # fmt: skip
    """Put one node of the library in the place of several, with all their inputs and outputs.

    The graph is to be sorted afterwards.
    """
    inputs = [v for node in nodes for v in node.inputs]
    old = [v for node in nodes for v in node.outputs]
    merged = ir.Node(DOMAIN, op_type, inputs, attributes, num_outputs=len(old), name=name)
    graph.insert_after(nodes[-1], merged)
    for value, new in zip(old, merged.outputs, strict=True):
        replace_value(value, new)
    graph.remove(nodes, safe=True)


_POSITIONS = "flow2onnx_native.output_positions"  # in the `meta` of a graph


def _output_position(graph: ir.Graph, value: ir.Value) -> int:
    """The place of an output among all: a deep network has thousands, which stay where they are."""
    known: dict[str | None, int] | None = graph.meta.get(_POSITIONS)
    at = known.get(value.name) if known is not None else None
    if at is None or at >= len(graph.outputs) or graph.outputs[at] is not value:
        known = {v.name: i for i, v in enumerate(graph.outputs)}
        graph.meta[_POSITIONS], at = known, known[value.name]
    return at


def detach(nodes: Iterable[ir.Node]) -> None:
    """Let nodes that nobody reads read nothing either; they stay, for `remove_dead_code`.

    Taking them out looks at all outputs of the graph, whether it is one node or all.
    """
    for node in nodes:
        for i in range(len(node.inputs)):
            node.replace_input_with(i, None)


@contextmanager
def dead_code_removed(model: ir.Model) -> Iterator[None]:
    """Behind a replacement of nodes, remove what nobody reads; one that adds none leaves none."""
    before = len(model.graph)
    yield
    if len(model.graph) != before:
        remove_dead_code(model)


def remove_dead_code(model: ir.Model) -> None:
    """Remove nodes and constants that no output depends on, and outputs that nobody reads.

    As `RemoveUnusedNodesPass` does, which looks at all outputs again for each node that it removes.
    """
    graph = model.graph
    if has_subgraphs(graph) or model.functions:
        RemoveUnusedNodesPass()(model)
        return
    opset, outputs, dead = graph.opset_imports.get(""), frozenset(graph.outputs), []
    for node in reversed(graph):
        if any(v in outputs or v.uses() for v in node.outputs):
            _shorten(node, outputs, opset)
        else:
            detach([node])
            dead.append(node)
    graph.remove(dead)
    needed = outputs.union(graph.inputs)
    for name in [n for n, v in graph.initializers.items() if not v.uses() and v not in needed]:
        del graph.initializers[name]


def _shorten(node: ir.Node, outputs: Collection[ir.Value], opset: int | None) -> None:
    """Drop inputs at the end that are not there, and optional outputs that nobody reads."""
    given = len(inputs := node.inputs)
    while given and inputs[given - 1] is None:
        given -= 1
    if given < len(inputs):
        node.resize_inputs(given)
    optional = () if opset is None or node.domain else _optional_outputs(node.op_type, opset)
    if any(optional) and not _needs_all_outputs(node):
        _drop_outputs(node, optional, outputs)


def _drop_outputs(node: ir.Node, optional: Sequence[bool], outputs: Collection[ir.Value]) -> None:
    """Drop optional outputs that nobody reads."""
    for value, may_go in zip(node.outputs, optional, strict=False):
        if may_go and value not in outputs and not value.uses():
            value.name = ""
    made = len(node.outputs)
    while made and not node.outputs[made - 1].name:
        made -= 1
    node.resize_outputs(made)


def _needs_all_outputs(node: ir.Node) -> bool:
    """True for a normalisation that trains; another one forgets that it could."""
    if node.op_type != "BatchNormalization":
        return False
    mode = node.attributes.get("training_mode")
    if mode is not None and (mode.is_ref() or mode.as_int() != 0):
        return True
    node.attributes.pop("training_mode", None)
    return False


@functools.cache
def _optional_outputs(operator: str, opset: int) -> tuple[bool, ...]:
    """Which outputs of a standard operator may be left out; none where their number is open."""
    try:
        schema = onnx.defs.get_schema(operator, opset)
    except onnx.defs.SchemaError:
        return ()
    options = onnx.defs.OpSchema.FormalParameterOption
    if operator == "BatchNormalization" and "training_mode" not in schema.attributes:
        return ()
    if any(o.option == options.Variadic for o in schema.outputs):
        return ()
    return tuple(o.option == options.Optional for o in schema.outputs)
