"""Products of a few rows each with one weight, as those of a loop: `Pack`, `PackedProduct`."""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from flow2onnx_native.abi import (
    DOMAIN,
    MOST_MATRIX_ELEMENTS,
    MOST_MATRIX_TASKS,
    Activation,
    Addend,
    PackedShape,
    PackShape,
)
from flow2onnx_native.graph import (
    addition,
    dims,
    is_float,
    is_standard,
    is_static,
    number,
    replace_value,
    size,
    sort,
)

__all__ = ["is_plain_product", "packed_product", "replace_repeated_products"]

# Measured: a weight is packed in the time of a product of eight rows. With many rows the order of
# its elements is made again beside the sums at no cost.
_FEWEST_PRODUCTS, _MOST_ROWS = 4, 256
_FEWEST_COLUMNS, _FEWEST_MULTIPLICATIONS = 16, 1 << 15


@dataclass(frozen=True)
class _Product:
    """rows W + addend, as `last` makes it; with `is_transposed` W is the transpose of `weight`."""

    node: ir.Node
    last: ir.Node
    rows: ir.Value
    weight: ir.Value
    is_transposed: bool
    addend: ir.Value | None


def replace_repeated_products(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Pack each weight that four and more products of a few rows read, once for all of them."""
    if "PackedProduct" not in operators:
        return
    groups: dict[tuple[ir.Value, bool], list[ir.Node]] = defaultdict(list)
    for node in graph:
        product = _product(node)
        if product is not None:
            groups[product.weight, product.is_transposed].append(node)
    repeated = {key: nodes for key, nodes in groups.items() if len(nodes) >= _FEWEST_PRODUCTS}
    for (weight, is_transposed), nodes in repeated.items():
        packed = _pack(graph, nodes[0], weight, is_transposed)
        for node in nodes:
            product = _product(node)  # anew, as it may read what another was replaced by
            assert product is not None, "operands keep their types"
            _replace(graph, product, packed, threads)
    if repeated:
        sort(graph)


def _product(node: ir.Node) -> _Product | None:
    """The product that a node computes, if it is worth packing for; None for any other."""
    if not is_plain_product(node):
        return None
    rows, weight, *rest = node.inputs
    y = node.outputs[0]
    if rows is None or weight is None or weight.const_value is not None:
        return None  # the runtime packs a constant once, not in every step
    if not all(is_static(v) and is_float(v) and len(dims(v)) == 2 for v in (rows, weight, y)):
        return None
    count, columns = dims(y)
    depth = dims(rows)[1]
    if count > _MOST_ROWS or columns < _FEWEST_COLUMNS:
        return None
    padded = depth * (columns + _FEWEST_COLUMNS)
    if count * depth * columns < _FEWEST_MULTIPLICATIONS or padded > MOST_MATRIX_ELEMENTS:
        return None
    addend, last = rest[0] if rest else None, node
    if addend is None:
        found = addition(y)
        if found is not None and _is_addend(found[1], y):
            last, addend = found
    elif not _is_addend(addend, y):
        return None
    return _Product(node, last, rows, weight, bool(number(node, "transB", 0)), addend)


def is_plain_product(node: ir.Node) -> bool:
    """True for A B + C, where A is not transposed and nothing is scaled."""
    return (
        is_standard(node, "Gemm", "MatMul")
        and not number(node, "transA", 0)
        and number(node, "alpha", 1) == 1
        and number(node, "beta", 1) == 1
    )


def _is_addend(value: ir.Value, y: ir.Value) -> bool:
    """True if a value is as large as a product, or one row for all of its rows."""
    return is_static(value) and is_float(value) and dims(value) in (dims(y), dims(y)[1:])


def _pack(graph: ir.Graph, first: ir.Node, weight: ir.Value, is_transposed: bool) -> ir.Value:
    depth, columns = dims(weight)[::-1] if is_transposed else dims(weight)
    shape = ir.AttrInt64s("shape", PackShape(depth, columns, is_transposed))
    node = ir.Node(DOMAIN, "Pack", [weight], [shape], num_outputs=1, name=f"{first.name}/pack")
    node.outputs[0].name = node.name
    graph.insert_before(first, node)
    return node.outputs[0]


def _replace(graph: ir.Graph, product: _Product, packed: ir.Value, threads: int) -> None:
    old = product.last.outputs[0]
    native = packed_product(product.rows, packed, dims(old), product.addend, threads)
    native.name = product.node.name
    graph.insert_before(product.last, native)
    replace_value(old, native.outputs[0])


def packed_product(
    rows: ir.Value,
    packed: ir.Value,
    extents: Sequence[int],
    addend: ir.Value | None,
    threads: int,
    activation: Activation = Activation.NONE,
    residual: ir.Value | None = None,
) -> ir.Node:
    """`PackedProduct` of rows and a packed weight; `extents`: rows and columns of the results.

    The addend has one number for each column, or for each result.
    """
    count, columns = extents
    kind = Addend.NOTHING
    if addend is not None:
        kind = Addend.PER_COLUMN if size(addend) == columns else Addend.FULL
    tasks = min(max(threads, 1), MOST_MATRIX_TASKS)
    shape = PackedShape(
        count, dims(rows)[-1], columns, kind, tasks, activation, residual is not None
    )
    inputs = [rows, packed, addend, residual]
    while inputs[-1] is None:
        inputs.pop()
    return ir.Node(DOMAIN, "PackedProduct", inputs, [ir.AttrInt64s("shape", shape)], num_outputs=1)
