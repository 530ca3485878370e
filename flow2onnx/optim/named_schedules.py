"""Schedules by name, with the formulas that torch and transformers have for them.

`k` counts the steps from 0, and `lr` is the rate that the schedule is given. The first
`warmup_steps` steps have the rate lr * k / warmup_steps, after which a schedule begins at its own
step 0. Rates are computed in float64.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from flow2onnx.dtypes import float32, float64, int64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.optim.schedules import Scheduler
from flow2onnx.optim.settings import check_settings, is_number
from flow2onnx.trace.call_text import find_entry
from flow2onnx.trace.registry import publish

__all__ = ["SCHEDULES", "named_schedule"]


@dataclass(frozen=True, kw_only=True)
class Schedule(Scheduler):
    """A schedule by name: fields beside `base_lr` are its settings."""

    warmup: None = field(init=False, default=None)
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        check_settings(self, skipped=("warmup",))
        total = getattr(self, "total_steps", None)
        if total is not None and total <= self.warmup_steps:
            raise ArgumentError(
                f"total_steps is {total}, warmup_steps {self.warmup_steps}",
                hint="the total counts the warm-up too: make it larger",
            )

    def rate(self, b: Builder, step: Value) -> Value:
        """The rate, float32 of shape (1,), at `step`, int64 of shape (1,)."""
        constant = self.constant()
        if constant is not None:
            return b.const([constant], float32)
        k, warm = b.Cast(step, to=float64), float(self.warmup_steps)
        rate = self.decay(b, b.Max(b.Sub(k, warm), b.const([0.0], float64)) if warm else k)
        if warm:
            rising = b.Mul(k, self.base_lr / warm)
            rate = b.Where(b.Less(k, warm), rising, rate)
        return b.Cast(rate, to=float32)

    def _span(self, total: int) -> float:
        """The number of steps after the warm-up."""
        return float(total - self.warmup_steps)


@dataclass(frozen=True, kw_only=True)
class Constant(Schedule):
    """lr, as transformers' get_constant_schedule_with_warmup."""

    def constant(self) -> float | None:
        """The rate, without a warm-up."""
        return None if self.warmup_steps else self.base_lr

    def decay(self, b: Builder, k: Value) -> Value:
        """The rate itself."""
        return b.const([self.base_lr], float64)


@dataclass(frozen=True, kw_only=True)
class Linear(Schedule):
    """A line from lr down to `end_lr` at `total_steps`, and that from there on.

    As transformers' get_linear_schedule_with_warmup, whose end is 0.
    """

    total_steps: int
    end_lr: float = 0.0

    def decay(self, b: Builder, k: Value) -> Value:
        """end + (lr - end) (1 - k / span)."""
        left = b.Sub(
            1.0, b.Div(b.Min(k, self._span(self.total_steps)), self._span(self.total_steps))
        )
        return b.Add(b.Mul(left, self.base_lr - self.end_lr), self.end_lr)


@dataclass(frozen=True, kw_only=True)
class Polynomial(Linear):
    """A line's share to the power `power`: end + (lr - end) (1 - k / span)^power.

    As torch's PolynomialLR, and transformers' get_polynomial_decay_schedule_with_warmup.
    """

    power: float = 1.0

    def decay(self, b: Builder, k: Value) -> Value:
        """A power of what is left."""
        left = b.Sub(
            1.0, b.Div(b.Min(k, self._span(self.total_steps)), self._span(self.total_steps))
        )
        return b.Add(b.Mul(b.Pow(left, self.power), self.base_lr - self.end_lr), self.end_lr)


@dataclass(frozen=True, kw_only=True)
class Cosine(Schedule):
    """Half a cosine from lr down to `min_lr` at `total_steps`, and that from there on.

    min + (lr - min) (1 + cos(pi k / span)) / 2, as torch's CosineAnnealingLR up to its T_max:
    Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017, formula 5.
    """

    total_steps: int
    min_lr: float = 0.0

    def decay(self, b: Builder, k: Value) -> Value:
        """A wave of the share of the span."""
        span = self._span(self.total_steps)
        return _half_wave(b, b.Div(b.Min(k, span), span), self.base_lr, self.min_lr)


