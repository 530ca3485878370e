"""Gathers from large tables and scatters into their rows: `Rows`, `AddRows` and their kin."""

from collections.abc import Callable, Collection

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, MOST_DIMENSIONS, MOST_TASKS
from flow2onnx_native.fusion_groups import Key, independent_groups
from flow2onnx_native.graph import (
    dims,
    is_float,
    is_standard,
    is_static,
    merge_nodes,
    number,
    only_user,
    replace_value,
    size,
    sort,
)

__all__ = [
    "FEWEST_INDICES",
    "SMALLEST_TABLE",
    "IndexOrigin",
    "merge_tables",
    "plain_indices",
    "replace_rows",
]

# Measured: with fewer the call costs what is gained, and smaller tables stay in the cache.
FEWEST_INDICES = 64
SMALLEST_TABLE = 2**16  # elements

IndexOrigin = Callable[[ir.Value], tuple[ir.Value, tuple[int, ...]]]  # as in `GraphAnalysis`
_REDUCTIONS = {"add": "AddRows", "none": "PutRows"}
_WHOLE = (ir.DataType.INT32, ir.DataType.INT64)


def replace_rows(
    graph: ir.Graph, operators: Collection[str], threads: int, index_origin: IndexOrigin
) -> None:
    """Put the library's operators in the place of gathers and scatters of whole rows."""
    for node in list(graph):
        name = _operator(node)
        if name is not None and name in operators:
            _replace(graph, node, name, threads, index_origin)


def _operator(node: ir.Node) -> str | None:
    """The operator that may stand for a node, by its kind."""
    if is_standard(node, "Gather"):
        return "Rows" if number(node, "axis", 0) == 0 else None
    if not is_standard(node, "GatherND", "ScatterND") or not _has_single_indices(node):
        return None
    if node.op_type == "GatherND":
        return "Rows" if number(node, "batch_dims", 0) == 0 else None
    reduction = node.attributes.get("reduction")
    return _REDUCTIONS.get("none" if reduction is None else reduction.as_string())


def _has_single_indices(node: ir.Node) -> bool:
    """True if each index is one number."""
    indices = node.inputs[1]
    return indices is not None and is_static(indices) and dims(indices)[-1:] == (1,)


def _replace(
    graph: ir.Graph, node: ir.Node, name: str, threads: int, index_origin: IndexOrigin
) -> None:
    operands = [v for v in node.inputs if v is not None]
    if not all(is_static(v) and len(dims(v)) <= MOST_DIMENSIONS for v in operands):
        return
    table, indices, *rows = operands
    if not is_float(table) or size(table) < SMALLEST_TABLE or size(indices) < FEWEST_INDICES:
        return
    attributes: list[ir.Attr] = [ir.AttrInt64("tasks", min(max(threads, 1), MOST_TASKS))]
    if name == "Rows":
        attributes.append(ir.AttrInt64s("shape", dims(node.outputs[0])))
    plain = plain_indices(indices, dims(table)[0], index_origin)
    native = ir.Node(DOMAIN, name, [table, plain, *rows], attributes, num_outputs=1, name=node.name)
    graph.insert_before(node, native)
    replace_value(node.outputs[0], native.outputs[0])


def add_where_looked_up(graph: ir.Graph, operators: Collection[str]) -> None:
    """Let sums onto rows read what they add in the table where it was looked up.

    So sums over neighbours in a graph, and their gradients, never store what an edge carries.
    Tables of a job's state keep the lookup: it fails before anything is written to them.
    """
    if "AddNamedRows" not in operators:
        return
    for node in list(graph):
        found = _lookup(node)
        if found is None:
            continue
        operands = [*node.inputs[:2], *found.inputs]
        attributes = list(node.attributes.values())
        native = ir.Node(
            DOMAIN, "AddNamedRows", operands, attributes, num_outputs=1, name=node.name
        )
        graph.insert_before(node, native)
        replace_value(node.outputs[0], native.outputs[0])


def _lookup(node: ir.Node) -> ir.Node | None:
    """Where the rows that a node adds were looked up, as such rows, if nobody else reads them."""
    if node.domain != DOMAIN or node.op_type != "AddRows":
        return None
    table, _, rows = node.inputs
    if table is None or table.is_graph_input():
        return None
    found = None if rows is None or only_user(rows) is None else rows.producer()
    if found is None or (found.domain, found.op_type) != (DOMAIN, "Rows"):
        return None
    source = found.inputs[0]
    return found if source is not None and dims(source)[1:] == dims(table)[1:] else None


def plain_indices(indices: ir.Value, height: int, index_origin: IndexOrigin) -> ir.Value:
    """The indices before anybody widened them, or made them count from the start."""
    origin, wraps = index_origin(indices)
    if not is_static(origin) or len(dims(origin)) > MOST_DIMENSIONS:
        return indices
    is_fit = origin.dtype in _WHOLE and wraps in ((), (height,))
    return origin if is_fit and size(origin) == size(indices) else indices


def merge_tables(graph: ir.Graph) -> None:
    """Put one node in the place of several that look up rows of a job's tables, or update them."""
    groups = independent_groups(graph, _key)
    for count, nodes in enumerate(groups):
        attributes = list(nodes[0].attributes.values())
        merge_nodes(graph, nodes, nodes[0].op_type, attributes, f"native/tables/{count}")
    if groups:
        sort(graph)


def _key(node: ir.Node) -> Key | None:
    """The operator and its attributes, of state that is read or replaced; None for others.

    Between other values, a result that may be where the table is would have to be copied.
    """
    if node.domain != DOMAIN or node.op_type not in ("Rows", *_REDUCTIONS.values()):
        return None
    table, result = node.inputs[0], node.outputs[0]
    if table is None or not table.is_graph_input():
        return None
    if node.op_type != "Rows":
        return (node.op_type,) if result.is_graph_output() else None
    return node.op_type, tuple(node.attributes["shape"].as_ints())
