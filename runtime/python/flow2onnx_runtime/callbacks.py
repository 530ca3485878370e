"""Callbacks beside the steps of a loop: stopping, keeping the best, logs, slower rates."""

import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from flow2onnx_runtime.collectives import on_first_rank
from flow2onnx_runtime.curves import plotting
from flow2onnx_runtime.errors import BundleError, OptionsError
from flow2onnx_runtime.safetensors import load_safetensors, save_safetensors

if TYPE_CHECKING:
    from flow2onnx_runtime.loop import Loop

__all__ = [
    "BestCheckpoint",
    "CSVLog",
    "Callback",
    "EarlyStopping",
    "EveryEpoch",
    "Plot",
    "ReduceOnPlateau",
]

_log = logging.getLogger("flow2onnx_runtime.fit")
Mode = Literal["min", "max", "auto"]
Path_ = str | os.PathLike[str]


class Callback:
    """The calls of a loop on its progress; a subclass overrides those it wants.

    `state` and `restore` let a callback go on where a resumed training does: plain values, which
    become JSON. What is large goes to a file of `write` and `read`.
    """

    def on_fit_begin(self, loop: "Loop") -> None:
        """Called once, before the first step; after a resumed state is loaded."""

    def on_epoch_begin(self, loop: "Loop") -> None:
        """Called before the first batch of an epoch."""

    def on_batch_end(self, loop: "Loop", results: Mapping[str, Any]) -> None:
        """Called after each batch, with what its step returned."""

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Called after an epoch and its validation, with its row of the history."""

    def on_fit_end(self, loop: "Loop") -> None:
        """Called once at the end, also after an error or an interrupt."""

    def state(self) -> dict[str, Any]:
        """The values that `restore` needs."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""

    def write(self, folder: Path) -> None:
        """Write what is large to files of a checkpoint's folder."""

    def read(self, folder: Path) -> None:
        """Read what `write` wrote."""


class EveryEpoch(Callback):
    """A function that is called with the loop after each epoch."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Call the function."""
        self._function(loop)


