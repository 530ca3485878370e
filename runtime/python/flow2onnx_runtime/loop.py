"""The training loop: epochs over batches, validation, callbacks, checkpoints, and its history."""

import copy
import json
import logging
import math
import os
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from flow2onnx_runtime.batch_sources import Source, arrays_of, at_batch, numbered
from flow2onnx_runtime.callbacks import Callback, EveryEpoch
from flow2onnx_runtime.collectives import on_first_rank
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import BundleError, FeedError, FlowError, NonFiniteError, OptionsError
from flow2onnx_runtime.files import open_file, replace_folder, temporary_folder
from flow2onnx_runtime.history import History, Row
from flow2onnx_runtime.interrupts import BrokenOffError, Interrupts
from flow2onnx_runtime.json_reader import Fields, parse_object
from flow2onnx_runtime.learner import Learner, StateWriter
from flow2onnx_runtime.metrics import Metric
from flow2onnx_runtime.prefetch import prefetch_items
from flow2onnx_runtime.progress_bar import ProgressBar

__all__ = ["Loop", "NonFinite", "Validation", "callbacks_of", "remove_checkpoint"]

_log = logging.getLogger("flow2onnx_runtime.fit")
NonFinite = Literal["raise", "skip", "ignore"]
_Prepared = tuple[list[Array], Any]  # the arrays of a batch, and the batch as a step takes it
_FORMAT, _VERSION = "flow2onnx-loop", 1
_LOOP, _STATE = "loop.json", "state.safetensors"
_SMALLER_IS_BETTER = ("loss", "mae", "mse", "rmse", "perplexity")


@dataclass(frozen=True, kw_only=True)
class Validation:
    """The measurement of a model: batches or none, metrics, names of predictions and labels."""

    source: Source | None = None
    metrics: Sequence[Metric] = ()
    output: str | None = None
    labels: str | None = None


@dataclass
class _Means:
    """Means of results, weighted by rows; JSON keeps them exactly."""

    sums: dict[str, float] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    def add(self, results: Mapping[str, Array], names: Sequence[str], weight: int) -> None:
        """Take in losses, by their means, and other results that are single numbers."""
        for name, value in results.items():
            array = np.asarray(value)
            if array.size and (name in names or array.size == 1) and array.dtype.kind in "fiub":
                number = float(array.astype(np.float64).mean())
                self.sums[name] = self.sums.get(name, 0.0) + number * weight
                self.weights[name] = self.weights.get(name, 0.0) + weight

    def result(self) -> dict[str, float]:
        """The means by name."""
        return {name: total / self.weights[name] for name, total in self.sums.items()}


