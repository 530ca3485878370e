"""The base of all optimizers: what `minimize` records, and the tools of one update."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from flow2onnx.dtypes import float32, float64
from flow2onnx.errors import ArgumentError, DTypeError, UnsupportedError, spelling_hint
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.optim.clipping import Clipping, clipping_of
from flow2onnx.optim.loss_scale import LossScale, StaticScale, static_loss_scale
from flow2onnx.optim.schedules import Scheduler, scheduler_of
from flow2onnx.optim.settings import check_own
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job

__all__ = ["ALL", "Decay", "Optimizer", "Step", "Variables"]

_log = logging.getLogger("flow2onnx.optim")

Variables = Sequence[str] | Callable[[], Sequence[str]] | None
# A rate for all steps, or what gives it for a step.
Rate = float | Callable[..., Any]
# The default of `variables`: all variables of the job that exist when `minimize` is called.
ALL: Variables = None


@dataclass(frozen=True)
class Step:
    """One update under construction: the builder, the job, the rate and the step counter."""

    corrects_bias: ClassVar[bool] = True  # whether moments may be corrected for their start at 0

    b: Builder
    job: Job
    rate: Value
    counter: Value
    # of a number that a process knows of its part of a variable, that of the whole
    over_ranks: Callable[[Value], Value] | None = field(default=None, kw_only=True)
    shared: dict[str, Any] = field(init=False, default_factory=dict, compare=False, repr=False)

    def scalar(self, value: Any, like: Value) -> Value:
        """A number, or a value of shape (1,), to multiply `like` with.

        It takes the rank of `like` where that ends in 1s: the CPU provider is more than ten times
        slower when it broadcasts a scalar over trailing dimensions of 1. Beside a single number,
        whose rank is 0, it has none either, so that the product is a single number again.
        """
        b, rank = self.b, len(dims(like))
        shape = [1] * rank if not rank or (rank > 1 and dims(like)[-1] == 1) else [1]
        if not isinstance(value, Value):
            return b.const(np.full(shape, value), dtype_of(like))
        if dtype_of(value) != dtype_of(like):
            value = b.Cast(value, to=dtype_of(like))
        return value if len(shape) == 1 else b.Reshape(value, shape)

    def once(self, what: str, make: Callable[[], Any]) -> Any:
        """The value of `make`, called at the first variable and shared by all others."""
        if what not in self.shared:
            self.shared[what] = make()
        return self.shared[what]

    def time(self) -> Value:
        """The number of this step, counted from 1: float64 of shape (1,)."""
        b = self.b
        made: Value = self.once("time", lambda: b.Add(b.Cast(self.counter, to=float64), 1.0))
        return made

    def power(self, beta: float) -> Value:
        """beta^t, t counting the steps from 1: float64 of shape (1,).

        In float32 1 - 0.999^t would be wrong in the fifth digit at the first steps.
        """
        b = self.b
        made: Value = self.once(f"{beta}^t", lambda: b.Pow(b.const([beta], float64), self.time()))
        return made

    def unbiased(self, beta: float) -> Value:
        """1 - beta^t in float64, what a moving mean that started at 0 is divided by."""
        made: Value = self.once(f"1-{beta}^t", lambda: self.b.Sub(1.0, self.power(beta)))
        return made

    def precise_rate(self) -> Value:
        """The rate as float64 of shape (1,)."""
        made: Value = self.once("rate", lambda: self.b.Cast(self.rate, to=float64))
        return made

    def scale(self, x: Value, factor: Any) -> Value:
        """x times a number or a value of shape (1,)."""
        is_one = isinstance(factor, float) and factor == 1.0
        return x if is_one else self.b.Mul(x, self.scalar(factor, x))

    def slot(self, name: str, suffix: str, fill: float = 0.0) -> Value:
        """The optimizer's own tensor beside a variable, such as ``w-momentum``; first `fill`."""
        return self.job.slot(name, suffix, fill)

    def assign(self, name: str, value: Value) -> None:
        """Make `value` what a variable or slot holds after this call."""
        self.job.assign(name, value)

    def moving_mean(self, name: str, suffix: str, beta: float, sample: Value) -> Value:
        """The slot ``<name>-<suffix>`` moved to beta * itself + (1 - beta) * sample."""
        kept = self.scale(self.slot(name, suffix), beta)
        moved = self.b.Add(kept, self.scale(sample, 1.0 - beta))
        self.assign(f"{name}-{suffix}", moved)
        return moved

    def correction(self, beta: float) -> Value:
        """1 - beta^t, t counting the steps from 1: what a moment lacks for its start at 0."""
        made: Value = self.once(f"1-{beta}^t in float32", lambda: self._correction(beta))
        return made

    def _correction(self, beta: float) -> Value:
        b = self.b
        t = b.Add(b.Cast(self.counter, to=float32), 1.0)
        return b.Sub(1.0, b.Pow(b.const([beta], float32), t))

    def norm(self, x: Value) -> Value:
        """The Euclidean norm over all elements, of shape (1,)."""
        square = self.b.ReduceSumSquare(x, keepdims=0)
        square = square if self.over_ranks is None else self.over_ranks(square)
        return self.b.Reshape(self.b.Sqrt(square), [1])


