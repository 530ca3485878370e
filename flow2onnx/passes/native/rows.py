"""Lookups in large tables, and changes of their rows, as operators of the native library."""

import math
from collections.abc import Collection

import onnx_ir as ir

from flow2onnx.analysis.in_place import index_origin
from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.passes.native.programs import DOMAIN, take_place

__all__ = [
    "FEWEST_INDICES",
    "MOST_DIMENSIONS",
    "MOST_TASKS",
    "SMALLEST_TABLE",
    "plain_indices",
    "use_native_rows",
]

# Measured: with fewer the call costs what is gained, and smaller tables stay in the cache.
FEWEST_INDICES = 64
SMALLEST_TABLE = 2**18  # bytes

MOST_DIMENSIONS, MOST_TASKS = 8, 1024  # what the library takes
_REDUCTIONS = {"add": "AddRows", "none": "PutRows"}


def use_native_rows(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put the library's operators in the place of gathers and scatters of whole rows."""
    for node in list(graph):
        name = _name(node)
        if name in operators:
            _replace(graph, node, str(name), threads)


def _name(node: ir.Node) -> str | None:
    """The operator that may stand for a node, by its kind."""
    attributes = node.attributes
    if node.domain:
        return None
    if node.op_type == "Gather":
        return "Rows" if "axis" not in attributes or attributes["axis"].as_int() == 0 else None
    if node.op_type == "GatherND":
        has_batches = "batch_dims" in attributes and attributes["batch_dims"].as_int() != 0
        return "Rows" if _names_rows(node) and not has_batches else None
    if node.op_type == "ScatterND" and _names_rows(node):
        reduction = attributes["reduction"].as_string() if "reduction" in attributes else "none"
        return _REDUCTIONS.get(reduction)
    return None


def _names_rows(node: ir.Node) -> bool:
    """Whether each index is one number."""
    indices = node.inputs[1]
    return indices is not None and is_static(indices) and dims(indices)[-1:] == (1,)


def _replace(graph: ir.Graph, node: ir.Node, name: str, threads: int) -> None:
    operands = [v for v in node.inputs if v is not None]
    if not all(is_static(v) and len(dims(v)) <= MOST_DIMENSIONS for v in operands):
        return
    table, indices, *rows = operands
    if dtype_of(table).name != "float32" or not _pays(table, indices):
        return
    attributes: list[ir.Attr] = [ir.AttrInt64("tasks", min(max(threads, 1), MOST_TASKS))]
    if name == "Rows":
        attributes.append(ir.AttrInt64s("shape", dims(node.outputs[0])))
    made = ir.Node(
        DOMAIN, name, [table, plain_indices(indices, dims(table)[0]), *rows], attributes,
        num_outputs=1, name=node.name,
    )  # fmt: skip
    graph.insert_before(node, made)
    take_place(graph, node.outputs[0], made.outputs[0])


def _pays(table: ir.Value, indices: ir.Value) -> bool:
    size = math.prod(dims(table)) * dtype_of(table).numpy.itemsize
    return size >= SMALLEST_TABLE and math.prod(dims(indices)) >= FEWEST_INDICES


def plain_indices(indices: ir.Value, height: int) -> ir.Value:
    """The indices before anybody widened them, or made them count from the start."""
    origin, wraps = index_origin(indices)
    if not is_static(origin) or len(dims(origin)) > MOST_DIMENSIONS:
        return indices
    is_fit = dtype_of(origin).name in ("int32", "int64") and wraps in ((), (height,))
    return origin if is_fit and math.prod(dims(origin)) == math.prod(dims(indices)) else indices
