"""A model as it is for sizes of its free axes, such as one row."""

import ast
import operator
from collections.abc import Callable, Mapping

import onnx_ir as ir

from flow2onnx.graph import Model

__all__ = ["known_sizes"]

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.FloorDiv: operator.floordiv, ast.Mult: operator.mul,
    ast.Sub: operator.sub,
}  # fmt: skip


def known_sizes(model: Model, sizes: Mapping[str, int]) -> Model:
    """A copy of a model whose values all have known sizes: what `sizes` do not name counts as 1."""
    copy = model.clone()
    values = [v for node in copy.graph.all_nodes() for v in node.outputs]
    for value in (*copy.graph.inputs, *values):
        if value.shape is not None and not value.shape.is_static():
            found = [d if isinstance(d, int) else _size(d.value, sizes) for d in value.shape]
            value.shape = ir.Shape(found)
    return copy


def _size(name: str | None, sizes: Mapping[str, int]) -> int:
    """The size of an axis such as ``2*sequence + 1``; 1 where nothing of it is known."""
    if not name or name in sizes:
        return sizes.get(name or "", 1)
    try:
        tree = ast.parse(name.strip(), mode="eval").body
        if not any(isinstance(n, ast.Name) and n.id in sizes for n in ast.walk(tree)):
            return 1
        found = _value(tree, sizes)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return 1
    return 1 if found is None else max(found, 0)


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int | None:
    """The value of a sum or product of sizes, of which unknown ones count as 1."""
    if isinstance(tree, ast.Name):
        return sizes.get(tree.id, 1)
    if isinstance(tree, ast.Constant):
        return tree.value if type(tree.value) is int else None
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        value = _value(tree.operand, sizes)
        return None if value is None else -value
    if not isinstance(tree, ast.BinOp) or type(tree.op) not in _OPERATIONS:
        return None
    left, right = _value(tree.left, sizes), _value(tree.right, sizes)
    if left is None or right is None or (right == 0 and isinstance(tree.op, ast.FloorDiv)):
        return None
    return int(_OPERATIONS[type(tree.op)](left, right))
