"""Learning-rate schedules: the rate of a train step as nodes of the graph.

Formulas are OneFlow's (its learning-rate kernel), computed in float64 and handed on as float32.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flow2onnx.dtypes import float32, float64, int64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.optim.settings import LARGEST, is_number
from flow2onnx.optim.warmup import Warmup
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.registry import publish

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
    "check_rate",
    "constant_rate",
    "scheduler_of",
]


@dataclass(frozen=True, kw_only=True)
class Scheduler:
    """The learning rate as a function of the train step, which counts from 0.

    While a warm-up lasts it replaces the schedule; afterwards the schedule goes on at the absolute
    step, not shifted by the warm-up. The order and the defaults of a schedule's arguments are those
    of its row in the catalogue.
    """

    base_lr: float
    warmup: Warmup | None = None

    def __post_init__(self) -> None:
        check_rate(self.base_lr)
        if self.warmup is not None and not isinstance(self.warmup, Warmup):
            raise ArgumentError(
                f"warmup is {self.warmup!r}", hint="use flow.optimizer.warmup.linear or .constant"
            )

    def rate(self, b: Builder, step: Value) -> Value:
        """The rate, float32 of shape (1,), at `step`, int64 of shape (1,)."""
        constant = self.constant()
        if constant is not None:
            return b.const([constant], float32)
        k = b.Cast(step, to=float64)
        rate = self.decay(b, k)
        if self.warmup is not None and self.warmup.steps:
            is_warm = b.Less(step, np.array([self.warmup.steps], np.int64))
            rate = b.Where(is_warm, self.warmup.rate(b, k, _float32(self.base_lr)), rate)
        return b.Cast(rate, to=float32)

    def constant(self) -> float | None:
        """The rate, if it never changes."""
        return None

    def decay(self, b: Builder, k: Value) -> Value:
        """The rate at step `k`, float64 of shape (1,), without the warm-up."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class _Constant(Scheduler):
    def constant(self) -> float | None:
        return self.base_lr


def constant_rate(value: float) -> Scheduler:
    """One rate for all steps."""
    return _Constant(base_lr=value)


@dataclass(frozen=True, kw_only=True)
class _Computed(Scheduler):
    """The rate is what a function of the step gives, written with the operators of flow."""

    base_lr: float = field(default=0.0, init=False)
    warmup: None = field(default=None, init=False)
    function: Callable[..., Any]

    def rate(self, b: Builder, step: Value) -> Value:
        """The rate of the function at the step, which it sees as a float64 blob of shape (1,)."""
        takes = len(inspect.signature(self.function).parameters)
        found = self.function(*[Blob(b.Cast(step, to=float64))][:takes])
        if isinstance(found, Blob):
            return b.Reshape(b.Cast(found.value, to=float32), [1])
        if isinstance(found, Scheduler):
            return found.rate(b, step)
        check_rate(found)
        return b.const([found], float32)


def check_rate(value: Any) -> None:
    """Raise unless a rate is a number of at least 0."""
    is_real = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not is_real or not 0 <= value <= LARGEST:
        raise ArgumentError(
            f"a learning rate is a float32 number of at least 0, got {value!r}",
            hint="a step down the gradient has a positive rate",
        )


def scheduler_of(given: Any) -> Scheduler:
    """The schedule that a scheduler, a number, or a function of the step stands for."""
    if isinstance(given, Scheduler):
        return given
    if callable(given) and not isinstance(given, type):
        return _Computed(function=given)
    if isinstance(given, int | float | np.number) and not isinstance(given, bool):
        check_rate(given)
        return constant_rate(float(given))
    raise ArgumentError(
        f"lr_scheduler is a scheduler, got {given!r}",
        hint="flow.optimizer.PiecewiseConstantScheduler([], [0.1]) is a constant rate, as 0.1 is; "
        "a function of the step gives any other: lambda step: 0.1 * 0.99**step",
    )


def _float32(value: float) -> float:
    """The nearest float32: OneFlow keeps its settings in that precision."""
    return float(np.float32(value))


@dataclass(frozen=True, kw_only=True)
class PiecewiseConstantScheduler(Scheduler):
    """values[i], i being the number of boundaries that lie before the step.

    A boundary belongs to the values before it: up to and including step boundaries[0] the rate is
    values[0].
    """

    base_lr: float = field(init=False)
    boundaries: Sequence[int]
    values: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.values) != len(self.boundaries) + 1:
            raise ArgumentError(
                f"{len(self.boundaries)} boundaries need {len(self.boundaries) + 1} values, "
                f"got {len(self.values)}"
            )
        for value in self.values:
            check_rate(value)
        object.__setattr__(self, "base_lr", float(self.values[0]))
        super().__post_init__()

    def constant(self) -> float | None:
        """The one value, without boundaries and warm-up."""
        return None if self.boundaries or self.warmup else self.base_lr

    def decay(self, b: Builder, k: Value) -> Value:
        """A look-up by the number of boundaries passed."""
        return _piece(b, k, self.boundaries, [_float32(v) for v in self.values])


@dataclass(frozen=True, kw_only=True)
class PiecewiseScalingScheduler(Scheduler):
    """base_lr * s[i] with s = 1 and then the scales, which do not accumulate."""

    boundaries: Sequence[int]
    scale: float | Sequence[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self._scales()) != len(self.boundaries):
            raise ArgumentError(
                f"{len(self.boundaries)} boundaries need as many scales, got {len(self._scales())}"
            )
        for scale in self._scales():
            _check_factor("scale", scale)

    def _scales(self) -> list[float]:
        if isinstance(self.scale, int | float):
            return [self.scale] * len(self.boundaries)
        return list(self.scale)

    def decay(self, b: Builder, k: Value) -> Value:
        """A look-up by the number of boundaries passed."""
        base = _float32(self.base_lr)
        scales = [1.0, *self._scales()]
        return _piece(b, k, self.boundaries, [base * _float32(s) for s in scales])


