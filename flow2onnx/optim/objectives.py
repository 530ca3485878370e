"""Several `minimize` calls in one job: each loss trains the variables of its own optimizer."""

from collections.abc import Mapping

from flow2onnx.autodiff import gradients
from flow2onnx.autodiff.registry import (
    contrib_rule_names,
    expansion_for,
    expansion_names,
    rule_for,
    rule_names,
)
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.schedules import constant_rate
from flow2onnx.trace.job import Job, Objective

__all__ = ["Several", "gradient_rules", "gradients_of", "optimizer_of"]


class Several(Optimizer):
    """The optimizers of the objectives of a job, as one: each for its own variables."""

    def __init__(self, job: Job, objectives: list[Objective]) -> None:
        super().__init__(constant_rate(0.0))
        self._job, self.objectives = job, objectives
        for objective in objectives:
            self._check(objective.optimizer)

    def _check(self, optimizer: Optimizer) -> None:
        members = optimizer.assignment(self._job)
        if optimizer.sets_scale:
            raise self._job.error(
                "two minimize calls, and one sets a loss scale",
                hint="one loss scale is for a whole job: use flow.optimizer.CombinedOptimizer",
            )
        if optimizer.clipping is not None and set(members) != {optimizer}:
            raise UnsupportedError(
                "two minimize calls, and one clips the gradients of several members together",
                job=self._job.spec.name,
                hint="leave the clipping or the groups out",
            )

    def assignment(self, job: Job) -> dict[Optimizer, frozenset[str]]:
        """The variables of every optimizer."""
        found = (objective.optimizer.assignment(job) for objective in self.objectives)
        return {member: names for members in found for member, names in members.items()}


def optimizer_of(job: Job) -> Optimizer:
    """The optimizer of a job, which stands for those of several `minimize` calls."""
    objectives: list[Objective] = job.objectives
    if len(objectives) == 1:
        only: Optimizer = objectives[0].optimizer
        return only
    if job.pieces > 1:
        raise UnsupportedError(
            "two minimize calls in a mirrored job on several devices",
            job=job.spec.name,
            source=job.spec.source,
            hint="make a train job of each",
        )
    return Several(job, objectives)


def gradients_of(
    job: Job, seeds: Mapping[Value, Value], wanted: Mapping[Value, str | None]
) -> dict[Value, Value]:
    """The gradients of a job's losses by value.

    `wanted` has the variable that a value is read for, or None for one whose gradient is watched.
    A variable has the gradient of the losses of its own `minimize`; what is watched, and what
    lies on the way, that of all.
    """
    if len(job.objectives) == 1:
        return gradients(job.b, seeds, list(wanted), job.regions)
    total: dict[Value, Value] = {}
    for objective in job.objectives:
        mine = [v for v, n in wanted.items() if n is None or n in objective.names]
        own = {loss: seeds[loss] for loss in objective.losses}
        found = gradients(job.b, own, mine, job.regions)
        others = {v for v, n in wanted.items() if n is not None} - set(mine)
        for value, g in found.items():
            if value not in others:
                total[value] = job.b.Add(total[value], g) if value in total else g
    return total


def gradient_rules() -> dict[str, tuple[object, object]]:
    """The gradient rule and the expansion of each operator, those that a program adds included."""
    names = {*rule_names(), *contrib_rule_names(), *expansion_names()}
    return {name: (rule_for(name), expansion_for(name)) for name in sorted(names)}
