"""Gradient descent, with or without momentum: SGD, SGDW and LARS."""

from flow2onnx.graph import Value
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.trace.registry import publish

__all__ = ["LARS", "SGD", "SGDW"]


class SGDW(Optimizer):
    """w + v - rate * decay * w with v = momentum * v - rate * g.

    The rate is inside v, so changing it does not rescale what v holds.
    """

    updates_rows = True

    momentum: float

    def leaves_unread_rows(self, name: str) -> bool:
        """True without momentum and decay of this variable."""
        return self.momentum == 0 and self.decay.of_variable(name) == 0

    @property
    def folds_rate(self) -> bool:
        """True for plain gradient descent."""
        return self.momentum == 0 and self.clipping is None and self.decay.rate == 0

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the velocity is state beside the variable."""
        b, change = step.b, step.b.Neg(step.scale(g, step.rate))
        if self.momentum:
            change = b.Add(step.scale(step.slot(name, "momentum"), self.momentum), change)
            step.assign(f"{name}-momentum", change)
        decay = self.decay.of_variable(name)
        if decay:
            change = b.Sub(change, step.scale(step.scale(w, decay), step.rate))
        return b.Add(w, change)


class SGD(SGDW):
    """w + v with v = momentum * v - rate * g; without momentum w - rate * g."""


class LARS(Optimizer):
    """w + v - η * decay * w with v = momentum * v - η * g.

    η = rate * coefficient * |w| / (ε + |g| + decay * |w|), or the rate itself where a norm is 0.
    """

    momentum_beta: float
    epsilon: float
    lars_coefficient: float

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the velocity is state beside the variable."""
        b, decay = step.b, self.decay.of_variable(name)
        rate = self._local_rate(step, w, g, decay)
        kept = step.scale(step.slot(name, "momentum"), self.momentum_beta)
        velocity = b.Sub(kept, step.scale(g, rate))
        step.assign(f"{name}-momentum", velocity)
        moved = b.Add(w, velocity)
        return b.Sub(moved, step.scale(step.scale(w, decay), rate)) if decay else moved

    def _local_rate(self, step: Step, w: Value, g: Value, decay: float) -> Value:
        b, weight, gradient = step.b, step.norm(w), step.norm(g)
        total = b.Add(b.Add(gradient, b.Mul(weight, decay)), self.epsilon)
        trust = b.Div(b.Mul(weight, self.lars_coefficient), total)
        is_usable = b.And(b.Greater(weight, 0.0), b.Greater(gradient, 0.0))
        return b.Mul(step.scalar(step.rate, weight), b.Where(is_usable, trust, b.like(1.0, trust)))


for _optimizer in (SGD, SGDW, LARS):
    publish(f"optimizer.{_optimizer.__name__}", _optimizer)