class Loop:
    """A training under way, as callbacks see it.

    `epoch` and `batch` count from 1 and say what is being done, or was done last; `history` has the
    rows of the epochs so far; `learner` is what is trained: its state, steps and rate. A checkpoint
    is a folder with the state and the place in the data: from it a training goes on bit for bit.
    """

    def __init__(
        self,
        learner: Learner,
        source: Source,
        epochs: int,
        *,
        validation: Validation,
        callbacks: Sequence[Callback],
        accumulate: int = 1,
        columns: Mapping[str, str] = {},
        prefetch: int = 2,
        non_finite: NonFinite = "raise",
        checkpoint: Path | None = None,
        every: int | None = None,
        bar: ProgressBar | None = None,
    ) -> None:
        self.learner, self.source, self.epochs = learner, source, epochs
        self.validation, self.callbacks = validation, list(callbacks)
        self.history = History()
        self.epoch, self.batch = 1, 0
        self.is_broken = False
        self._accumulate, self._columns, self._prefetch = accumulate, columns, prefetch
        self._non_finite, self._checkpoint, self._every = non_finite, checkpoint, every
        self._bar, self._stopping = bar, ""
        self._means, self._skipped, self._seconds = _Means(), 0, 0.0
        self._interrupts = Interrupts()
        self._watched = [copy.deepcopy(m) for m in validation.metrics]  # of the training batches

    @property
    def step(self) -> int:
        """The number of training steps done, those before this loop included."""
        return self.learner.steps

    def stop(self, reason: str) -> None:
        """Let the training end after what is being done now."""
        self._stopping = reason

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a checkpoint: state, place in the data, history, callbacks; whole or not at all.

        An earlier one is replaced, and no other folder. Of several processes the first writes it.
        """
        _check_place(Path(folder))
        fill = partial(self._fill, self.learner.state_writer())
        on_first_rank(lambda: replace_folder(folder, fill, overwrite=True))

    def grows(self, name: str) -> bool:
        """True if more of a number is better."""
        plain = name.removeprefix("val_")
        for metric in self.validation.metrics:
            if metric.name == plain:
                return metric.grows
        return plain not in _SMALLER_IS_BETTER and not plain.startswith("loss")

    def numbers(self, results: Mapping[str, Any]) -> dict[str, float]:
        """The losses of a step and its other single numbers, by the names of columns."""
        means = _Means()
        means.add(results, self.learner.losses, 1)
        return self._columns_of(means.result())

    def run(self) -> History:
        """Train to the end, or until somebody stops it; the history."""
        self.is_broken = True
        with ExitStack() as at_end, self._interrupts:
            for callback in reversed(self.callbacks):
                at_end.callback(callback.on_fit_end, self)
            if self._bar is not None:
                at_end.callback(self._bar.close)
            at_end.callback(self.learner.keep_old_values, self.learner.keeps_old_values)
            self._guard()
            try:
                self._train()
            except BrokenOffError:  # state and counts may be of two steps: none is written
                self.history.stopped = "interrupted"
                raise
            except KeyboardInterrupt:
                self.history.stopped = "interrupted"
                if self._checkpoint is not None:
                    self.save(self._checkpoint)
                raise
            self.is_broken = False
        return self.history

    def _guard(self) -> None:
        """Refuse losses that are not finite, where that is asked for or costs no memory."""
        is_free = self._non_finite == "raise" and not self.learner.updates_in_place
        if self._non_finite == "skip" or is_free:
            self.learner.keep_old_values(True)

    def _train(self) -> None:
        if self._checkpoint is not None:
            _check_place(self._checkpoint)
        for callback in self.callbacks:
            callback.on_fit_begin(self)
        while self.epoch <= self.epochs and not self._stopping:
            self._run_epoch()
        self.history.stopped = self._stopping or None

    def _run_epoch(self) -> None:
        if not self.batch:
            for callback in self.callbacks:
                callback.on_epoch_begin(self)
        if self._bar is not None:
            title = f"epoch {self.epoch}/{self.epochs}"
            self._bar.begin(title, self.batch, self.source.count)
        begun = time.monotonic() - self._seconds
        if not self._train_batches(begun):
            if self._checkpoint is not None:
                self.save(self._checkpoint)
            return
        if self.learner.accumulated:
            with self._interrupts.held():
                self.learner.update()
        row = self._row(begun)
        with self._interrupts.held():  # an interrupt finds an epoch ended, or its batches done
            self._end_epoch(row)
        if self._checkpoint is not None:
            self.save(self._checkpoint)

    def _end_epoch(self, row: Row) -> None:
        self.history.rows.append(row)
        for callback in self.callbacks:
            callback.on_epoch_end(self, row)
        if self._bar is not None:
            self._bar.end(_text(row))
        self.epoch, self.batch = self.epoch + 1, 0
        self._means, self._skipped, self._seconds = _Means(), 0, 0.0
        for metric in self._watched:
            metric.reset()

    def _train_batches(self, begun: float) -> bool:
        """Train on what is left of an epoch; false if somebody stopped it on the way."""

        def prepared(raw: Any) -> _Prepared:
            arrays = arrays_of(raw, self.learner.feeds, self._columns)
            return arrays, self.learner.prepare(arrays)

        raw = self.source.epoch(self.epoch, self.batch)
        made = numbered(raw, self.epoch, self.batch, prepared)
        batches: Generator[_Prepared, None, None]
        batches = prefetch_items(made, self._prefetch)
        with closing(batches):
            for arrays, batch in batches:
                self._one(arrays, batch)
                self._seconds = time.monotonic() - begun
                if self._stopping:
                    return False
        if not self.batch:
            raise FeedError(
                f"epoch {self.epoch} has no batches",
                hint="is the data empty? a generator goes once: give a list, or a function that "
                "returns a new one for each epoch",
            )
        return True

    def _one(self, arrays: list[Array], batch: Any) -> None:
        """One batch: its step, and all that counts it, or nothing of it."""
        with self._interrupts.held():
            try:
                results = self._step(batch)
            except FlowError as error:
                raise at_batch(error, f"batch {self.batch + 1} of epoch {self.epoch}") from None
            self.batch += 1
            if results is None:
                self._skipped += 1
                results = {}
            rows = len(arrays[0]) if arrays and arrays[0].ndim else 1
            self._means.add(results, self.learner.losses, rows)
            self._check_finite(results)
            self._watch(results, arrays)
            if self._bar is not None:
                self._bar.show(self.batch, _text(self._columns_of(self._means.result())))
            for callback in self.callbacks:  # whose counts a checkpoint has, too
                callback.on_batch_end(self, results)
        if self._checkpoint is not None and self._is_due():
            self.save(self._checkpoint)

    def _is_due(self) -> bool:
        """True after the last batch of each so manieth step."""
        is_due = bool(self._every) and not self.learner.accumulated
        return is_due and self.step % (self._every or 1) == 0

    def _step(self, batch: Any) -> Mapping[str, Array] | None:
        """The results of a batch; None if its loss is not finite, and it was passed over."""
        try:
            if self._accumulate == 1:
                return self.learner.step(batch)
            results = self.learner.accumulate(batch)
            if self.learner.accumulated >= self._accumulate:
                self.learner.update()
            return results
        except NonFiniteError as error:
            if self._non_finite == "skip":
                return None
            error.message = f"the loss is not finite at step {self.step}: the state is kept"
            raise

    def _check_finite(self, results: Mapping[str, Array]) -> None:
        if self._non_finite == "raise" and not self.learner.is_finite(results):
            raise NonFiniteError(
                f"the loss of batch {self.batch} of epoch {self.epoch} is not finite, and step "
                f"{self.step} has moved the state by it",
                hint="load an earlier state, lower the learning rate, or look at this batch; "
                "non_finite='skip' passes such batches over",
            )

    def _watch(self, results: Mapping[str, Array], arrays: list[Array]) -> None:
        """Metrics of the training batches, where a step gives predictions."""
        found = {n: v for n, v in results.items() if n not in self.learner.losses}
        if self._watched and (self.validation.output in found or _has_many(found)):
            self._measure(self._watched, found, arrays)

    def _measure(
        self, metrics: Sequence[Metric], found: Mapping[str, Array], arrays: list[Array]
    ) -> None:
        many = (n for n, v in found.items() if np.asarray(v).ndim)
        name = self.validation.output or next(many, next(iter(found)))
        if name not in found:
            raise OptionsError(
                f"there is no prediction {name!r}", hint=f"there are {', '.join(found)}"
            )
        labels = dict(zip((f.name for f in self.learner.feeds), arrays, strict=True))
        if self.validation.labels not in labels:
            raise OptionsError(
                f"there are no labels {self.validation.labels!r}",
                hint=f"the inputs are {', '.join(labels)}: say which with labels=",
            )
        for metric in metrics:
            metric.update(found[name], labels[self.validation.labels])

    def _row(self, begun: float) -> Row:
        row: Row = {"epoch": self.epoch, "step": self.step}
        row |= self._columns_of(self._means.result())
        row |= {m.name: m.result() for m in self._watched if not math.isnan(m.result())}
        if self._skipped:
            row["skipped"] = self._skipped
        row |= {f"val_{name}": value for name, value in self._validate().items()}
        rate = self.learner.rate
        if rate is not None:
            row["lr"] = rate
        row["seconds"] = round(time.monotonic() - begun, 3)
        return row

    def _columns_of(self, means: Mapping[str, float]) -> dict[str, float]:
        """Means by the names of columns: the first loss is ``loss``."""
        first = self.learner.losses[:1]
        return {"loss" if (n,) == first else n: v for n, v in means.items()}

    def _validate(self) -> dict[str, float]:
        """The losses and metrics of the validation data."""
        source, metrics = self.validation.source, self.validation.metrics
        if source is None:
            return {}
        means, batches = _Means(), 0
        for metric in metrics:
            metric.reset()
        made = numbered(source.epoch(1, 0), 1, 0, self._evaluate)
        for arrays, losses, found in _with_place(made, "the validation"):
            batches += 1
            means.add(losses, self.learner.losses, len(arrays[0]) if arrays[0].ndim else 1)
            if metrics and not found:
                raise OptionsError(
                    f"{metrics[0].name} is measured on predictions, and the bundle has no predict "
                    "job",
                    hint="name a predict job when exporting, or make the model trainable",
                )
            if metrics:
                self._measure(metrics, found, arrays)
        if not batches:
            raise FeedError(
                "the validation has no batches", hint="a generator goes once: give a list"
            )
        return self._columns_of(means.result()) | {m.name: m.result() for m in metrics}

    def _evaluate(self, raw: Any) -> tuple[list[Array], Any, Any]:
        arrays = arrays_of(raw, self.learner.feeds, self._columns)
        return arrays, *self.learner.evaluate(arrays)

    def _fill(self, write_state: StateWriter, folder: Path) -> None:
        """Write the files of a checkpoint."""
        write_state(folder / _STATE)
        for callback in self.callbacks:
            callback.write(folder)
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "epoch": self.epoch,
            "batch": self.batch,
            "source": self.source.settings(),
            "accumulate": self._accumulate,
            "sums": self._means.sums,
            "weights": self._means.weights,
            "skipped": self._skipped,
            "seconds": self._seconds,
            "history": self.history.rows,
            "metrics": [metric.state() for metric in self._watched],
            "callbacks": [[type(c).__name__, c.state()] for c in self.callbacks],
            "files": sorted(path.name for path in folder.iterdir()),
        }
        (folder / _LOOP).write_text(json.dumps(content, indent=1), encoding="utf-8")

    def resume(self, folder: Path) -> None:
        """Go on from a checkpoint; nothing has changed if it is damaged or of another training."""
        with open_file(folder / _LOOP, "give the folder of a checkpoint") as file:
            content = parse_object(file.read(), f"{folder}/{_LOOP}")
        fields = Fields(f"{folder}/{_LOOP}", content)
        self._check_resumed(folder, fields)
        if self.learner.draws_anew:
            _log.warning(
                "random draws go on otherwise than in a training without interruption: make the "
                "model trainable, or export the job, with on_device=True"
            )
        for callback, (_, state) in zip(self.callbacks, content["callbacks"], strict=True):
            callback.restore(state)  # what refuses other data or settings says so in its own words
            callback.read(folder)
        self.epoch, self.batch = fields.number("epoch", 1), fields.number("batch")
        self._means = _Means(fields.mapping("sums"), fields.mapping("weights"))
        self._skipped, self._seconds = fields.number("skipped"), float(content["seconds"])
        self.history = History(fields.items("history"))
        for metric, state in zip(self._watched, content["metrics"], strict=True):
            metric.restore(state)
        self.learner.load(folder / _STATE)  # last: it is of the caller, the loop is not

    def _check_resumed(self, folder: Path, fields: Fields) -> None:
        if fields.text("format") != _FORMAT or fields.number("version") != _VERSION:
            raise BundleError(f"{folder} holds no checkpoint of a loop of version {_VERSION}")
        before, now = fields.mapping("source"), self.source.settings()
        if before != now:
            raise OptionsError(
                f"{folder} was written by a training on {_describe(before)}, this one is on "
                f"{_describe(now)}",
                hint="give the same data and settings, or begin anew with another checkpoint",
            )
        if fields.number("accumulate", 1) != self._accumulate:
            raise OptionsError(
                f"{folder} was written by a training with accumulate="
                f"{fields.number('accumulate', 1)}, this one has {self._accumulate}"
            )
        if len(fields.items("metrics")) != len(self._watched):
            raise OptionsError(f"{folder} was written by a training with other metrics")
        kinds = [str(kind) for kind, _ in fields.items("callbacks")]
        mine = [type(c).__name__ for c in self.callbacks]
        if kinds != mine:
            raise OptionsError(
                f"{folder} was written with the callbacks {', '.join(kinds) or 'none'}, this "
                f"training has {', '.join(mine) or 'none'}",
                hint="give the same callbacks in the same order",
            )


def remove_checkpoint(folder: str | os.PathLike[str]) -> None:
    """Remove the checkpoint of a loop, whole or not at all; no other folder."""
    path = Path(os.path.realpath(folder))
    _check_place(path)
    if path.is_dir():
        with temporary_folder(path) as place:
            path.rename(place / path.name)


def _check_place(folder: Path) -> None:
    """Raise `BundleError` unless a folder is missing, empty, or an earlier checkpoint alone."""
    found = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    known = set[str]()
    if _LOOP in found:
        with open_file(folder / _LOOP) as file:
            fields = Fields(f"{folder}/{_LOOP}", parse_object(file.read(), f"{folder}/{_LOOP}"))
        known = {_LOOP, *map(str, fields.items("files"))}
    if found - known:
        raise BundleError(
            f"{folder} holds {min(found - known)}, which is of no checkpoint and would be lost",
            hint="give a folder that is missing, empty, or an earlier checkpoint",
        )


def _with_place(made: Iterable[Any], where: str) -> Iterable[Any]:
    """The items; what they fail with says where."""
    try:
        yield from made
    except FlowError as error:
        message = error.message.replace(" of epoch 1", f" of {where}", 1)
        error.message, error.args = message, (message,)
        raise


def _has_many(found: Mapping[str, Array]) -> bool:
    return any(np.asarray(v).size > 1 for v in found.values())


def _describe(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in settings.items()) or "other data"


def _text(row: Mapping[str, float]) -> str:
    """Numbers of a row for the bar."""
    shown = {n: v for n, v in row.items() if n not in ("epoch", "step")}
    seconds = shown.pop("seconds", None)
    parts = [f"{name} {value:.4g}" for name, value in shown.items()]
    return "  ".join([*parts, *([f"{seconds:.1f} s"] if seconds is not None else [])])


def callbacks_of(given: Any) -> list[Callback]:
    """Callbacks as a list; a function is called after each epoch."""
    parts = [given] if isinstance(given, Callback) or callable(given) else list(given)
    found: list[Callback] = []
    for part in parts:
        if isinstance(part, type) or not (isinstance(part, Callback) or callable(part)):
            raise OptionsError(
                f"{part!r} is no callback",
                hint="give objects, such as EarlyStopping(patience=3), or functions of the loop",
            )
        found.append(part if isinstance(part, Callback) else EveryEpoch(part))
    return found


Function = Callable[[Loop], None]
