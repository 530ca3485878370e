"""Moving averages of the weights: what a model predicts with, beside what it trains on."""

from collections.abc import Collection
from typing import Any

from flow2onnx.dtypes import float64
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Value
from flow2onnx.optim.base import Step
from flow2onnx.trace.job import Job

__all__ = ["append_averages", "average_name", "check_decay"]


def average_name(weight: str) -> str:
    """The state tensor that is the average of a weight."""
    return f"{weight}-ema"


def check_decay(decay: Any) -> float | None:
    """The decay of an average, a number from 0 to below 1, or None for no average."""
    if decay is None:
        return None
    if isinstance(decay, bool) or not isinstance(decay, int | float) or not 0 <= decay < 1:
        raise ArgumentError(
            f"ema is {decay!r}", hint="give the decay, from 0 to below 1, such as 0.999, or None"
        )
    return float(decay)


def append_averages(job: Job, step: Step, names: Collection[str]) -> None:
    """Move the averages of the weights that a step moves: a = decay * a + (1 - decay) * w.

    w is the next value of the weight. The first step makes the averages the weights, whatever they
    began with, as torch's AveragedModel with get_ema_multi_avg_fn. An average is a state tensor
    that was made before; weights without one have none.
    """
    b = job.b
    for name in names:
        average = average_name(name)
        if average not in job.averages:
            continue
        kept = _kept(step, job.averages[average])
        with b.under(f"update/{average}"):
            w, old = job.updates[name], job.values[average]
            job.assign(average, b.Add(step.scale(old, kept), step.scale(w, b.Sub(1.0, kept))))


def _kept(step: Step, decay: float) -> Value:
    """The share of an average that stays: 0 at the first step. float64 of shape (1,)."""
    b = step.b

    def make() -> Value:
        no, yes = (b.const([share], float64) for share in (0.0, decay))
        return b.Where(b.Equal(step.counter, 0), no, yes)

    made: Value = step.once(f"ema {decay}", make)
    return made
