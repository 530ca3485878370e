"""Questions about one node: its attributes, the graphs inside it, its random draws."""

from typing import Any

import onnx_ir as ir

__all__ = [
    "RANDOM_OPERATORS",
    "attribute",
    "captured_values",
    "has_seed",
    "nesting_depth",
    "operator_name",
    "read_values",
    "reseed",
    "subgraphs_of",
]

# Two nodes of the same inputs differ, and so do two runs of one node.
RANDOM_OPERATORS = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip
_SEED_DISTANCE = 7919
_SEED_LIMIT = 2**24  # the float attribute holds whole numbers below it exactly


def attribute(node: ir.Node, name: str, default: Any = None) -> Any:  # what attributes hold
    """The content of an attribute as a Python value."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def operator_name(node: ir.Node) -> str:
    """The operator of a node, ``domain::Operator`` if it is not of the standard's domain."""
    return f"{node.domain}::{node.op_type}" if node.domain else str(node.op_type)


def subgraphs_of(node: ir.Node) -> list[ir.Graph]:
    """The graphs inside a node; no operator of the standard has a list of them."""
    return [a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH]


def captured_values(graph: ir.Graph) -> list[ir.Value]:
    """The values that a graph inside a node reads from around it, in order of first use."""
    own = {*graph.inputs, *graph.initializers.values(), *(o for n in graph for o in n.outputs)}
    found: dict[ir.Value, None] = {}
    for node in graph:
        found.update((v, None) for v in read_values(node) if v is not None and v not in own)
    found.update((v, None) for v in graph.outputs if v not in own)
    return list(found)


def read_values(node: ir.Node) -> tuple[ir.Value | None, ...]:
    """The inputs of a node, then what the graphs inside it read from around it."""
    outer = dict.fromkeys(v for inner in subgraphs_of(node) for v in captured_values(inner))
    return (*node.inputs, *outer)


def nesting_depth(node: ir.Node) -> int:
    """The number of graphs that lie in each other inside a node."""
    deepest, open_nodes = 0, [(node, 0)]
    while open_nodes:  # no recursion: a file from elsewhere may nest beyond Python's stack
        current, depth = open_nodes.pop()
        deepest = max(deepest, depth)
        open_nodes += [(n, depth + 1) for inner in subgraphs_of(current) for n in inner]
    return deepest


def has_seed(node: ir.Node) -> bool:
    """True for a node that draws from a generator with a seed of its own."""
    return "seed" in node.attributes


def reseed(node: ir.Node, number: int) -> None:
    """Let copy `number` of a random node draw other values than the node it was copied from."""
    if has_seed(node):
        kind, seed = node.attributes["seed"].type, attribute(node, "seed")
        seed = (seed + _SEED_DISTANCE * number) % _SEED_LIMIT
        node.attributes["seed"] = ir.Attr("seed", kind, seed)
