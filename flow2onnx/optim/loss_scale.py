"""Loss scaling: gradients are computed of a multiple of the loss, and divided again."""

from dataclasses import dataclass

import numpy as np

from flow2onnx.dtypes import float32, int64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.initializers import Constant
from flow2onnx.trace.job import Job
from flow2onnx.trace.registry import publish
from flow2onnx.trace.variables import Variable

__all__ = ["DynamicScale", "StaticScale", "all_finite", "dynamic_loss_scale", "static_loss_scale"]

_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class StaticScale:
    """One factor for all steps, neutral but for rounding in half precision."""

    factor: float = 1.0


@dataclass(frozen=True)
class DynamicScale:
    """A factor that grows after `period` good steps; an overflow shrinks it and skips the step."""

    initial: float
    period: int
    multiplier: float

    def state(self, job: Job) -> tuple[Value, Value]:
        """The factor, float32, and the number of good steps since it changed, int64; shape (1,)."""
        scale, good = self.names(job)
        start = Constant(self.initial)
        return (
            job.state(Variable(scale, (1,), float32, start, "counter", False)),
            job.counter(good, int64),
        )

    def names(self, job: Job) -> tuple[str, str]:
        """What the two are called."""
        return tuple(f"System-Train-{what}-{job.spec.name}" for what in ("LossScale", "GoodSteps"))  # type: ignore[return-value]  # two of them

    def advance(self, job: Job, is_finite: Value) -> None:
        """The next factor and count, after a step whose gradients are finite or not."""
        b, (scale, good) = job.b, self.state(job)
        count = b.Add(good, 1)
        grows = b.GreaterOrEqual(count, self.period)
        grown = b.Min(b.Mul(scale, self.multiplier), b.const(_LARGEST, float32))
        shrunk = b.Max(b.Div(scale, self.multiplier), b.const(1.0, float32))
        next_scale = b.Where(is_finite, b.Where(grows, grown, scale), shrunk)
        next_count = b.Where(b.And(is_finite, b.Not(grows)), count, b.const([0], int64))
        for name, value in zip(self.names(job), (next_scale, next_count), strict=True):
            job.assign(name, value)


def all_finite(b: Builder, gs: list[Value]) -> Value:
    """Whether no element of any gradient is NaN or infinite: a truth of shape (1,).

    x - x is 0 for a finite x and NaN otherwise, and a sum keeps a NaN.
    """
    sums = [b.ReduceSum(b.Sub(g, g), keepdims=0) for g in gs]
    total = b.Cast(sums[0], to=float32)
    for part in sums[1:]:
        total = b.Add(total, b.Cast(part, to=float32))
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
