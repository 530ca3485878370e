"""Optimizers by name: one table, from which jobs, imported models and the command line choose."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Value
from flow2onnx.optim.averages import check_decay
from flow2onnx.optim.base import ALL, Optimizer, Step, Variables
from flow2onnx.optim.clipping import Clipping, Several, by_global_norm, by_value
from flow2onnx.optim.descent import Lion, SGDRule
from flow2onnx.optim.groups import Group, Groups, match_groups, read_groups
from flow2onnx.optim.layerwise import LAMBRule, LARSRule
from flow2onnx.optim.moments import Adamax, AdamRule, AdamWRule, NAdam, RAdam
from flow2onnx.optim.muon import Muon
from flow2onnx.optim.named_schedules import named_schedule
from flow2onnx.optim.rule import Rule
from flow2onnx.optim.scaled import Adadelta, Adagrad, RMSPropRule
from flow2onnx.optim.schedules import Scheduler, constant_rate, scheduler_of
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.call_text import find_entry
from flow2onnx.trace.context import current_job
from flow2onnx.trace.job import Job
from flow2onnx.trace.registry import publish

__all__ = ["OPTIMIZERS", "NamedOptimizer", "named_optimizer"]

OPTIMIZERS: dict[str, type[Rule]] = {
    "sgd": SGDRule, "adam": AdamRule, "adamw": AdamWRule, "rmsprop": RMSPropRule,
    "adagrad": Adagrad, "adadelta": Adadelta, "nadam": NAdam, "radam": RAdam, "adamax": Adamax,
    "lion": Lion, "lamb": LAMBRule, "lars": LARSRule, "muon": Muon,
}  # fmt: skip
# What an optimizer by name has beside the settings of its rule.
_COMMON = ("schedule", "clip_norm", "clip_value")


class NamedOptimizer(Optimizer):
    """A rule for the variables of a job, and members for those that groups take out."""

    def __init__(
        self,
        rule: Rule,
        scheduler: Scheduler,
        members: Sequence["tuple[Group, NamedOptimizer | None]"] = (),
        *,
        ema: float | None = None,
        relative_rate: float = 1.0,
        **shared: Any,
    ) -> None:
        super().__init__(scheduler, **shared)
        self.rule, self.members = rule, dict(members)
        self.updates_rows = rule.updates_rows
        self.ema, self.relative_rate = ema, relative_rate

    def leaves_unread_rows(self, name: str) -> bool:
        """True for plain gradient descent, and for adagrad without decay."""
        return self.rule.leaves_unread_rows

    @property
    def folds_rate(self) -> bool:
        """True for plain gradient descent of all variables alike."""
        return self.rule.is_plain and self.clipping is None and not self.members

    def for_names(self, chosen: Mapping[Group, frozenset[str]]) -> "NamedOptimizer":
        """This optimizer for a job whose frozen groups are constants, and averages its own.

        `chosen` are the variables of each group.
        """
        made = copy(self)
        members = self.members.items()
        made.members = {replace(g, names=chosen[g]): m for g, m in members if not g.frozen}
        made.ema = None
        return made

    def minimize(self, loss: Blob | Sequence[Blob]) -> None:
        """Minimise the mean of `loss` over its elements; of several, the sum of their means."""
        super().minimize(loss)
        job = current_job("optimizer.minimize")
        if self.ema is not None:
            for name in filter(partial(_is_trainable, job), sorted(job.trained)):
                job.averages[str(job.slot(name, "ema").name)] = self.ema

    def assignment(self, job: Job) -> dict[Optimizer, frozenset[str]]:
        """The variables of this optimizer and of its members; those of frozen groups are left."""
        rest, found = self.chosen(job), dict[Optimizer, frozenset[str]]()
        known = {n: () for n in job.user_variables if n in rest and _is_trainable(job, n)}
        for group, names in match_groups(tuple(self.members), known).items():
            rest -= names
            member = self.members[group]
            if member is not None:
                found[member] = names
        return {self: rest, **found}

    def updates_parts(self, w: Value) -> bool:
        """True if its rule moves some elements as it does when it has all of them."""
        return self.rule.updates_parts(w)

    def update(self, step: Step, name: str, w: Value, g: Value) -> Value:
        """The next value of variable `name`, now `w`, of gradient `g`."""
        return self.rule.update(step, name, w, g)


def _is_trainable(job: Job, name: str) -> bool:
    variable = job.variables[name]
    return variable.is_trainable and variable.dtype.is_floating_point


def named_optimizer(
    name: str,
    lr: float | Scheduler | Callable[..., Any] | None = None,
    *,
    schedule: str | Scheduler | None = None,
    groups: Groups = None,
    clip_norm: float | None = None,
    clip_value: float | None = None,
    ema: float | None = None,
    loss_scale_policy: Any = None,
    variables: Variables = ALL,
) -> NamedOptimizer:
    """The optimizer that a text such as ``adamw(weight_decay=0.1)`` names.

    `lr` is its rate, a schedule of `flow.optimizer` or a function of the step, `schedule` one by
    name, such as ``cosine(total_steps=1000)``. `groups` maps shell patterns of variable names to
    what differs for them: `lr`, `weight_decay`, `optimizer`, or `frozen`. Gradients are limited to
    [-clip_value, clip_value] each, and then their joint norm to `clip_norm`. With `ema` the slots
    ``w-ema`` hold averages ema * average + (1 - ema) * w. `lr`, `schedule` and the clips may stand
    in the text too.

    >>> import flow2onnx as flow
    >>> flow.optimizer.named("lion", 1e-4, groups={"*-bias": {"weight_decay": 0.0}}).rule
    Lion(lr=0.0001, weight_decay=0.0, beta1=0.9, beta2=0.99)
    """
    given = {"lr": lr, "schedule": schedule, "clip_norm": clip_norm, "clip_value": clip_value}
    kind, settings = find_entry(OPTIMIZERS, name, "optimizer", common=_COMMON)
    settings = _join_settings(settings, given)
    rate, schedule = settings.pop("lr", None), settings.pop("schedule", None)
    clipping = _clipping(settings.pop("clip_norm", None), settings.pop("clip_value", None))
    if callable(rate):
        rate = scheduler_of(rate)
    if isinstance(rate, Scheduler):
        if schedule is not None:
            raise ArgumentError("lr is a schedule already", hint="leave schedule= out")
        rule, scheduler = kind(**settings), rate
    else:
        rule = kind(**settings, **({} if rate is None else {"lr": rate}))
        scheduler = _scheduler(schedule, rule.lr, has_rate=rate is not None)
    rule = replace(rule, lr=scheduler.base_lr)
    return NamedOptimizer(
        rule,
        scheduler,
        [(group, _member(group, rule, scheduler)) for group in read_groups(groups)],
        ema=check_decay(ema),
        grad_clipping=clipping,
        loss_scale_policy=loss_scale_policy,
        variables=variables,
    )


def _join_settings(settings: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The settings in a text and those beside it, none of them twice."""
    for name, value in given.items():
        if value is None:
            continue
        if name in settings:
            what = "the learning rate" if name == "lr" else name
            raise ArgumentError(f"{what} is given twice", hint="once is enough")
        settings[name] = value
    return settings


