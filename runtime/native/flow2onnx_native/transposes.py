"""Transposes of matrices: `Transpose`, which shares all of them among the threads at once.

The runtime wakes its threads for each matrix: 1,000 of 8 by 8 take 30 microseconds with one thread
and 1,300 with two.
"""

from collections.abc import Collection, Sequence

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, MOST_DIMENSIONS, MOST_TASKS
from flow2onnx_native.graph import is_float, is_standard, is_static, readers, replace_value, size

__all__ = ["exchanges_last_axes", "replace_transposes"]

_FEWEST = 1 << 12  # elements; fewer take as long, measured with one thread
_TAKE_TRANSPOSES = ("Transpose", "MatMul", "Gemm")  # which the runtime may merge one with


def replace_transposes(graph: ir.Graph, operators: Collection[str], threads: int) -> None:
    """Put the library's operator where neighbouring axes change places with all behind them."""
    if "Transpose" not in operators:
        return
    for node in list(graph):
        if is_standard(node, "Transpose") and _pays(node):
            native = ir.Node(
                DOMAIN, "Transpose", node.inputs,
                [node.attributes["perm"], ir.AttrInt64("tasks", min(max(threads, 1), MOST_TASKS))],
                num_outputs=1, name=node.name,
            )  # fmt: skip
            graph.insert_before(node, native)
            replace_value(node.outputs[0], native.outputs[0])


def _pays(node: ir.Node) -> bool:
    x = node.inputs[0]
    if x is None or not is_float(x) or not is_static(x) or "perm" not in node.attributes:
        return False
    order = node.attributes["perm"].as_ints()
    if size(x) < _FEWEST or not exchanges_last_axes(order):
        return False
    maker = x.producer()
    around = [*([maker] if maker is not None else []), *readers(node)]
    return not any(is_standard(n, *_TAKE_TRANSPOSES) for n in around)


def exchanges_last_axes(order: Sequence[int]) -> bool:
    """True if the last axes come before those in front of them, from some axis on."""
    count = len(order)
    first = next((i for i, axis in enumerate(order) if axis != i), count)
    if count > MOST_DIMENSIONS or first == count or not first < order[first] < count:
        return False
    split = order[first]
    return [*order[first:]] == [*range(split, count), *range(first, split)]
