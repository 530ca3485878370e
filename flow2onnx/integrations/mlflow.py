"""MLflow: the numbers of a training in a run, and the trained model in its ONNX flavor."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx
from flow2onnx_runtime import Callback, Predictor
from flow2onnx_runtime.model_check import check_model
from flow2onnx_runtime.world import launched_world

from flow2onnx.integrations.models import Source, model_file, numbers, numpy_type
from flow2onnx.integrations.packages import package

if TYPE_CHECKING:
    from flow2onnx_runtime import Loop, TensorInfo

__all__ = ["MlflowLog", "log_model"]


class MlflowLog(Callback):
    """Log the numbers of each epoch to the active run, at the step it ended with.

    Without an active run one is started with `settings`, those of `mlflow.start_run`, and ended
    with the training: as failed, if an error ended that. A resumed training goes on in its run.
    """

    def __init__(self, **settings: Any) -> None:
        self._mlflow = package("mlflow")
        self._settings, self._is_own = settings, False
        self._run: str | None = None

    def on_fit_begin(self, loop: "Loop") -> None:
        """Take part in a run, or start one; of several processes the first does."""
        if launched_world().rank != 0:
            return
        run = self._mlflow.active_run()
        if run is None:
            known = {} if self._run is None else {"run_id": self._run}
            run, self._is_own = self._mlflow.start_run(**{**self._settings, **known}), True
        self._run = run.info.run_id

    def on_epoch_end(self, loop: "Loop", row: dict[str, float]) -> None:
        """Log a row."""
        if launched_world().rank == 0:
            self._mlflow.log_metrics(numbers(row), step=int(row["step"]), run_id=self._run)

    def on_fit_end(self, loop: "Loop") -> None:
        """End the run that was started here."""
        if self._is_own:
            self._mlflow.end_run("FAILED" if loop.is_broken else "FINISHED")
            self._is_own = False

    def state(self) -> dict[str, Any]:
        """The run."""
        return {"run": self._run}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on in that run."""
        self._run = state["run"]


def log_model(source: Source, name: str = "model", job: str | None = None, **settings: Any) -> Any:
    """Log what predicts by `mlflow.onnx`, with names, types and shapes as its signature.

    `source`: a trainer, a bundle's folder or a model file. `settings` are those of
    `mlflow.onnx.log_model`, such as `registered_model_name`; returns its ModelInfo.
    """
    flavor = package("mlflow.onnx", "mlflow")
    with model_file(source, job) as path:
        check_model(path)
        given = {"signature": _signature(path), **settings}
        return flavor.log_model(onnx.load(path), name=name, **given)


def _signature(path: Any) -> Any:
    """MLflow's signature of a model file; free sizes are -1, as it has them."""
    with Predictor(path) as predictor:
        sides = [_schema(side) for side in (predictor.inputs, predictor.outputs)]
    return package("mlflow.models", "mlflow").ModelSignature(inputs=sides[0], outputs=sides[1])


def _schema(tensors: tuple["TensorInfo", ...]) -> Any:
    types = package("mlflow.types", "mlflow")
    return types.Schema([
        types.TensorSpec(numpy_type(str(t.dtype), t.name),
                         [size if isinstance(size, int) else -1 for size in t.shape], t.name)
        for t in tensors
    ])  # fmt: skip
