"""LARS."""

from typing import Any

from flow2onnx.graph import Value
from flow2onnx.optim.base import ALL, Decay, Optimizer, Step, Variables
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.published import publish
from flow2onnx.optim.schedules import Scheduler

__all__ = ["LARS"]


class LARS(Optimizer):
    """w + v - η * decay * w with v = momentum * v - η * g.

    η = rate * coefficient * |w| / (ε + |g| + decay * |w|), or the rate itself where a norm is 0.
    """

    def __init__(
        self,
        lr_scheduler: Scheduler,
        momentum_beta: float = 0.9,
        epsilon: float = 1e-09,
        lars_coefficient: float = 0.0001,
        loss_scale_factor: float | None = None,
        weight_decay: float | None = None,
        weight_decay_includes: Any = None,
        weight_decay_excludes: Any = None,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Variables = ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
            variables,
        )  # fmt: skip
        self.momentum, self.epsilon = float(momentum_beta), float(epsilon)
        self.coefficient = float(lars_coefficient)
        self.decay = Decay.of(weight_decay, weight_decay_includes, weight_decay_excludes)

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the velocity is state beside the variable."""
        b, decay = step.b, self.decay.of_variable(name)
        rate = self._local_rate(step, w, g, decay)
        kept = step.scaled(step.slot(name, "momentum"), self.momentum)
        velocity = b.Sub(kept, step.scaled(g, rate))
        step.assign(f"{name}-momentum", velocity)
        moved = b.Add(w, velocity)
        return b.Sub(moved, step.scaled(step.scaled(w, decay), rate)) if decay else moved

    def _local_rate(self, step: Step, w: Value, g: Value, decay: float) -> Value:
        b, weight, gradient = step.b, step.norm(w), step.norm(g)
        total = b.Add(b.Add(gradient, b.Mul(weight, decay)), self.epsilon)
        trust = b.Div(b.Mul(weight, self.coefficient), total)
        is_usable = b.And(b.Greater(weight, 0.0), b.Greater(gradient, 0.0))
        return b.Mul(step.scalar(step.rate, weight), b.Where(is_usable, trust, b.like(1.0, trust)))


publish("LARS", LARS)