@dataclass(frozen=True)
class Decay:
    """Weight decay of the variables that regular expressions choose, by partial match."""

    rate: float = 0.0
    includes: tuple[str, ...] | None = None
    excludes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, rate: float | None, includes: Any, excludes: Any) -> "Decay":
        """The decay that an optimizer's three arguments describe."""
        if includes is not None and excludes is not None:
            raise ArgumentError("give weight_decay_includes or weight_decay_excludes, not both")
        share = 0.0 if rate is None else check_own("weight_decay", rate)
        return cls(float(share), _patterns(includes), _patterns(excludes))

    def of_variable(self, name: str) -> float:
        """The decay of one variable; 0 if it is not chosen."""
        if self.includes is not None and not any(re.search(p, name) for p in self.includes):
            return 0.0
        if self.excludes is not None and any(re.search(p, name) for p in self.excludes):
            return 0.0
        return self.rate


def _patterns(given: Any) -> tuple[str, ...] | None:
    if given is None:
        return None
    patterns = (given,) if isinstance(given, str) else tuple(given)
    for pattern in patterns:
        try:
            re.compile(pattern)
        except (re.error, TypeError) as error:
            raise ArgumentError(f"{pattern!r} is no regular expression: {error}") from None
    return patterns


class Optimizer:
    """Turns gradients into updates. A subclass says how one variable moves.

    The arguments that optimizers share are read here; others become attributes of the subclass,
    which annotates them. Their order and defaults are those of the subclass's row in the catalogue.
    """

    # True if it can update some rows of a table and leave the others, slots included.
    updates_rows = False
    # What stays of the averages of the weights at a step; None: there are no averages.
    ema: float | None = None
    # What a rate given at run time, which is the job's, is multiplied with.
    relative_rate: float = 1.0

    def __init__(
        self,
        lr_scheduler: Scheduler | Rate,
        *,
        loss_scale_factor: float | None = None,
        weight_decay: float | None = None,
        weight_decay_includes: Any = None,
        weight_decay_excludes: Any = None,
        grad_clipping: Clipping | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
        variables: Variables = ALL,
        **own: float,
    ) -> None:
        self.scheduler, self.clipping = scheduler_of(lr_scheduler), clipping_of(grad_clipping)
        self.scale = scale_of(loss_scale_factor, loss_scale_policy)
        self.sets_scale = loss_scale_factor is not None or loss_scale_policy is not None
        self.decay = Decay.of(weight_decay, weight_decay_includes, weight_decay_excludes)
        self.train_step_lbn = train_step_lbn
        self.bias_scheduler: Scheduler | None = None
        self._variables = variables
        for name, value in own.items():
            setattr(self, name, check_own(name, value))

    def leaves_unread_rows(self, name: str) -> bool:
        """True if a row of a variable whose gradient is zero keeps its value, and its slots theirs.

        An update of the other rows alone is then the whole update.
        """
        return False

    @property
    def folds_rate(self) -> bool:
        """True if the update is w + delta with delta = -rate * gradient and nothing else.

        The factor can then be put into the loss gradient once instead of into every update.
        """
        return False

    def minimize(self, loss: Blob | Sequence[Blob]) -> None:
        """Minimise the mean of `loss` over its elements; of several, the sum of their means.

        Calls of optimizers with different `variables` stand side by side in one job: each loss
        moves the variables of its own.
        """
        job = current_job("optimizer.minimize")
        if job.spec.config.value("train.model_update_conf") is not None:
            raise job.error(
                "Use model update conf and optimizer conf at same time",
                hint="leave out config.train.model_update_conf, or use flow.losses.add_loss "
                "instead of minimize",
            )
        blobs = list(loss) if isinstance(loss, list | tuple) else [loss]
        start = len(job.losses)
        for blob in blobs:
            if not isinstance(blob, Blob):
                raise ArgumentError(
                    f"a loss is a blob, got {blob!r}",
                    job=job.spec.name,
                    hint="pass what an operator of the job gave, or a list of such",
                )
            if not blob.dtype.is_floating_point:
                raise DTypeError(
                    f"a loss is of real numbers, got {blob.dtype.name}", hint="use flow.cast first"
                )
            job.add_loss(blob.value, blob.is_dynamic)
        if self.train_step_lbn is not None:
            raise UnsupportedError(
                "train_step_lbn: the step counter is the job's own", hint="leave it None"
            )
        names = frozenset[str]().union(*self.assignment(job).values())
        if job.trained & names:
            _log.warning(
                "job %s: a second minimize trains variables of the first, so that the losses add "
                "up and the later optimizer trains by them, as in OneFlow; give each its own "
                "variables= to keep them apart", job.spec.name,
            )  # fmt: skip
        job.train_with(self, names, job.losses[start:])

    def assignment(self, job: Job) -> "dict[Optimizer, frozenset[str]]":
        """The names of the variables that each optimizer trains."""
        return {self: self.chosen(job)}

    def chosen(self, job: Job) -> frozenset[str]:
        """The variables that this optimizer trains."""
        if self._variables is ALL:
            return frozenset(job.user_variables)
        names = _names(self._variables() if callable(self._variables) else self._variables)
        unknown = [n for n in names if n not in job.user_variables]
        if unknown:
            known = f"it has {', '.join(job.user_variables) or 'none'}"
            raise ArgumentError(
                f"variables {unknown} are not in the job",
                job=job.spec.name,
                hint=spelling_hint(unknown[0], job.user_variables, known),
            )
        return frozenset(names)

    def updates_parts(self, w: Value) -> bool:
        """True if it moves some elements of a variable as it does when it has all of them."""
        return True

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value of variable `name`, now `w`, of gradient `g`."""
        raise NotImplementedError


def _names(given: Any) -> list[str]:
    """The names in `variables=`: texts, or what flow.get_variable gave; one alone is one name."""
    listed = [given] if isinstance(given, str | Blob) else list(given or ())
    names = [v.op_name if isinstance(v, Blob) else v for v in listed]
    for name in names:
        if not isinstance(name, str):
            raise ArgumentError(
                f"variables holds {name!r}", hint="give names, such as ['dense-weight']"
            )
    return names


def scale_of(factor: float | None, policy: Any) -> LossScale:
    """The loss scale that an optimizer's two arguments describe."""
    if factor is not None and policy is not None:
        raise ArgumentError("give loss_scale_factor or loss_scale_policy, not both")
    if policy is not None and not isinstance(policy, LossScale):
        raise ArgumentError(
            f"loss_scale_policy is {policy!r}",
            hint="use flow.optimizer.loss_scale.static_loss_scale or dynamic_loss_scale",
        )
    return policy or (StaticScale() if factor is None else static_loss_scale(factor))
