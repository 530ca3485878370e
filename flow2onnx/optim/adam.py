"""Adam and its kin: moving moments of the gradient."""

from typing import Any

from flow2onnx.dtypes import float32
from flow2onnx.graph import Value
from flow2onnx.optim.base import ALL, Decay, Optimizer, Step, Variables
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.published import publish
from flow2onnx.optim.schedules import Scheduler

__all__ = ["LAMB", "Adam", "AdamW", "LazyAdam"]


class AdamW(Optimizer):
    """w - rate' * (m / (sqrt(v) + epsilon) + decay * w), m and v the moving moments of g and g².

    By default the moments are not corrected for their start at 0, as in OneFlow; with
    `do_bias_correction` rate' = rate * sqrt(1 - beta2^t) / (1 - beta1^t), t counting from 1.
    Epsilon is not rescaled, and the decay is multiplied by rate' too.
    """

    updates_rows = True

    def __init__(
        self,
        lr_scheduler: Scheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        do_bias_correction: bool = False,
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
        self.beta1, self.beta2, self.epsilon = float(beta1), float(beta2), float(epsilon)
        self.is_corrected = do_bias_correction
        self.decay = Decay.of(weight_decay, weight_decay_includes, weight_decay_excludes)

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both moments are state beside the variable."""
        b = step.b
        m = step.moving(name, "m", self.beta1, g)
        v = step.moving(name, "v", self.beta2, b.Mul(g, g))
        direction = b.Div(m, b.Add(b.Sqrt(v), step.scalar(self.epsilon, w)))
        decay = self.decay.of_variable(name)
        if decay:
            direction = b.Add(direction, step.scaled(w, decay))
        return b.Sub(w, step.scaled(direction, self._rate(step)))

    def _rate(self, step: Step) -> Value:
        if not self.is_corrected or not step.corrects_bias:
            return step.rate
        b = step.b
        first, second = (_correction(step, beta) for beta in (self.beta1, self.beta2))
        return b.Mul(step.rate, b.Div(b.Sqrt(second), first))


def _correction(step: Step, beta: float) -> Value:
    """1 - beta^t, t counting from 1."""
    b = step.b
    t = b.Add(b.Cast(step.counter, to=float32), 1.0)
    return b.Sub(1.0, b.Pow(b.const([beta], float32), t))


class Adam(AdamW):
    """AdamW without decay."""

    def __init__(
        self,
        lr_scheduler: Scheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        do_bias_correction: bool = False,
        loss_scale_factor: float | None = None,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Variables = ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, beta1, beta2, epsilon, do_bias_correction, loss_scale_factor, None, None,
            None, grad_clipping, train_step_lbn, loss_scale_policy, variables,
        )  # fmt: skip


class LazyAdam(Adam):
    """Adam with bias correction; the rows of a table that a step did not read stay as they are."""

    def __init__(
        self,
        lr_scheduler: Scheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-08,
        loss_scale_factor: float | None = None,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Variables = ALL,
    ) -> None:
        super().__init__(
            lr_scheduler, beta1, beta2, epsilon, True, loss_scale_factor, grad_clipping,
            train_step_lbn, loss_scale_policy, variables,
        )  # fmt: skip


class LAMB(AdamW):
    """w - rate * r * (u + decay * w), u the corrected Adam direction, r = |w| / |u|.

    r is 1 where a norm is 0. The correction uses the step under way, as OneFlow 0.8 fixed it.
    """

    updates_rows = False

    def __init__(
        self,
        lr_scheduler: Scheduler,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-06,
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
            lr_scheduler, beta1, beta2, epsilon, True, loss_scale_factor, weight_decay,
            weight_decay_includes, weight_decay_excludes, grad_clipping, train_step_lbn,
            loss_scale_policy, variables,
        )  # fmt: skip

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both moments are state beside the variable."""
        b = step.b
        m = step.moving(name, "m", self.beta1, g)
        v = step.moving(name, "v", self.beta2, b.Mul(g, g))
        first, second = (_correction(step, beta) for beta in (self.beta1, self.beta2))
        root = b.Sqrt(b.Div(v, step.scalar(second, v)))
        u = b.Div(b.Div(m, step.scalar(first, m)), b.Add(root, step.scalar(self.epsilon, w)))
        weight, direction = step.norm(w), step.norm(u)
        is_usable = b.And(b.Greater(weight, 0.0), b.Greater(direction, 0.0))
        divisor = b.Where(is_usable, direction, b.like(1.0, direction))
        trust = b.Where(is_usable, b.Div(weight, divisor), b.like(1.0, weight))
        decay = self.decay.of_variable(name)
        moved = b.Add(u, step.scaled(w, decay)) if decay else u
        return b.Sub(w, step.scaled(step.scaled(moved, trust), step.rate))


for _kind in (Adam, AdamW, LAMB, LazyAdam):
    publish(_kind.__name__, _kind)
