"""Gradient clipping."""

from dataclasses import dataclass
from typing import Any, Protocol

from flow2onnx.dtypes import float32
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of
from flow2onnx.optim.settings import is_number
from flow2onnx.optim.totals import WHOLE_TOTALS, Totals
from flow2onnx.trace.registry import publish

__all__ = [
    "ByValue",
    "Clipping",
    "GlobalNorm",
    "Several",
    "by_global_norm",
    "by_value",
    "clipping_of",
]


class Clipping(Protocol):
    """A change of the gradients of an optimizer before it uses them."""

    def apply(
        self, b: Builder, gs: dict[str, Value], totals: Totals = WHOLE_TOTALS
    ) -> dict[str, Value]:
        """The gradients, clipped; `totals` adds up what is of all."""


@dataclass(frozen=True)
class GlobalNorm:
    """Scales all gradients together so that their joint norm is at most `clip_norm`.

    The factor is min(1, clip_norm / (norm + 1e-6)), as OneFlow 0.8 fixed it.
    """

    clip_norm: float

    def apply(
        self, b: Builder, gs: dict[str, Value], totals: Totals = WHOLE_TOTALS
    ) -> dict[str, Value]:
        """The gradients, scaled."""
        squares = {n: b.ReduceSumSquare(b.Cast(g, to=float32), keepdims=0) for n, g in gs.items()}
        total = totals.of(b, squares)
        factor = b.Min(b.Div(self.clip_norm, b.Add(b.Sqrt(total), 1e-6)), b.const(1.0))
        return {name: b.Mul(g, _as(b, factor, g)) for name, g in gs.items()}


def _as(b: Builder, factor: Value, g: Value) -> Value:
    value: Value = factor if dtype_of(g) == float32 else b.Cast(factor, to=dtype_of(g))
    return value


@dataclass(frozen=True)
class ByValue:
    """Limits every element of every gradient to [-clip_value, clip_value]."""

    clip_value: float

    def apply(
        self, b: Builder, gs: dict[str, Value], totals: Totals = WHOLE_TOTALS
    ) -> dict[str, Value]:
        """The gradients, limited."""
        most = {dtype_of(g): b.const(self.clip_value, dtype_of(g)) for g in gs.values()}
        least = {d: b.const(-self.clip_value, d) for d in most}
        return {n: b.Clip(g, least[dtype_of(g)], most[dtype_of(g)]) for n, g in gs.items()}


@dataclass(frozen=True)
class Several:
    """One clipping after another."""

    parts: tuple[Clipping, ...]

    def apply(
        self, b: Builder, gs: dict[str, Value], totals: Totals = WHOLE_TOTALS
    ) -> dict[str, Value]:
        """The gradients, clipped by all."""
        for part in self.parts:
            gs = part.apply(b, gs, totals)
        return gs


def clipping_of(given: Any) -> Clipping | None:
    """The clipping that `grad_clipping=` names; ArgumentError for what is none."""
    if given is None or hasattr(given, "apply"):
        clipping: Clipping | None = given
        return clipping
    raise ArgumentError(
        f"grad_clipping is {given!r}",
        hint="write flow.optimizer.grad_clipping.by_global_norm(1.0)",
    )


def by_value(clip_value: float) -> ByValue:
    """Limit each element of an optimizer's gradients to [-clip_value, clip_value]."""
    if not is_number(clip_value) or not clip_value > 0:
        raise ArgumentError(f"clip_value is a positive number, got {clip_value!r}")
    return ByValue(float(clip_value))


def by_global_norm(clip_norm: float) -> GlobalNorm:
    """Clip the joint norm of an optimizer's gradients to `clip_norm`."""
    if not is_number(clip_norm) or not clip_norm > 0:
        raise ArgumentError(f"clip_norm is a positive number, got {clip_norm!r}")
    return GlobalNorm(float(clip_norm))


publish("optimizer.grad_clipping.by_global_norm", by_global_norm)