class _Watching(Callback):
    """A callback that watches one number of the rows: `monitor`, the validation's loss unless told.

    `mode` says if less or more of it is better; "auto" knows the metrics. An improvement is more
    than `min_delta`.
    """

    def __init__(self, monitor: str | None, mode: Mode, min_delta: float) -> None:
        if mode not in ("min", "max", "auto"):
            raise OptionsError(f"mode is {mode!r}", hint="'min', 'max' or 'auto'")
        if not (isinstance(min_delta, int | float) and 0 <= min_delta < math.inf):
            raise OptionsError(f"min_delta is {min_delta!r}", hint="give a number of at least 0")
        self.monitor, self.mode, self.min_delta = monitor, mode, min_delta
        self.best: float | None = None
        self.best_epoch: int | None = None

    def _improves(self, loop: "Loop", row: Mapping[str, float]) -> bool:
        """True if a row is the best so far, which it is from then on; NaN never is."""
        name = self.monitor or ("val_loss" if "val_loss" in row else "loss")
        if name not in row:
            raise OptionsError(
                f"{type(self).__name__} watches {name!r}, which no row has",
                hint=f"rows have {', '.join(row)}",
            )
        value = float(row[name])
        grows = loop.grows(name) if self.mode == "auto" else self.mode == "max"
        ahead = 0.0 if self.best is None else (value - self.best if grows else self.best - value)
        if math.isnan(value) or (self.best is not None and ahead <= self.min_delta):
            return False
        self.best, self.best_epoch = value, loop.epoch
        return True

    def state(self) -> dict[str, Any]:
        """The best value and its epoch."""
        return {"best": self.best, "best_epoch": self.best_epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.best, self.best_epoch = state["best"], state["best_epoch"]


class EarlyStopping(_Watching):
    """Stop when nothing has improved for `patience` epochs.

    With `restore_best` the whole state, step counter included, is that of the best epoch at the
    end; a copy of it is kept meanwhile.
    """

    def __init__(
        self,
        monitor: str | None = None,
        patience: int = 3,
        *,
        min_delta: float = 0.0,
        mode: Mode = "auto",
        restore_best: bool = False,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience, self.restore_best = _whole("patience", patience, 1), restore_best
        self.waited = 0
        self._kept: dict[str, Any] | None = None

    def on_fit_begin(self, loop: "Loop") -> None:
        """Stop at once if the training that is resumed had been stopped."""
        self._stop_in_time(loop)

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Count the epochs without an improvement."""
        if self._improves(loop, row):
            self.waited = 0
            self._kept = loop.learner.snapshot() if self.restore_best else None
            return
        self.waited += 1
        self._stop_in_time(loop)

    def _stop_in_time(self, loop: "Loop") -> None:
        if self.waited >= self.patience:
            loop.stop(f"no improvement since epoch {self.best_epoch or 0}")

    def on_fit_end(self, loop: "Loop") -> None:
        """Bring back the best state, if the training came to its end."""
        if self._kept is not None and not loop.is_broken:
            loop.learner.restore(self._kept)

    def state(self) -> dict[str, Any]:
        """The best value, and how long ago it was."""
        return {**super().state(), "waited": self.waited}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(state)
        self.waited = state["waited"]

    def write(self, folder: Path) -> None:
        """Write the best state."""
        if self._kept is not None:
            save_safetensors(folder / _BEST, self._kept)

    def read(self, folder: Path) -> None:
        """Read the best state."""
        if self.restore_best and self.best is not None:
            if not (folder / _BEST).exists():
                raise BundleError(f"{folder}: {_BEST} is missing", hint="begin anew")
            self._kept = load_safetensors(folder / _BEST)[0]


_BEST = "best.safetensors"


class BestCheckpoint(_Watching):
    """Write the state of each epoch that is the best so far to one file.

    `Trainer.load` takes it; it appears whole or not at all.
    """

    def __init__(
        self,
        path: Path_,
        monitor: str | None = None,
        *,
        min_delta: float = 0.0,
        mode: Mode = "auto",
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.path = Path(path)

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Write the state if it is the best."""
        if self._improves(loop, row):
            write_state = loop.learner.state_writer()
            on_first_rank(lambda: write_state(self.path))


class ReduceOnPlateau(_Watching):
    """Multiply the learning rate by `factor` when nothing has improved for `patience` epochs.

    After that `cooldown` epochs do not count; the rate stays at least `min_lr`. `lr` is the rate to
    begin with, where the model does not tell.
    """

    def __init__(
        self,
        monitor: str | None = None,
        factor: float = 0.1,
        patience: int = 3,
        *,
        min_delta: float = 0.0,
        cooldown: int = 0,
        min_lr: float = 0.0,
        lr: float | None = None,
        mode: Mode = "auto",
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if not (isinstance(factor, int | float) and 0 < factor < 1):
            raise OptionsError(f"factor is {factor!r}", hint="give a number between 0 and 1")
        self.factor, self.min_lr, self.lr = factor, min_lr, lr
        self.patience, self.cooldown = (
            _whole("patience", patience, 0),
            _whole("cooldown", cooldown, 0),
        )
        self.waited = self.resting = 0

    def on_fit_begin(self, loop: "Loop") -> None:
        """See that the rate can be set."""
        rate = loop.learner.rate if self.lr is None or self.waited or self.best else self.lr
        if rate is None:
            raise OptionsError(
                "ReduceOnPlateau: the model follows a schedule, whose rate is not known here",
                hint="say what to begin with: ReduceOnPlateau(lr=0.01)",
            )
        loop.learner.rate = rate

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Count the epochs without an improvement, and lower the rate in time."""
        is_better = self._improves(loop, row)
        if self.resting:
            self.resting -= 1
            self.waited = 0
            return
        self.waited = 0 if is_better else self.waited + 1
        rate = loop.learner.rate
        if self.waited <= self.patience or rate is None or rate <= self.min_lr:
            return
        loop.learner.rate = max(rate * self.factor, self.min_lr)
        _log.info("epoch %d: the learning rate is %g from now on", loop.epoch, loop.learner.rate)
        self.waited, self.resting = 0, self.cooldown

    def state(self) -> dict[str, Any]:
        """The best value, how long ago it was, and how long to rest."""
        return {**super().state(), "waited": self.waited, "resting": self.resting}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        super().restore(state)
        self.waited, self.resting = state["waited"], state["resting"]


class CSVLog(Callback):
    """Write the history to a CSV file after each epoch; the file is whole at any time."""

    def __init__(self, path: Path_) -> None:
        self.path = Path(path)

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Write all rows."""
        loop.history.save(self.path)


class Plot(Callback):
    """Draw the curves of the history to a picture at the end; needs matplotlib."""

    def __init__(self, path: Path_) -> None:
        self.path = Path(path)

    def on_fit_begin(self, loop: "Loop") -> None:
        """See at once that it can be drawn."""
        plotting()

    def on_fit_end(self, loop: "Loop") -> None:
        """Draw what there is."""
        if loop.history:
            loop.history.plot(self.path)


def _whole(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionsError(f"{name} is {value!r}", hint=f"give a number of at least {least}")
    return value
