"""The learner that a loop trains: that of a bundle, or anything else that makes steps."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from flow2onnx_runtime.dtypes import Array, all_finite, element_named
from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.manifest import DRAWS_ANEW, PredictJob
from flow2onnx_runtime.program import TensorInfo

if TYPE_CHECKING:
    from flow2onnx_runtime.trainer import Trainer

__all__ = ["BundleLearner", "Learner", "StateWriter", "fill_rows"]

Results = Mapping[str, Array]
StateWriter = Callable[[str | os.PathLike[str]], None]


class Learner(Protocol):
    """Steps, evaluation, state and rate of what a loop trains.

    `feeds` are what a batch consists of, `losses` the names of the results that are minimised. A
    batch is `prepare`d, which may happen on another thread and ahead, and given to one of the
    methods below it.
    """

    feeds: tuple[TensorInfo, ...]
    losses: tuple[str, ...]

    @property
    def steps(self) -> int:
        """The number of steps done."""

    @property
    def rate(self) -> float | None:
        """The learning rate, where it is known; settable where the model allows."""

    @rate.setter
    def rate(self, rate: float) -> None: ...

    @property
    def accumulated(self) -> int:
        """The number of batches whose gradients wait for an update."""

    @property
    def keeps_old_values(self) -> bool:
        """True if a step whose loss is not finite is refused and changes nothing."""

    def keep_old_values(self, is_asked: bool) -> None:
        """Refuse steps whose loss is not finite from now on, or do not."""

    @property
    def updates_in_place(self) -> bool:
        """True if keeping old values would cost memory."""

    @property
    def unread(self) -> tuple[str, ...]:
        """The feeds that predictions do not need."""

    @property
    def shows_predictions(self) -> bool:
        """True if a step gives more than losses."""

    @property
    def draws_anew(self) -> bool:
        """True if random draws depend on what was run before, and not on the step alone."""

    def check_plan(self, plan: Mapping[str, object]) -> None:
        """Raise an error where ranks that train together are to do other steps than this one."""

    def prepare(self, arrays: Sequence[Array]) -> Any:
        """A batch as `step` takes it; raises `FeedError` for one that does not fit."""

    def step(self, batch: Any) -> Results:
        """One training step."""

    def accumulate(self, batch: Any) -> Results:
        """Gradients of a batch, added up for the next `update`."""

    def update(self) -> None:
        """One step of the mean of the gradients added up."""

    def evaluate(self, arrays: Sequence[Array]) -> tuple[Results, Results]:
        """Losses and predictions of a batch, without changing anything."""

    def is_finite(self, results: Results) -> bool:
        """True if no loss is NaN or infinite."""

    def snapshot(self) -> dict[str, Array]:
        """Copies of all state."""

    def restore(self, state: Mapping[str, Array]) -> None:
        """Replace all state by a snapshot."""

    def state_writer(self) -> StateWriter:
        """A function that writes the state of now to a file, whole or not at all.

        Every rank asks for it, as each may have a part of the state; the first one calls it.
        """

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the state by a saved one."""


