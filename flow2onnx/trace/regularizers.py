"""Regularizers: what is added to a variable's gradient before clipping and update."""

from dataclasses import dataclass

from flow2onnx.graph import Builder, Value

__all__ = ["Regularizer"]


@dataclass(frozen=True)
class Regularizer:
    """Adds ``l1 * sign(w) + l2 * w`` to the gradient of `w`; the loss itself does not change."""

    l1: float = 0.0
    l2: float = 0.0

    def apply(self, b: Builder, g: Value, w: Value) -> Value:
        """The gradient `g` of `w` with the regularizer's own added."""
        if self.l1:
            g = b.Add(g, b.Mul(b.Sign(w), self.l1))
        return b.Add(g, b.Mul(w, self.l2)) if self.l2 else g
