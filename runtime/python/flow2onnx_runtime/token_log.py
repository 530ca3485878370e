"""Progress of a training by steps: losses, speed, memory; tokens and perplexity of texts."""

import hashlib
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from flow2onnx_runtime.batch_sources import arrays_of
from flow2onnx_runtime.callbacks import Callback
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import BundleError, OptionsError
from flow2onnx_runtime.files import open_file
from flow2onnx_runtime.history import History
from flow2onnx_runtime.progress_bar import ProgressBar

if TYPE_CHECKING:
    from flow2onnx_runtime.loop import Loop

__all__ = ["Batches", "RowLog", "StepLog", "TokenLog", "peak_bytes"]

Batches = Sequence[Mapping[str, Array]]
Size = tuple[int, int]  # of a batch: the weight of its loss, and how much it counts for speed
_STEPS = "steps.csv"  # of a checkpoint
_PAUSE = 5.0  # seconds between two writings of the table
_LABELS, _MASK, _IGNORED = "labels", "attention_mask", -100


class StepLog(Callback):
    """A table of the steps, a line of progress, and what an epoch's row tells of speed.

    A subclass says the `unit` that batches are counted in and what the `sizes` of those of an epoch
    are, by the order in which they come. `digest` is of the data, which a resumed training shares.
    `table` is a CSV file with a row for each step: its loss, the weighted mean over its batches,
    all units so far, units a second, megabytes. `plot` is a picture of the losses by step, drawn at
    the end. With `validation` rows of epochs get ``val_loss``, the weighted mean over all of its
    batches; with `every`, so do steps, each so many. The callback stands before those that read
    these columns.
    """

    unit = "units"

    def __init__(
        self,
        sizes: Sequence[Size],
        digest: str,
        table: str | os.PathLike[str] | None = None,
        *,
        validation: Batches | None = None,
        every: int | None = None,
        plot: str | os.PathLike[str] | None = None,
        bar: ProgressBar | None = None,
    ) -> None:
        self._sizes, self._data = sizes, digest
        self._table = None if table is None else Path(table)
        self._plot = plot
        self._validation, self._every, self._bar = validation, every, bar
        self.steps = History()
        self._count, self._seconds = 0, 0.0  # of trainings before this one, too
        self._loss = _Mean()  # of the step under way
        self._epoch = _Mean()
        self._began = self._written = time.monotonic()
        self._first = self._seen = 0  # batches done before, and units since

    def size(self, batch: Mapping[str, Array]) -> Size:
        """The weight of a batch's loss, and how many units it has."""
        raise NotImplementedError

    def derived(self, name: str, loss: float) -> dict[str, float]:
        """The columns that a loss has; `name` is the first."""
        return {name: loss}

    def on_fit_begin(self, loop: "Loop") -> None:
        """Start the clock."""
        self._began = time.monotonic()
        self._first = self._batches_done(loop)
        if self._bar is not None:
            self._bar.begin("training", self._first, loop.epochs * len(self._sizes))

    def on_batch_end(self, loop: "Loop", results: Mapping[str, Any]) -> None:
        """Count a batch, and its step if it was the last of one."""
        counted, units = self._sizes[loop.batch - 1]
        self._seen += units
        for mean in (self._loss, self._epoch):
            mean.add(loop.numbers(results).get("loss", math.nan), counted)
        if not loop.learner.accumulated:
            self._end_step(loop)
        if self._bar is not None:
            self._bar.show(self._batches_done(loop), self._text(loop))

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Complete the row of an epoch."""
        if self.steps.last.get("step") != loop.step:  # batches too few for a whole step
            self._end_step(loop)
        last = self.steps.last
        row |= self.derived("loss", self._epoch.value)
        if self._validation is not None:
            if "val_loss" not in last:
                last.update(self._validate(loop))
            row.update({n: v for n, v in last.items() if n.startswith("val_")})
        row[self._speed_name] = last[self._speed_name]
        if "memory_mb" in last:
            row["memory_mb"] = last["memory_mb"]
        self._epoch = _Mean()
        self._write()
        if self._bar is not None:
            self._bar.end(self._line(row))

    def on_fit_end(self, loop: "Loop") -> None:
        """Write the table as it is."""
        self._write()
        if self._plot is not None and self.steps:
            self.steps.plot(self._plot, over="step", curves=("loss", "val_loss"))
        if self._bar is not None:
            self._bar.close()

    def state(self) -> dict[str, Any]:
        """The counts, and which data they are of."""
        means = [self._loss.sum, self._loss.weight, self._epoch.sum, self._epoch.weight]
        seconds = self._seconds + time.monotonic() - self._began
        return {
            "data": self._data, self.unit: self._count + self._seen, "seconds": seconds,
            "means": means,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there; raises `OptionsError` where the data are others."""
        if state["data"] != self._data:
            raise OptionsError(
                "the checkpoint was written by a training on other data, or with other settings "
                "of rows: length, batch size, packing, seed",
                hint="give the same data and settings, or begin anew in another folder",
            )
        self._count, self._seconds, self._seen = int(state[self.unit]), float(state["seconds"]), 0
        step, weight, epoch, all_weight = state["means"]
        self._loss, self._epoch = _Mean(step, weight), _Mean(epoch, all_weight)

    def write(self, folder: Path) -> None:
        """Write the table of steps."""
        self.steps.save(folder / _STEPS)

    def read(self, folder: Path) -> None:
        """Read the table of steps."""
        with open_file(folder / _STEPS, "begin anew") as file:
            lines = file.read().decode().splitlines()
        names = lines[0].split(",") if lines and lines[0] else []
        try:
            rows = [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]
            self.steps = History([{n: _number(v) for n, v in row.items() if v} for row in rows])
        except ValueError as error:
            raise BundleError(f"{folder / _STEPS} is damaged: {error}", hint="begin anew") from None

    def _end_step(self, loop: "Loop") -> None:
        row: dict[str, float] = {"step": loop.step, "epoch": loop.epoch, "loss": self._loss.value}
        if loop.learner.rate is not None:
            row["lr"] = loop.learner.rate
        row[self.unit] = self._count + self._seen
        row[self._speed_name] = round(self._speed(), 1)
        memory = peak_bytes()
        if memory is not None:
            row["memory_mb"] = memory >> 20
        if self._every and loop.step % self._every == 0:
            row |= self._validate(loop)
        self.steps.rows.append(row)
        self._loss = _Mean()
        if time.monotonic() - self._written > _PAUSE:
            self._write()

    def _validate(self, loop: "Loop") -> dict[str, float]:
        """The mean loss over all of the validation, and what is derived of it."""
        mean = _Mean()
        for batch in self._validation or ():
            found, _ = loop.learner.evaluate(arrays_of(dict(batch), loop.learner.feeds, {}))
            loss = float(np.asarray(found[loop.learner.losses[0]]).mean())
            mean.add(loss, self.size(batch)[0])
        return self.derived("val_loss", mean.value)

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._table is not None and self.steps:
            self.steps.save(self._table)

    def _batches_done(self, loop: "Loop") -> int:
        return (loop.epoch - 1) * len(self._sizes) + loop.batch

    @property
    def _speed_name(self) -> str:
        return f"{self.unit}_per_second"

    def _speed(self) -> float:
        """Units a second, those of an interrupted training included."""
        seconds = self._seconds + time.monotonic() - self._began
        return (self._count + self._seen) / max(seconds, 1e-9)

    def _text(self, loop: "Loop") -> str:
        shown = self._loss.value if self._loss.weight else self.steps.last.get("loss", math.nan)
        memory = peak_bytes()
        peak = "" if memory is None else f"  {memory >> 20:,} MB"
        validated = [row["val_loss"] for row in self.steps if "val_loss" in row]
        held = f"  val_loss {validated[-1]:.4f}" if validated else ""
        speed = f"{self._speed():,.0f} {self.unit}/s"
        return f"epoch {loop.epoch}  loss {shown:.4f}{held}  {speed}{peak}"

    def _line(self, row: Mapping[str, float]) -> str:
        own = self.derived("loss", 0.0)
        shown = [*own, *(n for n in row if n.startswith("val_"))]
        numbers = "  ".join(f"{n} {row[n]:.4g}" for n in shown)
        peak = f"  {row['memory_mb']:,.0f} MB" if "memory_mb" in row else ""
        speed = f"{row[self._speed_name]:,.0f} {self.unit}/s"
        return f"epoch {row['epoch']:.0f}  step {row['step']:.0f}  {numbers}  {speed}{peak}"


