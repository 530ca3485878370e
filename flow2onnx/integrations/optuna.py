"""Optuna: a study over trainings, whose hopeless trials end early."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flow2onnx_runtime import Callback, History, OptionsError

from flow2onnx.integrations.packages import package

if TYPE_CHECKING:
    from flow2onnx_runtime import Loop

__all__ = ["Pruning", "objective"]


class Pruning(Callback):
    """Report `monitor` of each epoch to a trial, and end the training where its pruner says so.

    `monitor` is the validation's loss unless told, or else that of training.
    """

    def __init__(self, trial: Any, monitor: str | None = None) -> None:
        self._pruned = package("optuna").TrialPruned
        self._trial, self._monitor = trial, monitor

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Report; raises `optuna.TrialPruned`, which a study takes for what it says."""
        name = _monitor_in(row, self._monitor)
        self._trial.report(row[name], int(row["epoch"]))
        if self._trial.should_prune():
            raise self._pruned(f"epoch {loop.epoch}: {name} is {row[name]:.6g}")


def objective(
    train: Callable[[Any, Pruning], History], monitor: str | None = None
) -> Callable[[Any], float]:
    """The function that `study.optimize` calls: `monitor` after the last epoch of a training.

    `train(trial, pruning)` asks the trial for settings, trains with `pruning` among the callbacks,
    and returns the history that `fit` of a trainer or of a job gave it.
    """

    def run(trial: Any) -> float:
        history = train(trial, Pruning(trial, monitor))
        if not isinstance(history, History) or not history:
            raise OptionsError(
                f"the training returned {history!r}", hint="return what fit(…) returns"
            )
        return float(history.last[_monitor_in(history.last, monitor)])

    return run


def _monitor_in(row: Any, monitor: str | None) -> str:
    name = monitor or ("val_loss" if "val_loss" in row else "loss")
    if name not in row:
        raise OptionsError(f"no row has {name!r}", hint=f"rows have {', '.join(row)}")
    return name
