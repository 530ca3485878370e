"""Optimizers by name that look at a whole tensor: lamb and lars."""

from dataclasses import dataclass
from typing import ClassVar

from flow2onnx.graph import Value
from flow2onnx.optim.base import Step
from flow2onnx.optim.moments import Moments
from flow2onnx.optim.rule import Rule

__all__ = ["LAMBRule", "LARSRule"]


def _trust(step: Step, above: Value, below: Value) -> Value:
    """above / below, both of shape (1,), or 1 where one of them is 0."""
    b = step.b
    is_usable = b.And(b.Greater(above, 0.0), b.Greater(below, 0.0))
    one = b.like(1.0, above)
    return b.Where(is_usable, b.Div(above, b.Where(is_usable, below, one)), one)


@dataclass(frozen=True, kw_only=True)
class LAMBRule(Moments):
    """w - rate * |w| / |u| * u with u = adam's direction + weight_decay * w.

    You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", 2020,
    algorithm 2, with the identity for its phi; the quotient is 1 where a norm is 0.
    """

    updates_rows: ClassVar[bool] = False

    lr: float = 1e-3
    eps: float = 1e-6

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the decay is part of the direction."""
        return self.move(step, name, w, g)

    def move(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both moments are state beside the variable."""
        b, (m, v) = step.b, self.moments(step, name, g)
        u = b.Div(b.Div(m, step.scalar(step.unbiased(self.beta1), m)), self.root(step, v))
        u = b.Add(u, step.scale(w, self.weight_decay)) if self.weight_decay else u
        u = step.scale(u, _trust(step, step.norm(w), step.norm(u)))
        return self.down(step, w, u, step.rate)


@dataclass(frozen=True, kw_only=True)
class LARSRule(Rule):
    """w - v with v = momentum v + rate * q * (g + weight_decay w).

    q = trust_coefficient |w| / (|g| + weight_decay |w| + eps), or 1 where a norm is 0: You et al.,
    "Large Batch Training of Convolutional Networks", 2017, algorithm 1.
    """

    updates_rows: ClassVar[bool] = False

    lr: float = 1e-2
    momentum: float = 0.9
    trust_coefficient: float = 1e-3
    eps: float = 1e-8

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the decay is part of the local rate."""
        b, weight, gradient = step.b, step.norm(w), step.norm(g)
        below = b.Add(b.Add(gradient, b.Mul(weight, self.weight_decay)), self.eps)
        scaled = b.Mul(b.Div(weight, below), self.trust_coefficient)
        is_usable = b.And(b.Greater(weight, 0.0), b.Greater(gradient, 0.0))
        local = b.Where(is_usable, scaled, b.like(1.0, scaled))
        g = b.Add(g, step.scale(w, self.weight_decay)) if self.weight_decay else g
        share = step.scale(g, b.Mul(local, step.scalar(step.rate, local)))
        kept = step.scale(step.slot(name, "momentum_buffer"), self.momentum)
        v = b.Add(kept, share)
        step.assign(f"{name}-momentum_buffer", v)
        return b.Sub(w, v)
