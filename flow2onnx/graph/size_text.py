"""Sizes known at run time only as text: equal sizes have equal texts, as far as that is easy.

A text is a name, a product such as ``2*batch*length``, or another expression in brackets.
"""

import math
import re
from collections import Counter

__all__ = ["Size", "difference", "product", "quotient", "total"]

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
    return f"({x}/{y})"


def total(x: Size, y: Size) -> Size:
    """The sum of two sizes."""
    if isinstance(x, int) and isinstance(y, int):
        return x + y
    if x == 0 or y == 0:
        return y if x == 0 else x
    return f"({x}+{y})"


def difference(x: Size, y: Size) -> Size:
    """What is left of a size when another is taken away."""
    if isinstance(x, int) and isinstance(y, int):
        return x - y
    if x == y:
        return 0
    return x if y == 0 else f"({x}-{y})"


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