def _scheduler(schedule: Any, lr: float, *, has_rate: bool) -> Scheduler:
    if schedule is None:
        return constant_rate(float(lr))
    if isinstance(schedule, Scheduler):
        if has_rate:
            raise ArgumentError("lr beside a schedule that has its own", hint="leave lr= out")
        return schedule
    if not isinstance(schedule, str):
        raise ArgumentError(
            f"schedule is {schedule!r}", hint="give a name such as 'cosine(total_steps=1000)'"
        )
    return named_schedule(schedule, lr)


def _clipping(norm: float | None, value: float | None) -> Clipping | None:
    parts: list[Clipping] = [] if value is None else [by_value(value)]
    parts += [] if norm is None else [by_global_norm(norm)]
    return Several(tuple(parts)) if len(parts) > 1 else next(iter(parts), None)


def _member(group: Group, rule: Rule, scheduler: Scheduler) -> NamedOptimizer | None:
    """The optimizer of a group's variables; None for those that are frozen."""
    if group.frozen:
        return None
    lr = group.lr
    if group.optimizer is not None:
        kind, settings = find_entry(OPTIMIZERS, group.optimizer, "optimizer")
        if lr is not None:
            settings = _join_settings(settings, {"lr": lr})
        lr = settings.get("lr")
        rule = kind(**settings)
    if group.weight_decay is not None:
        rule = replace(rule, weight_decay=group.weight_decay)
    if lr is None:
        return NamedOptimizer(rule, scheduler)
    if not scheduler.base_lr:
        raise ArgumentError(
            f"groups: {group.title!r} has lr {lr} beside a rate of 0", hint="give lr= above 0"
        )
    own = _with_rate(scheduler, lr, group)
    return NamedOptimizer(replace(rule, lr=lr), own, relative_rate=lr / scheduler.base_lr)


def _with_rate(scheduler: Scheduler, lr: float, group: Group) -> Scheduler:
    """The schedule with another rate to begin with."""
    try:
        return replace(scheduler, base_lr=float(lr))
    except (TypeError, ValueError):  # of fields that are not given when it is made
        raise ArgumentError(
            f"groups: {group.title!r} has lr {lr}, but {type(scheduler).__name__} lists its rates",
            hint="take a schedule by name, such as 'multi_step(milestones=[30, 80])'",
        ) from None


publish("optimizer.named", named_optimizer)