@dataclass(frozen=True, kw_only=True)
class CosineRestarts(Schedule):
    """Half cosines from lr to `min_lr`, each `multiplier` times as long as the one before.

    The first has `period` steps: torch's CosineAnnealingWarmRestarts with T_0 and T_mult, and
    formula 5 of Loshchilov and Hutter, "SGDR: Stochastic Gradient Descent with Warm Restarts".
    """

    period: int
    multiplier: int = 1
    min_lr: float = 0.0

    def decay(self, b: Builder, k: Value) -> Value:
        """A wave of the share of the period under way."""
        period, m = float(self.period), float(self.multiplier)
        if m == 1.0:
            share = b.Div(b.Mod(k, b.const([period], float64), fmod=1), period)
            return _half_wave(b, share, self.base_lr, self.min_lr)
        grown = b.Add(b.Mul(k, (m - 1.0) / period), 1.0)
        n = b.Floor(b.Div(b.Log(grown), math.log(m)))
        # a logarithm may be rounded across a whole number, which the exact starts repair
        late = b.Cast(b.GreaterOrEqual(k, self._start(b, b.Add(n, 1.0))), to=float64)
        early = b.Cast(b.Less(k, self._start(b, n)), to=float64)
        n = b.Sub(b.Add(n, late), early)
        length = b.Mul(b.Pow(b.const([m], float64), n), period)
        share = b.Div(b.Sub(k, self._start(b, n)), length)
        return _half_wave(b, share, self.base_lr, self.min_lr)

    def _start(self, b: Builder, n: Value) -> Value:
        """The step at which period `n` begins."""
        m = float(self.multiplier)
        power = b.Round(b.Pow(b.const([m], float64), n))
        return b.Div(b.Mul(b.Sub(power, 1.0), float(self.period)), m - 1.0)


@dataclass(frozen=True, kw_only=True)
class OneCycle(Schedule):
    """From lr / div_factor up to lr in `pct_start` of the steps, then far below where it began.

    The end is lr / div_factor / final_div_factor: torch's OneCycleLR with lr as its max_lr and
    without a cycle of the momentum. Smith and Topin, "Super-Convergence: Very Fast Training of
    Neural Networks Using Large Learning Rates", 2018. After `total_steps` it stays at the end.
    """

    warmup_steps: int = field(init=False, default=0)
    total_steps: int
    pct_start: float = 0.3
    anneal: Literal["cos", "linear"] = "cos"
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.three_phase and self.pct_start > 0.5:
            raise ArgumentError(
                f"pct_start is {self.pct_start}", hint="in three phases it is at most 0.5"
            )
        if self.total_steps * self.pct_start <= 1 or self.total_steps < 3:
            raise ArgumentError(
                f"total_steps is {self.total_steps}, of which {self.pct_start} are no cycle",
                hint="give more steps, or a larger pct_start",
            )

    def decay(self, b: Builder, k: Value) -> Value:
        """Phases one after another, each from one rate to the next."""
        k = b.Min(k, float(self.total_steps - 1))
        first, last = self.base_lr / self.div_factor, self.base_lr / self.div_factor
        last /= self.final_div_factor
        up = self.pct_start * self.total_steps - 1
        phases = [(0.0, up, first, self.base_lr), (up, self.total_steps - 1.0, self.base_lr, last)]
        if self.three_phase:
            down = 2 * self.pct_start * self.total_steps - 2
            phases[1:] = [
                (up, down, self.base_lr, first),
                (down, self.total_steps - 1.0, first, last),
            ]
        rate = self._phase(b, k, *phases[-1])
        for phase in reversed(phases[:-1]):
            rate = b.Where(b.LessOrEqual(k, phase[1]), self._phase(b, k, *phase), rate)
        return rate

    def _phase(self, b: Builder, k: Value, start: float, end: float, a: float, z: float) -> Value:
        """From rate `a` at step `start` to rate `z` at step `end`."""
        share = b.Div(b.Sub(k, start), end - start)
        if self.anneal == "cos":
            return _half_wave(b, share, a, z)
        return b.Add(b.Mul(share, z - a), a)


