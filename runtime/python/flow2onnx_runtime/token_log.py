"""Progress of the training of a language model: tokens, perplexity, time, memory."""

import hashlib
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
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

__all__ = ["Batches", "TokenLog", "peak_bytes"]

Batches = Sequence[Mapping[str, Array]]
_STEPS = "steps.csv"  # of a checkpoint
_PAUSE = 5.0  # seconds between two writings of the table
_LABELS, _MASK, _IGNORED = "labels", "attention_mask", -100


class TokenLog(Callback):
    """A table of the steps, a line of progress, and what an epoch's row tells of tokens.

    `batches` are those of an epoch, with ``labels`` and ``attention_mask``. `table` is a CSV file
    with a row for each step: its loss, the mean over tokens that count, all tokens so far, tokens a
    second, megabytes. Rows of epochs get ``perplexity``, ``tokens_per_second`` and ``memory_mb``.
    `plot` is a picture of the losses by step, drawn at the end.
    With `validation` they get ``val_loss`` and ``val_perplexity``, of the mean over all of its
    tokens that count; with `every`, so do steps, each so many. The callback stands before those
    that read these columns.
    """

    def __init__(
        self,
        batches: Batches,
        table: str | os.PathLike[str] | None = None,
        *,
        validation: Batches | None = None,
        every: int | None = None,
        plot: str | os.PathLike[str] | None = None,
        bar: ProgressBar | None = None,
    ) -> None:
        self._sizes = [(_label_count(b), int(np.sum(b[_MASK]))) for b in batches]
        self._data = _digest(batches)
        self._table = None if table is None else Path(table)
        self._plot = plot
        self._validation, self._every, self._bar = validation, every, bar
        self.steps = History()
        self._tokens, self._seconds = 0, 0.0  # of trainings before this one, too
        self._loss = _Mean()  # of the step under way
        self._epoch = _Mean()
        self._began = self._written = time.monotonic()
        self._first = self._seen = 0  # batches done before, and tokens since

    def on_fit_begin(self, loop: "Loop") -> None:
        """Start the clock."""
        self._began = time.monotonic()
        self._first = self._batches_done(loop)
        if self._bar is not None:
            self._bar.begin("training", self._first, loop.epochs * len(self._sizes))

    def on_batch_end(self, loop: "Loop", results: Mapping[str, Any]) -> None:
        """Count a batch, and its step if it was the last of one."""
        counted, tokens = self._sizes[loop.batch - 1]
        self._seen += tokens
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
        row["loss"], row["perplexity"] = self._epoch.value, perplexity(self._epoch.value)
        if self._validation is not None:
            if "val_loss" not in last:
                last.update(self._validate(loop))
            row.update({n: last[n] for n in ("val_loss", "val_perplexity")})
        row["tokens_per_second"] = last["tokens_per_second"]
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
            "data": self._data, "tokens": self._tokens + self._seen, "seconds": seconds,
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
        self._tokens, self._seconds, self._seen = int(state["tokens"]), float(state["seconds"]), 0
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
        row["tokens"] = self._tokens + self._seen
        row["tokens_per_second"] = round(self._speed(), 1)
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
        """The mean loss over all tokens of the validation that count, and its perplexity."""
        mean = _Mean()
        for batch in self._validation or ():
            found, _ = loop.learner.evaluate(arrays_of(dict(batch), loop.learner.feeds, {}))
            mean.add(float(np.asarray(found[loop.learner.losses[0]]).mean()), _label_count(batch))
        return {"val_loss": mean.value, "val_perplexity": perplexity(mean.value)}

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._table is not None and self.steps:
            self.steps.save(self._table)

    def _batches_done(self, loop: "Loop") -> int:
        return (loop.epoch - 1) * len(self._sizes) + loop.batch

    def _speed(self) -> float:
        """Tokens a second, those of an interrupted training included."""
        seconds = self._seconds + time.monotonic() - self._began
        return (self._tokens + self._seen) / max(seconds, 1e-9)

    def _text(self, loop: "Loop") -> str:
        shown = self._loss.value if self._loss.weight else self.steps.last.get("loss", math.nan)
        memory = peak_bytes()
        peak = "" if memory is None else f"  {memory >> 20:,} MB"
        validated = [row["val_loss"] for row in self.steps if "val_loss" in row]
        held = f"  val_loss {validated[-1]:.4f}" if validated else ""
        return f"epoch {loop.epoch}  loss {shown:.4f}{held}  {self._speed():,.0f} tokens/s{peak}"

    def _line(self, row: Mapping[str, float]) -> str:
        shown = ("loss", "perplexity", "val_loss", "val_perplexity")
        numbers = "  ".join(f"{n} {row[n]:.4g}" for n in shown if n in row)
        peak = f"  {row['memory_mb']:,.0f} MB" if "memory_mb" in row else ""
        speed = f"{row['tokens_per_second']:,.0f} tokens/s"
        return f"epoch {row['epoch']:.0f}  step {row['step']:.0f}  {numbers}  {speed}{peak}"


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


def _label_count(batch: Mapping[str, Array]) -> int:
    return int(np.count_nonzero(np.asarray(batch[_LABELS]) != _IGNORED))


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)