class TokenLog(StepLog):
    """The steps of a language model: batches have ``labels``, and perhaps ``attention_mask``.

    `batches` are those of an epoch, in their order. A loss is the mean over tokens that count, and
    has a ``perplexity``; speed is of all tokens but padding. The rest is as in `StepLog`.
    """

    unit = "tokens"

    def __init__(
        self, batches: Batches, table: str | os.PathLike[str] | None = None, **settings: Any
    ) -> None:
        super().__init__([self.size(b) for b in batches], _digest(batches), table, **settings)

    def size(self, batch: Mapping[str, Array]) -> Size:
        """The tokens that count, and all of a batch."""
        counted = int(np.count_nonzero(np.asarray(batch[_LABELS]) != _IGNORED))
        return counted, int(np.sum(batch[_MASK])) if _MASK in batch else int(
            np.size(batch[_LABELS])
        )

    def derived(self, name: str, loss: float) -> dict[str, float]:
        """The loss and its perplexity."""
        return {name: loss, name.replace("loss", "perplexity"): perplexity(loss)}


class RowLog(StepLog):
    """The steps of any other model: `arrays` have a row for each example.

    A loss is the mean over rows. `validation` are arrays, too; with `drops_last` rows that fill no
    batch are left out of both. The rest is as in `StepLog`.
    """

    unit = "rows"

    def __init__(
        self,
        arrays: Mapping[str, Array],
        batch_size: int,
        table: str | os.PathLike[str] | None = None,
        *,
        validation: Mapping[str, Array] | None = None,
        drops_last: bool = False,
        **settings: Any,
    ) -> None:
        sizes = [self.size(b) for b in _cut(arrays, batch_size, drops_last)]
        held = None if validation is None else list(_cut(validation, batch_size, drops_last))
        super().__init__(sizes, _digest([arrays]), table, validation=held, **settings)

    def size(self, batch: Mapping[str, Array]) -> Size:
        """The rows, twice."""
        count = len(next(iter(batch.values())))
        return count, count


