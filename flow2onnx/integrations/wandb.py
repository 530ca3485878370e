"""Weights & Biases: the numbers of a training in a run, online or offline."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flow2onnx_runtime import Callback
from flow2onnx_runtime.world import launched_world

from flow2onnx.integrations.models import numbers
from flow2onnx.integrations.packages import package

if TYPE_CHECKING:
    from flow2onnx_runtime import Loop

__all__ = ["WandbLog"]


class WandbLog(Callback):
    """Log the numbers of each epoch to a run, at the step it ended with.

    `run` is one that was begun; without one, `wandb.init(**settings)` begins it with the training,
    such as ``WandbLog(project="digits", mode="offline")``, and it ends with that. A resumed
    training goes on in the same run.
    """

    def __init__(self, run: Any = None, **settings: Any) -> None:
        self._wandb = package("wandb")
        self._given, self._settings = run, settings
        self._run: Any = None
        self._id: str | None = None

    def on_fit_begin(self, loop: "Loop") -> None:
        """Begin a run; of several processes the first does."""
        if launched_world().rank != 0:
            return
        again = {} if self._id is None else {"id": self._id, "resume": "allow"}
        self._run = self._given or self._wandb.init(**{**self._settings, **again})
        self._id = self._run.id

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Log a row."""
        if self._run is not None:
            self._run.log({"epoch": int(row["epoch"]), **numbers(row)}, step=int(row["step"]))

    def on_fit_end(self, loop: "Loop") -> None:
        """End the run that was begun here."""
        if self._run is not None and self._given is None:
            self._run.finish(exit_code=1 if loop.is_broken else 0)
        self._run = None

    def state(self) -> dict[str, Any]:
        """The run."""
        return {"id": self._id}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on in that run."""
        self._id = state["id"]
