"""Products with one row or one column, as sums that programs over the other operand can compute."""

import numpy as np
import onnx_ir as ir

from flow2onnx_native.abi import LONGEST_ROW
from flow2onnx_native.elementwise import fusible
from flow2onnx_native.graph import (
    detach,
    dims,
    is_float,
    is_standard,
    is_static,
    only_user,
    replace_value,
    size,
)

__all__ = ["replace_vector_products"]


def replace_vector_products(graph: ir.Graph, fewest: int) -> None:
    """Turn products of one row or one column into multiplications and sums.

    Only where the matrix has `fewest` elements and a program can compute it: there the sum costs no
    pass over memory, while a product lets the matrix be written and read again. What was before
    stays, unread.
    """
    for node in list(graph):
        if not _is_supported(node, fewest):
            continue
        left, right = (v for v in node.inputs if v is not None)
        if dims(right)[1] == 1 and 1 < dims(left)[1] <= LONGEST_ROW and _is_fused(left):
            _sum_rows(graph, node, left, right)
        elif dims(left)[0] == 1 and dims(left)[1] > 1 and _is_fused(right):
            _sum_columns(graph, node, left, right)


def _is_supported(node: ir.Node, fewest: int) -> bool:
    if not is_standard(node, "MatMul"):
        return False
    values = [v for v in (*node.inputs, *node.outputs) if v is not None]
    if not all(is_static(v) and is_float(v) for v in values):
        return False
    return all(len(dims(v)) == 2 for v in values) and max(map(size, values[:2])) >= fewest


def _is_fused(value: ir.Value) -> bool:
    """True if a program can compute the value."""
    node = value.producer()
    while node is not None and (part := fusible(node)) is not None:
        if part.kind != "alias":
            return True
        node = node.inputs[0].producer() if node.inputs[0] is not None else None
    return False


def _sum_rows(graph: ir.Graph, node: ir.Node, left: ir.Value, column: ir.Value) -> None:
    """left column = sum over each row of left * column."""
    weights = _reshape(graph, node, column, [dims(left)[1]])
    weighted = _add(graph, node, "Mul", [left, weights], dims(left), "weighted")
    total = _sum(graph, node, weighted, 1)
    replace_value(node.outputs[0], total)
    detach([node])
    _associate_by_rows(graph, total)


def _sum_columns(graph: ir.Graph, node: ir.Node, row: ir.Value, right: ir.Value) -> None:
    """row right = sum over each column of row * right."""
    known, summand = row.const_value, right
    if known is None or not np.all(known.numpy() == 1):
        weights = _reshape(graph, node, row, [dims(right)[0], 1])
        summand = _add(graph, node, "Mul", [right, weights], dims(right), "weighted")
    total = _sum(graph, node, summand, 0)
    replace_value(node.outputs[0], total)
    detach([node])


def _associate_by_rows(graph: ir.Graph, sums: ir.Value) -> None:
    """x * (sums * y) = (x * y) * sums: a program has sums of rows as wide as the rows only."""
    factors = only_user(sums)
    if factors is None or not is_standard(factors, "Mul"):
        return
    product, others = factors.outputs[0], [v for v in factors.inputs if v is not sums]
    wide = only_user(product)
    if wide is None or not is_standard(wide, "Mul") or len(others) != 1:
        return
    x = next((v for v in wide.inputs if v is not product), None)
    y, shape = others[0], dims(wide.outputs[0])
    if x is None or y is None or dims(y) != dims(sums) or dims(x) != shape:
        return
    spread = _add(graph, wide, "Mul", [x, y], shape, "spread")
    wide.replace_input_with(0, spread)
    wide.replace_input_with(1, sums)
    detach([factors])


def _sum(graph: ir.Graph, node: ir.Node, value: ir.Value, axis: int) -> ir.Value:
    axes = _constant(graph, f"{node.name}/axes", [axis])
    return _add(graph, node, "ReduceSum", [value, axes], dims(node.outputs[0]), "sum")


def _reshape(graph: ir.Graph, node: ir.Node, value: ir.Value, shape: list[int]) -> ir.Value:
    """The value in another shape: what it was reshaped from, if that has it."""
    maker = value.producer()
    source = maker.inputs[0] if maker is not None and maker.op_type == "Reshape" else None
    if source is not None and is_static(source) and list(dims(source)) == shape:
        return source
    wanted = _constant(graph, f"{node.name}/shape", shape)
    return _add(graph, node, "Reshape", [value, wanted], tuple(shape), "reshaped")


def _constant(graph: ir.Graph, name: str, numbers: list[int]) -> ir.Value:
    tensor = ir.tensor(np.array(numbers, np.int64), name=name)
    value = ir.Value(
        name=name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([len(numbers)]),
        const_value=tensor,
    )  # fmt: skip
    graph.register_initializer(value)
    return value


def _add(
    graph: ir.Graph,
    before: ir.Node,
    operator: str,
    inputs: list[ir.Value],
    shape: tuple[int, ...],
    name: str,
) -> ir.Value:
    """The output of a new node, which stands in front of another one."""
    node = ir.Node("", operator, inputs, num_outputs=1, name=f"{before.name}/{name}")
    value = node.outputs[0]
    value.name, value.type, value.shape = node.name, inputs[0].type, ir.Shape(shape)
    graph.insert_before(before, node)
    return value