class BundleLearner:
    """The trainer of a bundle as a loop drives it; `predict` is a predict job of it, or None.

    Validation runs the predict job that gives losses as well, if there is one, else the step model
    without an update for the losses, and the first predict job for the predictions.
    """

    def __init__(
        self, trainer: "Trainer", prepare: Callable[[Sequence[Array]], Any], predict: str | None
    ) -> None:
        self._trainer, self._prepare = trainer, prepare
        self.feeds, self.losses = trainer.feeds, trainer.manifest.losses
        jobs = {job.job: job for job in trainer.manifest.predict}
        if predict is not None and predict not in jobs:
            raise OptionsError(
                f"the bundle has no predict job {predict!r}",
                hint=f"it has {', '.join(jobs) or 'none'}",
            )
        self._with_losses = next(filter(self._gives_losses, _candidates(jobs, predict)), None)
        self._predicts = self._with_losses or next(iter(_candidates(jobs, predict)), None)

    def _gives_losses(self, job: PredictJob) -> bool:
        feeds = {f.name for f in self.feeds}
        has_losses = bool(self.losses) and set(self.losses) <= {r.name for r in job.results}
        return has_losses and {f.name for f in job.feeds} <= feeds

    def check_plan(self, plan: Mapping[str, object]) -> None:
        """Raise `RankError` where a rank is to do other steps than the others."""
        self._trainer.check_plan(plan)

    @property
    def steps(self) -> int:
        """The number of steps done."""
        return self._trainer.steps

    @property
    def rate(self) -> float | None:
        """The rate that was set, or the constant one that the bundle was made with."""
        return self._trainer.present_rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._trainer.learning_rate = rate

    @property
    def accumulated(self) -> int:
        """The number of batches whose gradients wait for an update."""
        return self._trainer.accumulated

    @property
    def keeps_old_values(self) -> bool:
        """True if a step whose loss is not finite is refused."""
        return self._trainer.finite_losses

    def keep_old_values(self, is_asked: bool) -> None:
        """Refuse steps whose loss is not finite from now on, or do not."""
        if self._trainer.finite_losses != is_asked:
            self._trainer.finite_losses = is_asked

    @property
    def updates_in_place(self) -> bool:
        """True if keeping old values would cost memory."""
        return bool(self._trainer.in_place)

    def prepare(self, arrays: Sequence[Array]) -> Any:
        """The batch checked and, on a device, copied there."""
        return self._prepare(arrays)

    def step(self, batch: Any) -> Results:
        """One training step."""
        return self._trainer.step_prepared(batch)

    def accumulate(self, batch: Any) -> Results:
        """Gradients of a batch, added up."""
        return self._trainer.accumulate(*batch)

    def update(self) -> None:
        """One step of their mean."""
        self._trainer.update()

    def evaluate(self, arrays: Sequence[Array]) -> tuple[Results, Results]:
        """Losses and predictions; of fewer rows than the model takes, predictions alone."""
        by_name = {f.name: a for f, a in zip(self.feeds, arrays, strict=True)}
        rows, full = len(arrays[0]) if arrays and arrays[0].ndim else 0, self._full_batch()
        is_partial = full is not None and rows < full
        predictions = self._predict(by_name, rows, full if is_partial else None)
        if is_partial:
            return {}, {n: v for n, v in predictions.items() if n not in self.losses}
        if self._with_losses is not None:
            losses = {n: v for n, v in predictions.items() if n in self.losses}
        else:
            found = self._trainer.evaluate(*arrays)
            losses = {n: found[n] for n in self.losses}
        return losses, {n: v for n, v in predictions.items() if n not in self.losses}

    def _predict(self, by_name: Mapping[str, Array], rows: int, full: int | None) -> Results:
        job = self._predicts
        if job is None:
            return {}
        given = {f.name: by_name[f.name] for f in job.feeds}
        if full is not None:
            given = {name: fill_rows(array, full) for name, array in given.items()}
        found = self._trainer.predict(job=job.job, **given)
        if full is None:
            return found
        return {n: v[:rows] if v.ndim and len(v) == full else v for n, v in found.items()}

    def _full_batch(self) -> int | None:
        sizes = [f.shape[0] for f in self.feeds if f.shape]
        return next((s for s in sizes if isinstance(s, int)), None)

    @property
    def unread(self) -> tuple[str, ...]:
        """The feeds that the predictions do not need."""
        read = set() if self._predicts is None else {f.name for f in self._outputs_job().feeds}
        return tuple(f.name for f in self.feeds if f.name not in read)

    @property
    def shows_predictions(self) -> bool:
        """True if a step gives more than losses."""
        return any(r.name not in self.losses and r.shape for r in self._trainer.results)

    @property
    def draws_anew(self) -> bool:
        """True if random draws depend on what was run before."""
        return self._trainer.manifest.metadata.get(DRAWS_ANEW) == "true"

    def _outputs_job(self) -> PredictJob:
        """Of the predict jobs with the outputs that are looked at, the one that reads least."""
        assert self._predicts is not None, "asked for where there is one"
        wanted = {r.name for r in self._predicts.results} - set(self.losses)
        jobs = [j for j in self._trainer.manifest.predict if {r.name for r in j.results} >= wanted]
        return min(jobs, key=lambda job: len(job.feeds))

    def is_finite(self, results: Results) -> bool:
        """True if no loss is NaN or infinite."""
        elements = {info.name: element_named(info.element) for info in self._trainer.results}
        return all(all_finite(results[n], elements[n]) for n in self.losses if n in results)

    def snapshot(self) -> dict[str, Array]:
        """Copies of all state."""
        return self._trainer.state_dict()

    def restore(self, state: Mapping[str, Array]) -> None:
        """Replace all state by a snapshot."""
        self._trainer.load_state_dict(state)

    def state_writer(self) -> StateWriter:
        """A function that writes the state to a .safetensors file."""
        return self._trainer.save

    def load(self, path: str | os.PathLike[str]) -> None:
        """Replace the state by a saved one."""
        self._trainer.load(path)


def _candidates(jobs: Mapping[str, PredictJob], predict: str | None) -> list[PredictJob]:
    """The predict jobs that a validation may run: those asked for, the first in front."""
    if predict is None:
        return list(jobs.values())
    return [jobs[name] for name in (predict, f"{predict}-eval") if name in jobs]


def fill_rows(array: Array, rows: int) -> Array:
    """The array with its last row repeated, up to so many."""
    if not array.ndim or not len(array):
        return array
    return np.concatenate([array, np.repeat(array[-1:], rows - len(array), axis=0)])
