"""Gradient clipping."""

from dataclasses import dataclass

from flow2onnx.dtypes import float32
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of
from flow2onnx.trace.registry import publish

__all__ = ["GlobalNorm", "by_global_norm"]


@dataclass(frozen=True)
class GlobalNorm:
    """Scales all gradients together so that their joint norm is at most `clip_norm`.

    The factor is min(1, clip_norm / (norm + 1e-6)), as OneFlow 0.8 fixed it.
    """

    clip_norm: float

    def apply(self, b: Builder, gs: dict[str, Value]) -> dict[str, Value]:
        """The gradients, scaled."""
        squares = [b.ReduceSumSquare(b.Cast(g, to=float32), keepdims=0) for g in gs.values()]
        total = squares[0]
        for square in squares[1:]:
            total = b.Add(total, square)
        factor = b.Min(b.Div(self.clip_norm, b.Add(b.Sqrt(total), 1e-6)), b.const(1.0))
        return {name: b.Mul(g, _as(b, factor, g)) for name, g in gs.items()}


def _as(b: Builder, factor: Value, g: Value) -> Value:
    value: Value = factor if dtype_of(g) == float32 else b.Cast(factor, to=dtype_of(g))
    return value


def by_global_norm(clip_norm: float) -> GlobalNorm:
    """Clip the joint norm of an optimizer's gradients to `clip_norm`."""
    if not isinstance(clip_norm, int | float) or clip_norm <= 0:
        raise ArgumentError(f"clip_norm is a positive number, got {clip_norm!r}")
    return GlobalNorm(float(clip_norm))


publish("optimizer.grad_clipping.by_global_norm", by_global_norm)