class _Mean:
    """A mean with weights, which JSON keeps exactly."""

    def __init__(self, total: float = 0.0, weight: float = 0.0) -> None:
        self.sum, self.weight = total, weight

    def add(self, value: float, weight: float) -> None:
        """Take in a value; one that is not finite does not count."""
        if math.isfinite(value):
            self.sum += value * weight
            self.weight += weight

    @property
    def value(self) -> float:
        """The mean; NaN of nothing."""
        return self.sum / self.weight if self.weight else math.nan


def perplexity(loss: float) -> float:
    """The exponential of a mean loss, at most the largest number that there is."""
    return math.exp(min(loss, math.log(sys.float_info.max)))


def peak_bytes() -> int | None:
    """The most memory that this process has had, or None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _digest(batches: Batches) -> str:
    """The digest of all that batches hold."""
    found = hashlib.sha256()
    for batch in batches:
        for name, array in sorted(batch.items()):
            found.update(f"{name} {array.shape} {array.dtype}".encode())
            found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


def _cut(arrays: Mapping[str, Array], size: int, drops_last: bool) -> Iterator[dict[str, Array]]:
    """The rows of arrays in batches of `size`; the last may be smaller, or is left out then."""
    count = len(next(iter(arrays.values())))
    count -= count % size if drops_last else 0
    for start in range(0, count, size):
        yield {name: array[start : start + size] for name, array in arrays.items()}


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)
