"""Moving averages of the weights: what a model predicts with, beside what it trains on."""

from collections.abc import Collection
from typing import Any

from flow2onnx.errors import ArgumentError
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

    w is the next value of the weight. An average is a state tensor that the body of the job has
    made, with its first value; weights without one have none.
    """
    for name in names:
        average = average_name(name)
        if average not in job.averages:
            continue
        decay = job.averages[average]
        with job.b.under(f"update/{average}"):
            kept = step.scale(job.values[average], decay)
            moved = job.b.Add(kept, step.scale(job.updates[name], 1.0 - decay))
            job.assign(average, moved)