@dataclass(frozen=True, kw_only=True)
class Step(Schedule):
    """lr * gamma^floor(k / step_size), as torch's StepLR."""

    step_size: int
    gamma: float = 0.1

    def decay(self, b: Builder, k: Value) -> Value:
        """A power of the number of drops."""
        drops = b.Floor(b.Div(k, float(self.step_size)))
        return b.Mul(b.Pow(b.const([self.gamma], float64), drops), self.base_lr)


@dataclass(frozen=True, kw_only=True)
class MultiStep(Schedule):
    """lr * gamma^n, n the number of milestones that are at k or before, as torch's MultiStepLR."""

    milestones: Sequence[int]
    gamma: float = 0.1

    def decay(self, b: Builder, k: Value) -> Value:
        """A power of the number of milestones."""
        passed = b.GreaterOrEqual(k, np.asarray(self.milestones, np.float64))
        drops = b.Cast(b.ReduceSum(b.Cast(passed, to=int64), [0], keepdims=1), to=float64)
        return b.Mul(b.Pow(b.const([self.gamma], float64), drops), self.base_lr)


@dataclass(frozen=True, kw_only=True)
class Exponential(Schedule):
    """lr * gamma^k, as torch's ExponentialLR."""

    gamma: float

    def decay(self, b: Builder, k: Value) -> Value:
        """A power of the step."""
        return b.Mul(b.Pow(b.const([self.gamma], float64), k), self.base_lr)


@dataclass(frozen=True, kw_only=True)
class InverseSqrt(Schedule):
    """lr * sqrt(s / (k + s)), s being `timescale`, or else the warm-up, or else 10,000.

    As transformers' get_inverse_sqrt_schedule; the schedule of Vaswani et al., "Attention Is All
    You Need", 2017, section 5.3, with lr at its peak.
    """

    timescale: int | None = None

    def decay(self, b: Builder, k: Value) -> Value:
        """A root of the step."""
        scale = float(self.timescale or self.warmup_steps or 10_000)
        return b.Mul(b.Sqrt(b.Div(scale, b.Add(k, scale))), self.base_lr)


def _half_wave(b: Builder, share: Value, top: float, bottom: float) -> Value:
    """From `top` to `bottom` along half a cosine."""
    wave = b.Add(b.Cos(b.Mul(share, math.pi)), 1.0)
    return b.Add(b.Mul(wave, (top - bottom) / 2.0), bottom)


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant, "linear": Linear, "cosine": Cosine, "cosine_restarts": CosineRestarts,
    "one_cycle": OneCycle, "step": Step, "multi_step": MultiStep, "exponential": Exponential,
    "polynomial": Polynomial, "inverse_sqrt": InverseSqrt,
}  # fmt: skip


def named_schedule(name: str, lr: float) -> Scheduler:
    """The schedule that a text such as ``cosine(total_steps=1000)`` names, of the rate `lr`."""
    if "plateau" in name.lower():
        raise ArgumentError(
            f"schedule {name!r}: a step does not see how training goes on",
            hint="the runtime does: Trainer.fit(…, callbacks=[ReduceOnPlateau(lr=…)])",
        )
    if not is_number(lr) or lr < 0:
        raise ArgumentError(f"lr is {lr!r}", hint="give a float32 number of at least 0")
    kind, settings = find_entry(SCHEDULES, name, "schedule", hidden=("base_lr",))
    made: Scheduler = kind(base_lr=float(lr), **settings)
    return made


publish("optimizer.schedule", named_schedule)
