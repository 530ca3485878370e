"""RMSProp."""

from typing import Any

from flow2onnx.graph import Value
from flow2onnx.optim.base import ALL, Optimizer, Step, Variables
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.published import publish
from flow2onnx.optim.schedules import Scheduler

__all__ = ["RMSProp"]


class RMSProp(Optimizer):
    """w - rate * g / sqrt(d + epsilon), d the moving mean of g².

    If `centered`, the square of the moving mean of g is taken off d.
    """

    def __init__(
        self,
        lr_scheduler: Scheduler,
        decay_rate: float = 0.99,
        epsilon: float = 1e-08,
        centered: bool = False,
        loss_scale_factor: float | None = None,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Variables = ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, grad_clipping, train_step_lbn, loss_scale_policy,
            variables,
        )  # fmt: skip
        self.decay_rate, self.epsilon = float(decay_rate), float(epsilon)
        self.is_centered = centered

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the moving means are state beside the variable."""
        b = step.b
        denominator = step.moving(name, "mean_square", self.decay_rate, b.Mul(g, g))
        if self.is_centered:
            mean = step.moving(name, "mean_gradient", self.decay_rate, g)
            denominator = b.Sub(denominator, b.Mul(mean, mean))
        root = b.Sqrt(b.Add(denominator, step.scalar(self.epsilon, w)))
        return b.Sub(w, step.scaled(b.Div(g, root), step.rate))


publish("RMSProp", RMSProp)
