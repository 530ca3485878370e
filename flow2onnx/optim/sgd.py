"""Stochastic gradient descent, with or without momentum and weight decay."""

from typing import Any

from flow2onnx.graph import Value
from flow2onnx.optim.base import ALL, Decay, Optimizer, Step, Variables
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.published import publish
from flow2onnx.optim.schedules import Scheduler

__all__ = ["SGD", "SGDW"]


class SGDW(Optimizer):
    """w + v - rate * decay * w with v = momentum * v - rate * g.

    The rate is inside v, so changing it does not rescale what v holds.
    """

    updates_rows = True

    def __init__(
        self,
        lr_scheduler: Scheduler,
        loss_scale_factor: float | None = None,
        momentum: float = 0.9,
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
        self.momentum = float(momentum)
        self.decay = Decay.of(weight_decay, weight_decay_includes, weight_decay_excludes)
        self.folds_rate = self.momentum == 0 and grad_clipping is None and self.decay.rate == 0

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; the velocity is state beside the variable."""
        b, change = step.b, step.b.Neg(step.scaled(g, step.rate))
        if self.momentum:
            change = b.Add(step.scaled(step.slot(name, "momentum"), self.momentum), change)
            step.assign(f"{name}-momentum", change)
        decay = self.decay.of_variable(name)
        if decay:
            change = b.Sub(change, step.scaled(step.scaled(w, decay), step.rate))
        return b.Add(w, change)


class SGD(SGDW):
    """w + v with v = momentum * v - rate * g; without momentum w - rate * g."""

    def __init__(
        self,
        lr_scheduler: Scheduler,
        loss_scale_factor: float | None = None,
        momentum: float = 0.9,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Variables = ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, loss_scale_factor, momentum, None, None, None, grad_clipping,
            train_step_lbn, loss_scale_policy, variables,
        )  # fmt: skip


publish("SGD", SGD)
publish("SGDW", SGDW)
