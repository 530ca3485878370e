"""Stochastic gradient descent, with or without momentum."""

from collections.abc import Callable, Sequence
from typing import Any

from flow2onnx.graph import Value
from flow2onnx.optim.base import ALL, Optimizer, Step
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.schedules import Scheduler
from flow2onnx.trace.registry import register

__all__ = ["SGD"]


class SGD(Optimizer):
    """w + v with v = momentum * v - rate * g; without momentum w - rate * g.

    The rate is inside v, so changing it does not rescale what v holds.
    """

    def __init__(
        self,
        lr_scheduler: Scheduler,
        loss_scale_factor: float | None = None,
        momentum: float = 0.9,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Sequence[str] | Callable[[], Sequence[str]] | None = ALL,
    ) -> None:
        super().__init__(
            lr_scheduler,
            loss_scale_factor,
            grad_clipping,
            train_step_lbn,
            loss_scale_policy,
            variables,
        )
        self.momentum = float(momentum)
        self.folds_rate = self.momentum == 0 and grad_clipping is None

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the velocity is state beside the variable."""
        b, change = step.b, step.b.Neg(step.scaled(g, step.rate))
        if self.momentum:
            velocity = step.job.slot(name, "momentum")
            change = b.Add(step.scaled(velocity, self.momentum), change)
            step.job.assign(f"{name}-momentum", change)
        return b.Add(w, change)


register("optimizer.SGD", SGD)
