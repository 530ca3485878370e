"""Learning-rate schedules: the rate of a train step as nodes of the graph.

Formulas are OneFlow's (its learning-rate kernel), computed in float64 and handed on as float32.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flow2onnx.dtypes import float32, float64, int64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.optim.published import publish
from flow2onnx.optim.warmup import Warmup
from flow2onnx.trace.context import current_job

__all__ = [
    "CosineScheduler",
    "CustomScheduler",
    "ExponentialScheduler",
    "InverseTimeScheduler",
    "LinearCosineScheduler",
    "NaturalExpScheduler",
    "PiecewiseConstantScheduler",
    "PiecewiseScalingScheduler",
    "PolynomialScheduler",
    "Scheduler",
    "constant_rate",
]


@dataclass(frozen=True)
class Scheduler:
    """The learning rate as a function of the train step, which counts from 0.

    While a warm-up lasts it replaces the schedule; afterwards the schedule goes on at the absolute
    step, not shifted by the warm-up.
    """

    base_lr: float
    warmup: Warmup | None = None

    def rate(self, b: Builder, step: Value) -> Value:
        """The rate, float32 of shape (1,), at `step`, int64 of shape (1,)."""
        constant = self.constant()
        if constant is not None:
            return b.const([constant], float32)
        k = b.Cast(step, to=float64)
        rate = self.decayed(b, k)
        if self.warmup is not None:
            is_warm = b.Less(step, np.array([self.warmup.steps], np.int64))
            rate = b.Where(is_warm, self.warmup.rate(b, k, _float32(self.base_lr)), rate)
        return b.Cast(rate, to=float32)

    def constant(self) -> float | None:
        """The rate, if it never changes."""
        return None

    def decayed(self, b: Builder, k: Value) -> Value:
        """The rate at step `k`, float64 of shape (1,), without the warm-up."""
        raise NotImplementedError


@dataclass(frozen=True)
class _Constant(Scheduler):
    def constant(self) -> float | None:
        return self.base_lr


def constant_rate(value: float) -> Scheduler:
    """One rate for all steps."""
    return _Constant(value)


def _float32(value: float) -> float:
    """The nearest float32: OneFlow keeps its settings in that precision."""
    return float(np.float32(value))


def _positive(steps: int) -> int:
    if not isinstance(steps, int) or steps < 1:
        raise ArgumentError(f"steps is a number of at least 1, got {steps!r}")
    return steps


class _Named(Scheduler):
    """A scheduler with a constructor of OneFlow's own."""

    def _begin(self, base_lr: float, warmup: Warmup | None) -> None:
        if warmup is not None and not isinstance(warmup, Warmup):
            raise ArgumentError(
                f"warmup is {warmup!r}", hint="use flow.optimizer.warmup.linear or .constant"
            )
        object.__setattr__(self, "base_lr", float(base_lr))
        object.__setattr__(self, "warmup", warmup)

    def _keep(self, **fields: object) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)


class PiecewiseConstantScheduler(_Named):
    """values[i], i being the number of boundaries that lie before the step.

    A boundary belongs to the values before it: up to and including step boundaries[0] the rate is
    values[0].
    """

    boundaries: tuple[int, ...]
    values: tuple[float, ...]

    def __init__(
        self, boundaries: Sequence[int], values: Sequence[float], warmup: Warmup | None = None
    ) -> None:
        if len(values) != len(boundaries) + 1:
            raise ArgumentError(
                f"{len(boundaries)} boundaries need {len(boundaries) + 1} values, got {len(values)}"
            )
        self._begin(values[0], warmup)
        self._keep(boundaries=tuple(boundaries), values=tuple(float(v) for v in values))

    def constant(self) -> float | None:
        """The one value, without boundaries and warm-up."""
        return None if self.boundaries or self.warmup else self.values[0]

    def decayed(self, b: Builder, k: Value) -> Value:
        """A look-up by the number of boundaries passed."""
        return _piece(b, k, self.boundaries, [_float32(v) for v in self.values])


class PiecewiseScalingScheduler(_Named):
    """base_lr * s[i] with s = 1 and then the scales, which do not accumulate."""

    boundaries: tuple[int, ...]
    scales: tuple[float, ...]

    def __init__(
        self,
        base_lr: float,
        boundaries: Sequence[int],
        scale: float | Sequence[float],
        warmup: Warmup | None = None,
    ) -> None:
        scales = [scale] * len(boundaries) if isinstance(scale, int | float) else list(scale)
        if len(scales) != len(boundaries):
            raise ArgumentError(
                f"{len(boundaries)} boundaries need as many scales, got {len(scales)}"
            )
        self._begin(base_lr, warmup)
        self._keep(boundaries=tuple(boundaries), scales=(1.0, *map(float, scales)))

    def decayed(self, b: Builder, k: Value) -> Value:
        """A look-up by the number of boundaries passed."""
        base = _float32(self.base_lr)
        return _piece(b, k, self.boundaries, [base * _float32(s) for s in self.scales])


def _piece(b: Builder, k: Value, boundaries: Sequence[int], values: Sequence[float]) -> Value:
    if not boundaries:
        return b.const(list(values), float64)
    passed = b.Cast(b.Greater(k, b.const(list(boundaries), float64)), to=int64)
    return b.Gather(b.const(list(values), float64), b.ReduceSum(passed, [0], keepdims=1))


