"""Learning-rate schedules: the rate of a train step as a node of the graph."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.dtypes import float32, int64
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.registry import register

__all__ = ["Constant", "PiecewiseConstantScheduler", "Scheduler"]


class Scheduler:
    """The learning rate as a function of the train step, which counts from 0."""

    def rate(self, b: Builder, step: Value) -> Value:
        """The rate, float32 of shape (1,), at `step`, int64 of shape (1,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Scheduler):
    """One rate for all steps."""

    value: float

    def rate(self, b: Builder, step: Value) -> Value:
        """The rate as a constant."""
        return b.const([self.value], float32)


class PiecewiseConstantScheduler(Scheduler):
    """values[i], i being the number of boundaries that lie before the step.

    A boundary belongs to the values before it: up to and including step boundaries[0] the rate is
    values[0].
    """

    def __init__(
        self, boundaries: Sequence[int], values: Sequence[float], warmup: Any = None
    ) -> None:
        if len(values) != len(boundaries) + 1:
            raise ArgumentError(
                f"{len(boundaries)} boundaries need {len(boundaries) + 1} values, got {len(values)}"
            )
        if warmup is not None:
            raise UnsupportedError(
                "warmup is not available in this version",
                hint="put the warm-up steps into boundaries and values",
            )
        self.boundaries, self.values = tuple(boundaries), tuple(float(v) for v in values)

    def rate(self, b: Builder, step: Value) -> Value:
        """A constant without boundaries, else a look-up by the number of boundaries passed."""
        if not self.boundaries:
            return Constant(self.values[0]).rate(b, step)
        passed = b.Greater(step, np.asarray(self.boundaries, np.int64))
        index = b.ReduceSum(b.Cast(passed, to=int64), [0], keepdims=1)
        return b.Gather(np.asarray(self.values, np.float32), index)


register("optimizer.PiecewiseConstantScheduler", PiecewiseConstantScheduler)
