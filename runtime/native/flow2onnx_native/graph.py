"""Queries and edits of graphs that several passes share."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

__all__ = [
    "ON_CPU",
    "ON_CUDA",
    "VIEWS",
    "Reals",
    "dims",
    "has_subgraphs",
    "integers",
    "is_float",
    "is_standard",
    "is_static",
    "number",
    "only_user",
    "readers",
    "remove_dead_code",
    "replace_value",
    "scalar",
    "size",
    "values_read",
]

# Their output is the memory of their input.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
# The types of numbers that kernels read and write; those on CUDA compute in single precision.
Reals: TypeAlias = Collection[ir.DataType | None]
ON_CPU: Reals = (ir.DataType.FLOAT,)
ON_CUDA: Reals = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
_SUBGRAPHS = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)


def is_static(value: ir.Value) -> bool:
    """True if every dimension is known."""
    return value.shape is not None and value.shape.is_static()


def dims(value: ir.Value) -> tuple[int, ...]:
    """The shape of a value whose every dimension is known."""
    assert value.shape is not None, f"{value.name} has no shape"
    return value.shape.numpy()


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


def readers(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that read what a node computes."""
    for value in node.outputs:
        yield from (use.node for use in value.uses())


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """The inputs of a node, and all that the nodes of its subgraphs read."""
    yield from (v for v in node.inputs if v is not None)
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            for inner in attribute.as_graph().all_nodes():
                yield from (v for v in inner.inputs if v is not None)
            yield from attribute.as_graph().outputs


def has_subgraphs(nodes: Iterable[ir.Node]) -> bool:
    """True if a node has a subgraph, which may read values that are no inputs of the node."""
    return any(a.type in _SUBGRAPHS for node in nodes for a in node.attributes.values())


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let all who read `old` read `new`, which takes over its name, type and shape."""
    new.name, new.type, new.shape = old.name, old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)


def remove_dead_code(model: ir.Model) -> None:
    """Remove nodes and constants that no output depends on."""
    RemoveUnusedNodesPass()(model)
