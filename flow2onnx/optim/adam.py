"""Adam."""

from collections.abc import Callable, Sequence
from typing import Any

from flow2onnx.dtypes import float32
from flow2onnx.graph import Value
from flow2onnx.optim.base import ALL, Optimizer, Step
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.schedules import Scheduler
from flow2onnx.trace.registry import register

__all__ = ["Adam"]


class Adam(Optimizer):
    """w - rate' * m / (sqrt(v) + epsilon) with the moving moments m of g and v of g².

    By default the moments are not corrected for their start at 0, as in OneFlow; with
    `do_bias_correction` rate' = rate * sqrt(1 - beta2^t) / (1 - beta1^t), t counting from 1.
    """

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
        self.beta1, self.beta2, self.epsilon = float(beta1), float(beta2), float(epsilon)
        self.is_corrected = do_bias_correction

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value; both moments are state beside the variable."""
        b = step.b
        m = self._moment(step, name, "m", self.beta1, g)
        v = self._moment(step, name, "v", self.beta2, b.Mul(g, g))
        direction = b.Div(m, b.Add(b.Sqrt(v), step.scalar(self.epsilon, w)))
        return b.Sub(w, step.scaled(direction, self._rate(step)))

    def _moment(self, step: Step, name: str, suffix: str, beta: float, g: Value) -> Value:
        b = step.b
        kept = step.scaled(step.job.slot(name, suffix), beta)
        moved: Value = b.Add(kept, step.scaled(g, 1.0 - beta))
        step.job.assign(f"{name}-{suffix}", moved)
        return moved

    def _rate(self, step: Step) -> Value:
        if not self.is_corrected:
            return step.rate
        b = step.b
        t = b.Add(b.Cast(step.counter, to=float32), 1.0)
        first, second = (
            b.Sub(1.0, b.Pow(b.const([beta], float32), t)) for beta in (self.beta1, self.beta2)
        )
        return b.Mul(step.rate, b.Div(b.Sqrt(second), first))


register("optimizer.Adam", Adam)
