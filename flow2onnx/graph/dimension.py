"""Dimensions: sizes known at run time only, as numbers that rules reckon with like any other."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.size_text import Size, difference, product, quotient, remainder, total
from flow2onnx.graph.types import sizes_of

__all__ = ["Dimension", "Extent", "at_least", "extents", "is_known"]


class _Emitter(Protocol):
    """The part of a builder that a dimension needs."""

    def emit(self, op_type: str, operands: Sequence[Any]) -> tuple[ir.Value, ...]:
        """The outputs of a new node."""

    def vector(self, sizes: Sequence[Any]) -> ir.Value:
        """Sizes as an operand."""


class Dimension:
    """A size known at run time only; arithmetic with it appends nodes that compute the result.

    `text` names it: equal texts are equal sizes. Nothing compares it by size, as only a run can
    tell; it counts as true, like a size that is not known to be 0. `value` is a vector of one
    int64, which a builder takes wherever it takes a size or an operand.
    """

    def __init__(self, b: _Emitter, text: str, make: Callable[[], ir.Value]) -> None:
        self._b, self.text, self._make = b, text, make
        self._value: ir.Value | None = None

    @property
    def value(self) -> ir.Value:
        """The size as a vector of one element, computed when first asked for."""
        if self._value is None:
            self._value = self._make()
        return self._value

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __neg__(self) -> "Dimension":
        return self._reckon("Sub", difference, 0, self)

    def __add__(self, other: "Extent") -> "Extent":
        return self if _is(other, 0) else self._reckon("Add", total, self, other)

    def __radd__(self, other: int) -> "Extent":
        return self + other

    def __sub__(self, other: "Extent") -> "Extent":
        if _is(other, 0):
            return self
        return 0 if self == other else self._reckon("Sub", difference, self, other)

    def __rsub__(self, other: int) -> "Extent":
        return self._reckon("Sub", difference, other, self)

    def __mul__(self, other: "Extent") -> "Extent":
        if _is(other, 0):
            return 0
        return self if _is(other, 1) else self._reckon("Mul", product, self, other)

    def __rmul__(self, other: int) -> "Extent":
        return self * other

    def __floordiv__(self, other: "Extent") -> "Extent":
        """The quotient, rounded towards 0: neither side is negative."""
        if _is(other, 1):
            return self
        return 1 if self == other else self._reckon("Div", quotient, self, other)

    def __rfloordiv__(self, other: int) -> "Extent":
        return self._reckon("Div", quotient, other, self)

    def __mod__(self, other: "Extent") -> "Extent":
        return 0 if _is(other, 1) else self._reckon("Mod", remainder, self, other)

    def at_least(self, least: "Extent") -> "Dimension":
        """The size, or `least` where it is smaller."""
        return self._reckon("Max", _larger, self, least)

    def _reckon(
        self, op_type: str, name: Callable[[Size, Size], Size], x: "Extent", y: "Extent"
    ) -> "Dimension":
        def make() -> ir.Value:
            operands = [v.value if isinstance(v, Dimension) else np.asarray([v]) for v in (x, y)]
            return self._b.emit(op_type, operands)[0]

        texts = (v.text if isinstance(v, Dimension) else v for v in (x, y))
        return Dimension(self._b, str(name(*texts)), make)


Extent = int | Dimension


def _larger(x: Size, y: Size) -> Size:
    return f"max({x},{y})"


def _is(x: Extent, number: int) -> bool:
    return isinstance(x, int) and x == number


def extents(b: _Emitter, value: ir.Value) -> tuple[Extent, ...]:
    """The shape of a value: numbers, and dimensions for what is known at run time only."""
    return tuple(_extent(b, d) if isinstance(d, str) else d for d in sizes_of(value))


def _extent(b: _Emitter, name: str) -> Dimension:
    return Dimension(b, name, lambda: b.vector([name]))


def at_least(size: Extent, least: int) -> Extent:
    """The size, or `least` where it is smaller."""
    return size.at_least(least) if isinstance(size, Dimension) else max(size, least)


def is_known(*sizes: Extent) -> bool:
    """True if all sizes are numbers."""
    return all(isinstance(d, int | np.integer) for d in sizes)
