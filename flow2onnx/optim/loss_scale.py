"""Loss scaling: gradients are computed of a multiple of the loss, and divided again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flow2onnx.dtypes import float32, int64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.optim.totals import WHOLE_TOTALS, Totals
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.job import Job
from flow2onnx.trace.op import composite, op
from flow2onnx.trace.registry import operator, publish

__all__ = [
    "DynamicScale",
    "LossScale",
    "StaticScale",
    "dynamic_loss_scale",
    "dynamic_loss_scale_schedule",
    "static_loss_scale",
]

_LARGEST = float(np.finfo(np.float32).max)


class LossScale:
    """The factor that multiplies the loss while gradients are computed."""

    # True if the factor changes from step to step: gradients carry it to the end.
    is_dynamic: ClassVar[bool]

    def factor(self, job: Job) -> float | Value:
        """The factor of this step, a number or float32 of shape (1,)."""
        raise NotImplementedError

    def states(self, job: Job) -> tuple[str, ...]:
        """The names of the tensors that it keeps from call to call."""
        return ()

    def advance(
        self, job: Job, grads: Mapping[str, Value], totals: Totals = WHOLE_TOTALS
    ) -> Value | None:
        """Take in the gradients of a step; a truth that says if it counts, None if all do."""
        return None


@dataclass(frozen=True)
class StaticScale(LossScale):
    """One factor for all steps, neutral but for rounding in half precision."""

    is_dynamic = False

    number: float = 1.0

    def factor(self, job: Job) -> float:
        """The number."""
        return self.number


@dataclass(frozen=True)
class DynamicScale(LossScale):
    """A factor that grows after `period` good steps; an overflow shrinks it and skips the step."""

    is_dynamic = True

    initial: float
    period: int
    multiplier: float

    def factor(self, job: Job) -> Value:
        """The state that holds it, float32 of shape (1,)."""
        return self._state(job)[0]

    def states(self, job: Job) -> tuple[str, ...]:
        """The factor, and the number of good steps since it changed."""
        return job.spec.state_name("LossScale"), job.spec.state_name("GoodSteps")

    def _state(self, job: Job) -> tuple[Value, Value]:
        scale, good = self.states(job)
        return job.counter(scale, float32, self.initial), job.counter(good)

    def advance(self, job: Job, grads: Mapping[str, Value], totals: Totals = WHOLE_TOTALS) -> Value:
        """Move the factor and the count; true if all gradients are finite."""
        b = job.b
        with b.under("scale"):
            is_finite = _all_finite(b, grads, totals)
            scale, good = self._state(job)
            moved = _next_state(b, is_finite, (scale, good), self.period, self.multiplier)
        for name, value in zip(self.states(job), moved, strict=True):
            job.assign(name, value)
        return is_finite


def _next_state(
    b: Builder, is_finite: Value, state: tuple[Value, Value], period: int, multiplier: float
) -> tuple[Value, Value]:
    """The factor, float32, and the count of good steps, int64 of shape (1,), after a step."""
    scale, good = state
    count = b.Add(good, 1)
    grows = b.GreaterOrEqual(count, period)
    grown = b.Min(b.Mul(scale, multiplier), b.const(_LARGEST, float32))
    shrunk = b.Max(b.Div(scale, multiplier), b.const(1.0, float32))
    next_scale = b.Where(is_finite, b.Where(grows, grown, scale), shrunk)
    return next_scale, b.Where(b.And(is_finite, b.Not(grows)), count, b.const([0], int64))


def _all_finite(b: Builder, gs: Mapping[str, Value], totals: Totals) -> Value:
    """True, of shape (1,), if no element of any gradient is NaN or infinite.

    x - x is 0 for a finite x and NaN otherwise, and a sum keeps a NaN.
    """
    sums = {name: b.ReduceSum(b.Sub(g, g), keepdims=0) for name, g in gs.items()}
    total = totals.of(b, {name: b.Cast(part, to=float32) for name, part in sums.items()})
    return b.Reshape(b.Equal(total, 0.0), [1])


def static_loss_scale(loss_scale_factor: float) -> StaticScale:
    """Multiply the loss by `loss_scale_factor` while gradients are computed."""
    if not isinstance(loss_scale_factor, int | float) or loss_scale_factor <= 0:
        raise ArgumentError(f"loss_scale_factor is a positive number, got {loss_scale_factor!r}")
    return StaticScale(float(loss_scale_factor))


def dynamic_loss_scale(
    initial_loss_scale: float = 1073741824.0, increment_period: int = 2000, multiplier: float = 2.0
) -> DynamicScale:
    """Multiply the loss by a factor that finds its own size."""
    if initial_loss_scale <= 0 or increment_period < 1 or multiplier <= 1:
        raise ArgumentError(
            "initial_loss_scale is positive, increment_period at least 1 and multiplier above 1; "
            f"got {initial_loss_scale!r}, {increment_period!r}, {multiplier!r}"
        )
    return DynamicScale(float(initial_loss_scale), increment_period, float(multiplier))


publish("optimizer.loss_scale.static_loss_scale", static_loss_scale)
publish("optimizer.loss_scale.dynamic_loss_scale", dynamic_loss_scale)


@composite("dynamic_loss_scale_schedule", is_public=False)
def dynamic_loss_scale_schedule(
    count_not_finite: Blob,
    loss_scale: Blob,
    good_step_counter: Blob,
    increment_period: int = 2000,
    multiplier: float = 2.0,
    name: str | None = None,
) -> tuple[Blob, Blob]:
    """Update the variables `loss_scale` and `good_step_counter`, and return their values.

    After `increment_period` steps without a number that is not finite the scale is multiplied,
    after one with such it is divided, down to 1.
    """
    scale, count = _next_scale(
        count_not_finite, loss_scale, good_step_counter, increment_period, multiplier
    )
    operator("assign")(loss_scale, scale)
    operator("assign")(good_step_counter, count)
    return scale, count


@op("next_loss_scale", is_public=False)
def _next_scale(
    b: Builder,
    count_not_finite: Value,
    loss_scale: Value,
    good_step_counter: Value,
    period: int,
    multiplier: float,
    name: str | None = None,
) -> tuple[Value, Value]:
    """The scale and the count of good steps after a step with so many numbers not finite."""
    is_finite = b.Equal(count_not_finite, b.like(0, count_not_finite))
    return _next_state(b, is_finite, (loss_scale, good_step_counter), period, multiplier)
