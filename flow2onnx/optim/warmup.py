"""Warm-ups: the rate of the first steps."""

from dataclasses import dataclass

import numpy as np

from flow2onnx.dtypes import float64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.registry import publish

__all__ = ["Warmup", "constant", "linear"]


@dataclass(frozen=True)
class Warmup:
    """base * (start + (1 - start) k / steps) for `steps` steps; a constant one stays at start."""

    steps: int
    start: float
    is_constant: bool

    def rate(self, b: Builder, k: Value, base: float) -> Value:
        """The rate at step `k`, float64 of shape (1,)."""
        start = float(np.float32(self.start))
        if self.is_constant:
            return b.const([base * start], float64)
        return b.Mul(b.Add(b.Mul(k, (1.0 - start) / self.steps), start), base)


def constant(steps: int, multiplier: float) -> Warmup:
    """base_lr * multiplier for the first `steps` steps."""
    return Warmup(_steps(steps), _fraction("multiplier", multiplier), True)


def linear(steps: int, start_multiplier: float) -> Warmup:
    """From base_lr * start_multiplier in a straight line to base_lr at step `steps`."""
    return Warmup(_steps(steps), _fraction("start_multiplier", start_multiplier), False)


def _steps(steps: int) -> int:
    if not isinstance(steps, int) or steps < 0:
        raise ArgumentError(f"steps is a number of at least 0, got {steps!r}")
    return steps


def _fraction(name: str, value: float) -> float:
    if not isinstance(value, int | float) or not 0 <= value < 1:
        raise ArgumentError(f"{name} is a number in [0, 1), got {value!r}")
    return float(value)


publish("optimizer.warmup.constant", constant)
publish("optimizer.warmup.linear", linear)
