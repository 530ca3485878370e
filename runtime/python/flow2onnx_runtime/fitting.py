"""fit: from data and settings to a loop, and through it."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from flow2onnx_runtime.batch_sources import Batching, open_source
from flow2onnx_runtime.callbacks import Callback, Plot
from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.history import History
from flow2onnx_runtime.learner import Learner
from flow2onnx_runtime.loop import Loop, NonFinite, Validation, callbacks_of
from flow2onnx_runtime.metrics import Given as Metrics
from flow2onnx_runtime.metrics import metrics_of
from flow2onnx_runtime.progress_bar import ProgressBar

__all__ = ["Callbacks", "FitSettings", "Metrics", "NonFinite", "describe_settings", "fit"]

Method = TypeVar("Method", bound=Callable[..., History])
Callbacks = Any  # a Callback, a function of the loop, or several of them
_LABELS = ("labels", "label", "targets", "target", "y")


@dataclass(frozen=True, kw_only=True)
class FitSettings:
    """The settings of a training.

    batch_size, shuffle, seed, drop_last
        How rows become batches: in an order of its own in each epoch, which the seed decides; by 32
        unless the bundle takes another number. Rows that fill no batch at the end are a smaller
        one, or left out, which a bundle of a fixed batch needs.
    steps
        The batches of an epoch, for a generator that goes on for ever.
    columns
        The columns for feeds that have other names: ``{"labels": "label"}``.
    metrics, output, labels
        Names, with settings, or objects: accuracy, top_k, f1, mae, mse, rmse, r2, perplexity. They
        compare an output (the first) of the predict job with the feed that has the labels.
    accumulate
        So many batches make one step, of the mean of their gradients.
    prefetch
        How many batches are made ahead, on a thread of their own.
    non_finite
        What becomes of a loss that is NaN or infinite: ``"raise"`` an error, ``"skip"`` the batch,
        or ``"ignore"`` it.
    checkpoint, every, resume
        A folder that is written after each epoch, after `every` so many steps, and after an
        interrupt. With `resume`, training goes on from there if there is one, bit for bit as if it
        had not been interrupted, in the middle of an epoch too.
    progress, plot
        A bar on stderr; without a word, on a terminal. A picture of the curves, at the end.
    """

    batch_size: int | None
    shuffle: bool
    seed: int
    drop_last: bool | None
    steps: int | None
    columns: Mapping[str, str] | None
    metrics: Metrics
    output: str | None
    labels: str | None
    accumulate: int
    prefetch: int
    non_finite: NonFinite
    checkpoint: str | os.PathLike[str] | None
    every: int | None
    resume: bool
    progress: bool | None
    plot: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "accumulate", "prefetch", "every"):
            _check_count(
                name, getattr(self, name), is_optional=name not in ("accumulate", "prefetch")
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or self.seed < 0:
            raise OptionsError(f"seed is {self.seed!r}", hint="give a whole number of at least 0")
        if self.non_finite not in ("raise", "skip", "ignore"):
            raise OptionsError(
                f"non_finite is {self.non_finite!r}", hint="'raise', 'skip' or 'ignore'"
            )
        if self.checkpoint is None and (self.resume or self.every is not None):
            name = "resume" if self.resume else "every"
            raise OptionsError(
                f"{name} is of a checkpoint, and none is named", hint="say where: checkpoint="
            )

    def batching(self, *, trains: bool) -> Batching:
        """How the data become batches; validation goes through all rows in their order."""
        return Batching(
            size=self.batch_size,
            shuffles=self.shuffle and trains,
            seed=self.seed,
            drops_last=self.drop_last if trains else None,
            steps=self.steps if trains else None,
            columns=self.columns or {},
        )


def describe_settings(method: Method) -> Method:
    """The method, whose documentation goes on with that of the settings that it takes."""
    if method.__doc__ and FitSettings.__doc__:  # neither is there under python -OO
        _, _, settings = inspect.cleandoc(FitSettings.__doc__).partition("\n\n")
        method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n\n{settings}\n"
    return method


def fit(
    learner: Learner,
    batches: Any,
    epochs: int,
    validation: Any,
    callbacks: Callbacks,
    settings: FitSettings,
) -> History:
    """Train, and return the history: `Trainer.fit` says how."""
    _check_count("epochs", epochs)
    source = open_source(batches, learner.feeds, settings.batching(trains=True))
    source.check_epochs(epochs)
    learner.check_plan(
        {"the number of batches": source.count, "the number of epochs": epochs,
         "accumulate": settings.accumulate, "every": settings.every}
    )  # fmt: skip
    loop = Loop(
        learner,
        source,
        epochs,
        validation=_validation(learner, validation, epochs, settings),
        callbacks=_all_callbacks(callbacks, settings.plot),
        accumulate=settings.accumulate,
        columns=settings.columns or {},
        prefetch=settings.prefetch,
        non_finite=settings.non_finite,
        checkpoint=None if settings.checkpoint is None else Path(settings.checkpoint),
        every=settings.every,
        bar=_bar(settings.progress),
    )
    if settings.resume and settings.checkpoint is not None and Path(settings.checkpoint).exists():
        loop.resume(Path(settings.checkpoint))
    return loop.run()


def _validation(learner: Learner, data: Any, epochs: int, settings: FitSettings) -> Validation:
    metrics = metrics_of(settings.metrics)
    if metrics and data is None and not learner.shows_predictions:
        raise OptionsError(
            f"{metrics[0].name} is measured on predictions, and a step gives losses alone",
            hint="give validation=, which may be the same data",
        )
    source = None
    if data is not None:
        size = settings.batching(trains=False)
        source = open_source(data, learner.feeds, _for_validation(data, size), trains=False)
        source.check_epochs(epochs)
    return Validation(
        source=source,
        metrics=metrics,
        output=settings.output,
        labels=settings.labels or _labels(learner),
    )


def _for_validation(data: Any, batching: Batching) -> Batching:
    """The batch size is that of the training where the data have rows, else nobody's."""
    has_rows = isinstance(data, np.ndarray | Mapping | tuple) or hasattr(data, "column_names")
    return batching if has_rows else Batching(columns=batching.columns)


def _labels(learner: Learner) -> str | None:
    """The feed that has the labels: by its name, as what predictions need not, or the last."""
    names = [f.name for f in learner.feeds]
    for name in _LABELS:
        if name in names:
            return name
    unread = learner.unread
    return unread[-1] if unread else (names[-1] if names else None)


def _all_callbacks(given: Any, plot: Any) -> list[Callback]:
    return [*callbacks_of(given), *([Plot(plot)] if plot is not None else [])]


def _bar(progress: bool | None) -> ProgressBar | None:
    shows = sys.stderr.isatty() if progress is None else progress
    return ProgressBar() if shows else None


def _check_count(name: str, value: object, *, is_optional: bool = False) -> None:
    if value is None and is_optional:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise OptionsError(f"{name} is {value!r}", hint="give a number of at least 1")
