"""Several optimizers in one job, each for its own variables."""

from collections.abc import Sequence
from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.optim.base import Optimizer
from flow2onnx.optim.schedules import constant_rate
from flow2onnx.trace.job import Job
from flow2onnx.trace.registry import publish

__all__ = ["CombinedOptimizer"]


class CombinedOptimizer(Optimizer):
    """Each member trains the variables that it names; the loss scale is common."""

    def __init__(
        self,
        optimizers: Sequence[Optimizer],
        *,
        loss_scale_factor: float | None = None,
        train_step_lbn: str | None = None,
        loss_scale_policy: Any = None,
    ) -> None:
        super().__init__(
            constant_rate(0.0),
            loss_scale_factor=loss_scale_factor,
            train_step_lbn=train_step_lbn,
            loss_scale_policy=loss_scale_policy,
        )
        self.optimizers = tuple(optimizers)
        for member in self.optimizers:
            if not isinstance(member, Optimizer) or isinstance(member, CombinedOptimizer):
                raise ArgumentError(f"a member is a single optimizer, got {member!r}")
            if member.sets_scale or member.train_step_lbn is not None:
                raise ArgumentError(
                    "a member sets its own loss scale or step",
                    hint="give them to CombinedOptimizer, which holds for all members",
                )

    def assignment(self, job: Job) -> dict[Optimizer, frozenset[str]]:
        """The members' variables, which may not overlap."""
        chosen = {member: member.chosen(job) for member in self.optimizers}
        seen: set[str] = set()
        for names in chosen.values():
            if seen & names:
                raise ArgumentError(
                    f"{', '.join(sorted(seen & names))}: trained by two members",
                    hint="give each member its own variables=",
                )
            seen |= names
        return chosen


publish("optimizer.CombinedOptimizer", CombinedOptimizer)
