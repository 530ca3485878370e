"""Gradient accumulation: a train step is built whole, or as one of two halves.

The first half adds the gradients of one batch to sums that are state; the second moves the
variables by the mean over the batches summed up, and empties the sums.
"""

from dataclasses import dataclass
from typing import Literal

from flow2onnx.dtypes import DType, bool_, float32, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.optim.base import Optimizer, Step
from flow2onnx.trace.job import Job
from flow2onnx.trace.spec import JobSpec

__all__ = [
    "WHOLE",
    "Training",
    "add_to_sums",
    "batch_count",
    "check_halves",
    "learning_rate",
    "mean_of_sums",
    "rate_of",
]


@dataclass(frozen=True)
class Training:
    """How a train step is built. `adjusts_rate`: a state tensor may override the schedule.

    `rounds`: of how many batches a process adds up the gradients that others send. `counter`: the
    element type of the number of steps.
    """

    part: Literal["whole", "gradients", "update"] = "whole"
    adjusts_rate: bool = False
    rounds: int = 1
    counter: DType = int64


WHOLE = Training()


def learning_rate(job: JobSpec) -> str:
    """The state tensor that overrides a job's learning rate from 0 on."""
    return job.state_name("Rate")


def batch_count(job: JobSpec) -> str:
    """The state tensor that counts the batches in the sums of a job's gradients."""
    return job.state_name("Batches")


def rate_of(job: Job, optimizer: Optimizer, counter: Value, training: Training) -> Value:
    """The rate of this step, float32 of shape (1,)."""
    b, scheduled = job.b, optimizer.scheduler.rate(job.b, counter)
    if not training.adjusts_rate:
        return scheduled
    given = job.counter(learning_rate(job.spec), float32, -1.0)
    is_scheduled = b.Less(given, b.const([0.0], float32))
    own = b.Mul(given, optimizer.relative_rate) if optimizer.relative_rate != 1 else given
    chosen: Value = b.Where(is_scheduled, scheduled, own)
    return chosen


def check_halves(job: Job, tables: object) -> None:
    """Raise for a step that has no halves."""
    if tables:
        raise UnsupportedError(
            "a table of which only rows are updated cannot accumulate gradients",
            job=job.spec.name,
            source=job.spec.source,
            hint="leave indexed_slices_optimizer_conf out, or export without accumulation",
        )


def add_to_sums(job: Job, grads: dict[str, Value]) -> None:
    """Add the gradients of a batch to the sums, and the batch to their count."""
    b, name = job.b, batch_count(job.spec)
    with b.under("accumulate"):
        for owner, g in grads.items():
            job.assign(f"{owner}-gradients", b.Add(job.slot(owner, "gradients"), g))
        job.assign(name, b.Add(job.counter(name), 1))


def mean_of_sums(job: Job, step: Step, names: list[str]) -> dict[str, Value]:
    """The mean gradients of the batches summed up; the sums and their count are emptied."""
    b, count = job.b, batch_count(job.spec)
    job.updates.clear()  # what the body writes happened once for each batch
    with b.under("accumulate"):
        share = b.Div(1.0, b.Cast(job.counter(count), to=float32))
        sums = {name: job.slot(name, "gradients") for name in names}
        for name, total in sums.items():
            job.assign(f"{name}-gradients", _emptied(b, total))
        job.assign(count, b.const([0], job.variables[count].dtype))
        return {name: step.scale(total, share) for name, total in sums.items()}


def _emptied(b: Builder, total: Value) -> Value:
    """Zeros in the shape of a sum; computed from it, as a runtime keeps a constant in memory."""
    emptied: Value = b.Where(b.const([False], bool_), total, b.const([0], dtype_of(total)))
    return b.Reshape(emptied, []) if not dims(total) else emptied