def _piece(b: Builder, k: Value, boundaries: Sequence[int], values: Sequence[float]) -> Value:
    if not boundaries:
        return b.const(list(values), float64)
    passed = b.Cast(b.Greater(k, b.const(list(boundaries), float64)), to=int64)
    return b.Gather(b.const(list(values), float64), b.ReduceSum(passed, [0], keepdims=1))


@dataclass(frozen=True, kw_only=True)
class _Decay(Scheduler):
    """A schedule that goes on for a number of steps."""

    steps: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ArgumentError(f"steps is a number of at least 1, got {self.steps!r}")


def _check_factor(name: str, value: Any) -> None:
    """Raise unless a factor of rates is a number of at least 0, so that they are too."""
    if (not isinstance(value, np.number) and not is_number(value)) or not 0 <= value <= LARGEST:
        raise ArgumentError(f"{name} is a float32 number of at least 0, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class CosineScheduler(_Decay):
    """base ((1 - alpha) (1 + cos(π q / steps)) / 2 + alpha) with q = min(k, steps)."""

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_factor("alpha", self.alpha)

    def decay(self, b: Builder, k: Value) -> Value:
        """Half a cosine down to alpha * base."""
        q, alpha = b.Min(k, float(self.steps)), _float32(self.alpha)
        wave = b.Mul(b.Add(b.Cos(b.Mul(q, math.pi / self.steps)), 1.0), 0.5)
        return b.Mul(b.Add(b.Mul(wave, 1.0 - alpha), alpha), _float32(self.base_lr))


@dataclass(frozen=True, kw_only=True)
class LinearCosineScheduler(_Decay):
    """base ((alpha + l) c + beta), l = 1 - q/steps, c = (1 + cos(2π num_periods q/steps))/2."""

    num_periods: float
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_factor("alpha", self.alpha)
        _check_factor("beta", self.beta)

    def decay(self, b: Builder, k: Value) -> Value:
        """A cosine under a falling line."""
        q = b.Div(b.Min(k, float(self.steps)), float(self.steps))
        line = b.Add(b.Sub(1.0, q), _float32(self.alpha))
        wave = b.Add(b.Cos(b.Mul(q, 2.0 * math.pi * _float32(self.num_periods))), 1.0)
        rate = b.Add(b.Mul(line, b.Mul(wave, 0.5)), _float32(self.beta))
        return b.Mul(rate, _float32(self.base_lr))


@dataclass(frozen=True, kw_only=True)
class PolynomialScheduler(_Decay):
    """(base - end) (1 - q / d)^power + end with q = min(k, steps) and d = steps.

    With `cycle` q = k and d is the next multiple of steps; step 0 is as step 1 then.
    """

    end_learning_rate: float
    power: float
    cycle: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rate(self.end_learning_rate)
        _check_factor("power", self.power)

    def decay(self, b: Builder, k: Value) -> Value:
        """A power of what is left."""
        steps, end = float(self.steps), _float32(self.end_learning_rate)
        if self.cycle:
            k = b.Max(k, 1.0)
            share = b.Div(k, b.Mul(b.Ceil(b.Div(k, steps)), steps))
        else:
            share = b.Div(b.Min(k, steps), steps)
        left = b.Pow(b.Sub(1.0, share), _float32(self.power))
        return b.Add(b.Mul(left, _float32(self.base_lr) - end), end)


@dataclass(frozen=True, kw_only=True)
class _Exponent(_Decay):
    """A rate of decay and k / steps, whole if `staircase`."""

    decay_rate: float
    staircase: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_factor("decay_rate", self.decay_rate)

    def decay(self, b: Builder, k: Value) -> Value:
        """The base rate times a factor of k / steps."""
        share = b.Div(k, float(self.steps))
        share = b.Floor(share) if self.staircase else share
        return b.Mul(self._factor(b, share, _float32(self.decay_rate)), _float32(self.base_lr))

    def _factor(self, b: Builder, share: Value, decay: float) -> Value:
        raise NotImplementedError


class ExponentialScheduler(_Exponent):
    """base * decay_rate^(k / steps)."""

    def _factor(self, b: Builder, share: Value, decay: float) -> Value:
        return b.Pow(b.const([decay], float64), share)


class InverseTimeScheduler(_Exponent):
    """base / (1 + decay_rate k / steps)."""

    def _factor(self, b: Builder, share: Value, decay: float) -> Value:
        return b.Reciprocal(b.Add(b.Mul(share, decay), 1.0))


class NaturalExpScheduler(_Exponent):
    """base * e^(-decay_rate k / steps)."""

    def _factor(self, b: Builder, share: Value, decay: float) -> Value:
        return b.Exp(b.Mul(share, -decay))


@dataclass(frozen=True, kw_only=True)
class CustomScheduler(Scheduler):
    """The rate is a blob of the job, named by its logical blob name ``op/out``."""

    base_lr: float = field(default=0.0, init=False)
    warmup: None = field(default=None, init=False)
    lbn: str

    def rate(self, b: Builder, step: Value) -> Value:
        """The blob, as float32 of shape (1,)."""
        value = current_job("optimizer.CustomScheduler").named(self.lbn)
        return b.Reshape(b.Cast(value, to=float32), [1])


for _schedule in (
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
    publish(f"optimizer.{_schedule.__name__}", _schedule)