class CosineScheduler(_Named):
    """base ((1 - alpha) (1 + cos(π q / steps)) / 2 + alpha) with q = min(k, steps)."""

    steps: int
    alpha: float

    def __init__(
        self, base_lr: float, steps: int, alpha: float = 0.0, warmup: Warmup | None = None
    ) -> None:
        self._begin(base_lr, warmup)
        self._keep(steps=_positive(steps), alpha=_float32(alpha))

    def decayed(self, b: Builder, k: Value) -> Value:
        """Half a cosine down to alpha * base."""
        q = b.Min(k, float(self.steps))
        wave = b.Mul(b.Add(b.Cos(b.Mul(q, math.pi / self.steps)), 1.0), 0.5)
        return b.Mul(b.Add(b.Mul(wave, 1.0 - self.alpha), self.alpha), _float32(self.base_lr))


class LinearCosineScheduler(_Named):
    """base ((alpha + l) c + beta), l = 1 - q/steps, c = (1 + cos(2π num_periods q/steps))/2."""

    steps: int
    num_periods: float
    alpha: float
    beta: float

    def __init__(
        self,
        base_lr: float,
        steps: int,
        num_periods: float = 0.5,
        alpha: float = 0.0,
        beta: float = 0.001,
        warmup: Warmup | None = None,
    ) -> None:
        self._begin(base_lr, warmup)
        self._keep(
            steps=_positive(steps),
            num_periods=_float32(num_periods),
            alpha=_float32(alpha),
            beta=_float32(beta),
        )

    def decayed(self, b: Builder, k: Value) -> Value:
        """A cosine under a falling line."""
        q = b.Div(b.Min(k, float(self.steps)), float(self.steps))
        line = b.Add(b.Sub(1.0, q), self.alpha)
        wave = b.Add(b.Cos(b.Mul(q, 2.0 * math.pi * self.num_periods)), 1.0)
        return b.Mul(b.Add(b.Mul(line, b.Mul(wave, 0.5)), self.beta), _float32(self.base_lr))


class PolynomialScheduler(_Named):
    """(base - end) (1 - q / d)^power + end with q = min(k, steps) and d = steps.

    With `cycle` q = k and d is the next multiple of steps.
    """

    steps: int
    end_learning_rate: float
    power: float
    is_cyclic: bool

    def __init__(
        self,
        base_lr: float,
        steps: int,
        end_learning_rate: float = 0.0001,
        power: float = 1.0,
        cycle: bool = False,
        warmup: Warmup | None = None,
    ) -> None:
        self._begin(base_lr, warmup)
        self._keep(
            steps=_positive(steps),
            end_learning_rate=_float32(end_learning_rate),
            power=_float32(power),
            is_cyclic=cycle,
        )

    def decayed(self, b: Builder, k: Value) -> Value:
        """A power of what is left."""
        steps = float(self.steps)
        if self.is_cyclic:
            share = b.Div(k, b.Mul(b.Max(b.Ceil(b.Div(k, steps)), 1.0), steps))
        else:
            share = b.Div(b.Min(k, steps), steps)
        left = b.Pow(b.Sub(1.0, share), self.power)
        span = _float32(self.base_lr) - self.end_learning_rate
        return b.Add(b.Mul(left, span), self.end_learning_rate)


class _Exponent(_Named):
    """What three schedules share: a rate of decay and k / steps, whole if `staircase`."""

    steps: int
    decay_rate: float
    is_staircase: bool

    def __init__(
        self,
        base_lr: float,
        steps: int,
        decay_rate: float,
        staircase: bool = False,
        warmup: Warmup | None = None,
    ) -> None:
        self._begin(base_lr, warmup)
        self._keep(steps=_positive(steps), decay_rate=_float32(decay_rate), is_staircase=staircase)

    def decayed(self, b: Builder, k: Value) -> Value:
        """The base rate times a factor of k / steps."""
        share = b.Div(k, float(self.steps))
        factor = self._factor(b, b.Floor(share) if self.is_staircase else share)
        return b.Mul(factor, _float32(self.base_lr))

    def _factor(self, b: Builder, share: Value) -> Value:
        raise NotImplementedError


class ExponentialScheduler(_Exponent):
    """base * decay_rate^(k / steps)."""

    def _factor(self, b: Builder, share: Value) -> Value:
        return b.Pow(b.const([self.decay_rate], float64), share)


class InverseTimeScheduler(_Exponent):
    """base / (1 + decay_rate k / steps)."""

    def _factor(self, b: Builder, share: Value) -> Value:
        return b.Reciprocal(b.Add(b.Mul(share, self.decay_rate), 1.0))


class NaturalExpScheduler(_Exponent):
    """base * e^(-decay_rate k / steps)."""

    def _factor(self, b: Builder, share: Value) -> Value:
        return b.Exp(b.Mul(share, -self.decay_rate))


class CustomScheduler(Scheduler):
    """The rate is a blob of the job, named by its logical blob name ``op/out``."""

    lbn: str

    def __init__(self, lbn: str) -> None:
        object.__setattr__(self, "base_lr", 0.0)
        object.__setattr__(self, "warmup", None)
        object.__setattr__(self, "lbn", lbn)

    def rate(self, b: Builder, step: Value) -> Value:
        """The blob, as float32 of shape (1,)."""
        value = current_job("optimizer.CustomScheduler").named(self.lbn)
        return b.Reshape(b.Cast(value, to=float32), [1])


for _kind in (
    CosineScheduler,
    CustomScheduler,
    ExponentialScheduler,
    InverseTimeScheduler,
    LinearCosineScheduler,
    NaturalExpScheduler,
    PiecewiseConstantScheduler,
    PiecewiseScalingScheduler,
    PolynomialScheduler,
):
    publish(_kind.__name__, _kind)
