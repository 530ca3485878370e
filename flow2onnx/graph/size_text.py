"""Sizes known at run time only as text: equal sizes have equal texts, as far as that is easy.

A text is a name, a product such as ``2*batch*length``, or another expression in brackets.
"""

import ast
import math
import operator
import re
from collections import Counter
from collections.abc import Mapping

__all__ = [
    "Size",
    "difference",
    "names_in",
    "product",
    "quotient",
    "remainder",
    "total",
    "value_at",
]

Size = int | str

_PRODUCT = re.compile(r"[\w./-]+(\*[\w./-]+)*")


def product(*sizes: Size) -> Size:
    """The product of sizes."""
    number, names = _factors(*sizes)
    return _text(number, names)


def quotient(x: Size, y: Size) -> Size:
    """The whole quotient of two sizes."""
    (a, above), (c, below) = _factors(x), _factors(y)
    if c and not a % c and not below - above:
        return _text(a // c, above - below)
    return f"({x}/{_in_brackets(y)})"


def remainder(x: Size, y: Size) -> Size:
    """The remainder of a size divided by another."""
    return x % y if isinstance(x, int) and isinstance(y, int) and y else f"({x}%{_in_brackets(y)})"


def _in_brackets(size: Size) -> str:
    return f"({size})" if "*" in str(size) and not str(size).startswith("(") else str(size)


def total(x: Size, y: Size) -> Size:
    """The sum of two sizes."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if x == 0 or y == 0:
        return y if x == 0 else x
    return f"({x}+{y})"


def difference(x: Size, y: Size) -> Size:
    """A size minus another."""
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    if x == y:
        return 0
    return x if y == 0 else f"({x}-{y})"


def names_in(text: str) -> tuple[str, ...]:
    """The names in a text, which is one itself where it is not understood."""
    tree = _parse(text)
    if tree is None:
        return (text,)
    called = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    names = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called)
    return tuple(dict.fromkeys(n.id for n in names))


def value_at(text: str, sizes: Mapping[str, int]) -> int | None:
    """The size that a text is where its names have `sizes`; None if one is missing there."""
    if text in sizes:
        return sizes[text]
    tree = _parse(text)
    return None if tree is None or set(names_in(text)) - set(sizes) else _value(tree, sizes)


def _parse(text: str) -> ast.expr | None:
    """A text as an expression, if it is one of those that this module writes."""
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    known = (ast.BinOp, ast.Name, ast.Constant, ast.Call, ast.operator, ast.expr_context)
    return tree if all(isinstance(n, known) for n in ast.walk(tree)) else None


_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
}


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int | None:
    if isinstance(tree, ast.Name):
        return sizes[tree.id]
    if isinstance(tree, ast.Constant):
        return tree.value if type(tree.value) is int else None
    if isinstance(tree, ast.BinOp) and type(tree.op) in _OPERATORS:
        x, y = (_value(part, sizes) for part in (tree.left, tree.right))
        is_undefined = y == 0 and isinstance(tree.op, ast.Div | ast.Mod)
        if x is None or y is None or is_undefined:
            return None
        return int(_OPERATORS[type(tree.op)](x, y))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "max":
        parts = [_value(part, sizes) for part in tree.args]
        return None if None in parts else max(p for p in parts if p is not None)
    return None


def _factors(*sizes: Size) -> tuple[int, Counter[str]]:
    """The number that a product has as a factor, and the names."""
    number, names = 1, Counter[str]()
    for size in sizes:
        if isinstance(size, int):
            number *= size
            continue
        parts = size.split("*") if _PRODUCT.fullmatch(size) else [size]
        number *= math.prod(int(p) for p in parts if p.isdigit())
        names.update(p for p in parts if not p.isdigit())
    return number, names


def _text(number: int, names: Counter[str]) -> Size:
    if not number or not names:
        return number
    parts = sorted(names.elements())
    return "*".join([str(number), *parts] if number != 1 else parts)
