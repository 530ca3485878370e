"""Gradients of a weight that many products read, as one product in place of a sum of products.

A loop over the steps of a sequence multiplies a few rows by the same weight again and again. The
gradient of the weight is then a sum of as many products, each as large as the weight and of a few
terms only, which costs more than what goes into it. One product over the rows of all steps is the
same sum.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from flow2onnx.autodiff.registry import attribute
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static, rank_of
from flow2onnx.lowering.sums import row_sum

__all__ = ["join_products"]

# Fewer parts are no loop. With more rows in each a product has terms enough, and its operands cost
# more to copy.
_FEWEST, _MOST_ROWS = 4, 256
_MOST_SUMMED = 1 << 16  # elements; more are not in a cache when they are copied


def join_products(b: Builder, parts: Sequence[Value]) -> list[Value]:
    """Values with the sum of the parts: products over rows, and sums of rows, are one for all.

    Parts come from the last step to the first, and rows are joined from the first to the last, as
    gradients of what is split into steps are.
    """
    products: dict[object, list[Value]] = defaultdict(list)
    sums: list[Value] = []
    others = []
    for value in parts:
        node = _product_over_rows(value)
        if node is not None:
            products[attribute(node, "alpha", 1.0)].append(value)
        elif _summed_rows(value) is not None:
            sums.append(value)
        else:
            others.append(value)
    for alpha, alike in products.items():
        others += [_join_products(b, alike, alpha)] if len(alike) >= _FEWEST else alike
    others += [_join_sums(b, sums)] if len(sums) >= _FEWEST else sums
    return others if len(others) < len(parts) else list(parts)


def _join_products(b: Builder, values: Sequence[Value], alpha: object) -> Value:
    nodes = [node for v in values if (node := v.producer()) is not None]
    left, right = (_concat(b, [node.inputs[i] for node in nodes]) for i in range(2))
    joined: Value = b.Gemm(left, right, transA=1, alpha=alpha)
    return joined


def _join_sums(b: Builder, values: Sequence[Value]) -> Value:
    joined: Value = row_sum(b, 1, _concat(b, [_summed_rows(v) for v in values]))
    return joined


def _concat(b: Builder, values: Sequence[Value | None]) -> Value:
    joined: Value = b.Concat(*reversed(values), axis=0)
    return joined


def _product_over_rows(value: Value) -> Node | None:
    """The node that makes a value as a product of columns with columns, over a few rows."""
    node = value.producer()
    if node is None or node.op_type != "Gemm" or len(node.inputs) > 2:
        return None
    left = node.inputs[0]
    if not attribute(node, "transA", 0) or attribute(node, "transB", 0) or left is None:
        return None
    return node if is_static(left) and dims(left)[0] <= _MOST_ROWS else None


def _summed_rows(value: Value) -> Value | None:
    """The matrix of which a value is the sum of the rows, as `row_sum` makes it; a small one."""
    node = value.producer()
    rows = None
    if node is not None and node.op_type == "ReduceSum" and len(node.inputs) == 2:
        axes = constant_of(node.inputs[1])
        if axes is not None and axes.tolist() == [0] and not attribute(node, "keepdims", 1):
            rows = node.inputs[0]
    elif node is not None and node.op_type == "Reshape" and node.inputs[0] is not None:
        rows = _multiplied_by_ones(node.inputs[0])
    if rows is None or not is_static(rows) or rank_of(rows) != 2 or not is_static(value):
        return None
    fits = dims(value) == dims(rows)[1:] and dtype_of(value) == dtype_of(rows)
    return rows if fits and np.prod(dims(rows)) <= _MOST_SUMMED else None


def _multiplied_by_ones(value: Value) -> Value | None:
    """The matrix that a row of ones is multiplied by."""
    node = value.producer()
    if node is None or node.op_type != "MatMul":
        return None
    ones = constant_of(node.inputs[0])
    return node.inputs[1] if ones is not None and bool((ones == 1).all()) else None
