"""What optimizers have in common: what `minimize` records, and the order of a step."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.errors import ArgumentError, DTypeError, UnsupportedError
from flow2onnx.graph import Builder, Value, dims, dtype_of, size_of
from flow2onnx.optim.clipping import GlobalNorm
from flow2onnx.optim.schedules import Scheduler
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job

__all__ = ["Optimizer", "Step", "loss_seed"]

# The default of `variables`: all variables of the job that exist when `minimize` is called.
ALL = None


@dataclass(frozen=True)
class Step:
    """One update under construction: the builder, the job, the rate and the step counter."""

    b: Builder
    job: Job
    rate: Value
    counter: Value

    def scalar(self, value: Any, like: Value) -> Value:
        """A number, or a value of shape (1,), to multiply `like` with.

        It takes the rank of `like` where that ends in 1s: the CPU provider is more than ten times
        slower when it broadcasts a scalar over trailing dimensions of 1.
        """
        b, rank = self.b, len(dims(like))
        shape = [1] * rank if rank > 1 and dims(like)[-1] == 1 else [1]
        if not isinstance(value, Value):
            return b.const(np.full(shape, value), dtype_of(like))
        if dtype_of(value) != dtype_of(like):
            value = b.Cast(value, to=dtype_of(like))
        return value if len(shape) == 1 else b.Reshape(value, shape)

    def scaled(self, x: Value, factor: Any) -> Value:
        """x times a number or a value of shape (1,)."""
        return (
            x
            if isinstance(factor, float) and factor == 1.0
            else self.b.Mul(x, self.scalar(factor, x))
        )


class Optimizer:
    """Turns gradients into updates. A subclass says how one variable moves."""

    # Whether the update is w + delta with delta = -rate * gradient and nothing else, so that the
    # factor can be put into the loss gradient once instead of into every update.
    folds_rate = False

    def __init__(
        self,
        lr_scheduler: Scheduler,
        loss_scale_factor: float | None = None,
        grad_clipping: GlobalNorm | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Sequence[str] | Callable[[], Sequence[str]] | None = ALL,
    ) -> None:
        if not isinstance(lr_scheduler, Scheduler):
            raise ArgumentError(
                f"lr_scheduler is a scheduler, got {lr_scheduler!r}",
                hint="flow.optimizer.PiecewiseConstantScheduler([], [0.1]) is a constant rate",
            )
        for name, value in (
            ("train_step_lbn", train_step_lbn),
            ("loss_scale_policy", loss_scale_policy),
        ):
            if value is not None:
                raise UnsupportedError(
                    f"{name} is not available in this version", hint="leave it None"
                )
        self.scheduler, self.clipping = lr_scheduler, grad_clipping
        self.loss_scale = 1.0 if loss_scale_factor is None else float(loss_scale_factor)
        self._variables = variables

    def minimize(self, loss: Blob | Sequence[Blob]) -> None:
        """Minimise the mean of `loss` over its elements; of several, the sum of their means."""
        job = current_job("optimizer.minimize")
        blobs = list(loss) if isinstance(loss, list | tuple) else [loss]
        for blob in blobs:
            if not isinstance(blob, Blob):
                raise ArgumentError(f"a loss is a blob, got {blob!r}", job=job.spec.name)
            if not blob.dtype.is_floating_point:
                raise DTypeError(f"a loss is of real numbers, got {blob.dtype.name}")
            job.add_loss(blob.value)
        job.train_with(self, self._chosen(job))

    def _chosen(self, job: Job) -> frozenset[str]:
        if self._variables is ALL:
            return frozenset(job.user_variables)
        names = self._variables() if callable(self._variables) else self._variables
        unknown = [n for n in names or () if n not in job.user_variables]
        if unknown:
            raise ArgumentError(f"variables {unknown} are not in the job", job=job.spec.name)
        return frozenset(names or ())

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value of variable `name`, now `w`, of gradient `g`."""
        raise NotImplementedError


def loss_seed(b: Builder, loss: Value, rate: Value | None) -> Value:
    """The gradient of the objective in each element of a loss.

    OneFlow divides by the number of elements of one loss blob. With `rate` the seed carries -rate
    too, for optimizers that fold it.
    """
    dtype, share = dtype_of(loss), 1.0 / size_of(loss)
    if rate is None:
        return b.const(np.full(dims(loss), share), dtype)
    known = rate.const_value
    if known is not None:
        return b.const(np.full(dims(loss), -share * float(known.numpy().item())), dtype)
    scaled = b.Mul(rate if dtype_of(rate) == dtype else b.Cast(rate, to=dtype), -share)
    return b.Expand(b.Reshape(scaled, [1] * max(len(dims(loss)), 1)), list(dims(loss)))
