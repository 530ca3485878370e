"""scikit-learn: a bundle or a job as a classifier or a regressor, in its pipelines and searches."""

import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import History, OptionsError, Predictor, Trainer
from flow2onnx_runtime.dtypes import Array

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise OptionsError(
        f"scikit-learn cannot be imported: {error}", hint="pip install 'scikit-learn>=1.6'"
    ) from error

from flow2onnx.integrations.models import files_beside, fit_shape, open_files, softmax

__all__ = ["Classifier", "Maker", "Regressor", "of_job"]

# Writes a bundle to a folder, for so many numbers in a row and so many classes (1 to regress).
Maker = Callable[[Path, int, int], object]
Source = str | os.PathLike[str] | Maker


def of_job(train_job: Any, predict_job: Any, **options: Any) -> Maker:
    """The source that exports a train job, with the weights that its session has at a fit.

    `options` are those of `job.export`. The sizes of a job are its own.
    """

    def make(folder: Path, columns: int, outputs: int) -> None:
        train_job.export(folder, **{"predict": predict_job, **options})

    return make


class _Estimator(BaseEstimator):  # type: ignore[misc]  # sklearn has no types
    """The part that classifiers and regressors share.

    source
        The folder of a bundle, or a function that writes one: it is given the folder, the number of
        columns and the number of classes, so that it can make a network to measure. `of_job` makes
        such a function of a job.
    learning_rate
        Replaces the bundle's, which must let it be set, as one exported with `on_device=True` does.
    fit_settings
        More settings of `Trainer.fit`, such as callbacks or a seed.

    The bundle's first feed are rows, to whose shape each row of X is brought, and its second
    the labels, unless `features` and `labels` name them. Every fit begins with the bundle's state.
    After it `history_` has the numbers of each epoch, `model_` the trained model's files; the
    estimator can be pickled, and read without the bundle.
    """

    def __init__(
        self,
        source: Source,
        *,
        epochs: int = 10,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
        features: str | None = None,
        labels: str | None = None,
        job: str | None = None,
        fit_settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.seed = seed
        self.features = features
        self.labels = labels
        self.job = job
        self.fit_settings = fit_settings

    def _train(self, rows: Array, targets: Array, outputs: int) -> None:
        """Train from the beginning, and keep what predicts."""
        with tempfile.TemporaryDirectory(prefix="flow2onnx-") as made:
            folder = Path(made) / "bundle"
            if callable(self.source):
                self.source(folder, rows.shape[1], outputs)
            else:
                folder = Path(self.source)
            trainer = Trainer(folder)
            if self.learning_rate is not None:
                trainer.learning_rate = self.learning_rate
            feature, label = _feeds(trainer, self.features, self.labels)
            data = {
                feature.name: _shaped(rows, feature),
                label.name: _shaped(targets, label),
            }
            settings = {"batch_size": self.batch_size, "seed": self.seed, "progress": False}
            history = trainer.fit(data, self.epochs, **{**settings, **(self.fit_settings or {})})
            self.history_: History = history
            path = trainer.export_predict(Path(made) / "model", self.job)
            self.model_, self.file_ = files_beside(path), path.name
        self._predictor: Predictor = open_files(self.model_, self.file_)

    def _scores(self, X: Any) -> Array:
        """The first result of the predict job, row by row."""
        check_is_fitted(self, "model_")
        rows = validate_data(self, X, reset=False, dtype=np.float32)
        results = self._predictor.many(_shaped(rows, self._predictor.inputs[0]))
        return np.asarray(next(iter(results.values())))

    def __getstate__(self) -> Any:
        state = dict(super().__getstate__())
        state.pop("_predictor", None)  # a session belongs to its process
        return state

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        if hasattr(self, "model_"):
            self._predictor = open_files(self.model_, self.file_)


class Classifier(ClassifierMixin, _Estimator):  # type: ignore[misc]  # sklearn has no types
    """A bundle whose first result are scores of classes, as an estimator of scikit-learn.

    Labels may be of any kind; the bundle is given their numbers. `predict_proba` is the softmax of
    the scores, or the scores themselves with `softmax=False`, for a model that ends in one.
    """

    def __init__(
        self,
        source: Source,
        *,
        epochs: int = 10,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        seed: int = 0,
        features: str | None = None,
        labels: str | None = None,
        job: str | None = None,
        fit_settings: Mapping[str, Any] | None = None,
        softmax: bool = True,
    ) -> None:
        super().__init__(
            source, epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, seed=seed,
            features=features, labels=labels, job=job, fit_settings=fit_settings,
        )  # fmt: skip
        self.softmax = softmax

    def fit(self, X: Any, y: Any) -> "Classifier":
        """Train from the bundle's first state on rows and their labels."""
        X, y = validate_data(self, X, y, dtype=np.float32)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"Classifier can't train when only one class is present: {y[:1]}")
        self._train(X, numbers, len(self.classes_))
        return self

    def decision_function(self, X: Any) -> Array:
        """The scores; of two classes the difference, positive for the second."""
        scores = self._class_scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Array:
        """The chance of each class."""
        scores = self._class_scores(X)
        return softmax(scores) if self.softmax else scores.astype(np.float64)

    def predict(self, X: Any) -> Array:
        """The label of the highest score."""
        best = self._class_scores(X).argmax(1)
        labels: Array = self.classes_[best]
        return labels

    def _class_scores(self, X: Any) -> Array:
        scores = self._scores(X)
        scores = scores.reshape(len(scores), -1)
        if scores.shape[1] < len(self.classes_):
            raise ValueError(
                f"the model gives {scores.shape[1]} scores, y has {len(self.classes_)} classes"
            )
        return scores[:, : len(self.classes_)]


class Regressor(RegressorMixin, _Estimator):  # type: ignore[misc]  # sklearn has no types
    """A bundle whose first result is a number for each row, as an estimator of scikit-learn."""

    def fit(self, X: Any, y: Any) -> "Regressor":
        """Train from the bundle's first state on rows and their numbers."""
        X, y = validate_data(self, X, y, dtype=np.float32, y_numeric=True)
        self._train(X, np.asarray(y, np.float32), 1)
        return self

    def predict(self, X: Any) -> Array:
        """The number of each row."""
        numbers: Array = self._scores(X).reshape(-1)
        return numbers


def _feeds(trainer: Trainer, features: str | None, labels: str | None) -> tuple[Any, Any]:
    """The feeds of rows and of labels."""
    by_name = {feed.name: feed for feed in trainer.feeds}
    if len(by_name) != 2:
        raise OptionsError(f"the bundle takes {', '.join(by_name)}, not rows and labels")
    first, second = by_name
    chosen = [features or (second if labels == first else first)]
    chosen.append(labels or (first if chosen[0] == second else second))
    if set(chosen) != {first, second}:
        raise OptionsError(f"features={features!r}, labels={labels!r}: the bundle takes "
                           f"{first} and {second}")  # fmt: skip
    return by_name[chosen[0]], by_name[chosen[1]]


def _shaped(rows: Array, feed: Any) -> Array:
    """Rows as a feed has them, in shape and element type; `ValueError` if their size is another."""
    sizes: Sequence[int | str] = feed.shape[1:]
    given = math.prod(rows.shape[1:])
    shape = fit_shape(sizes, given)
    if shape is None:
        raise ValueError(f"{feed.name} takes rows of shape {tuple(sizes)}, X has {given} features")
    return np.ascontiguousarray(rows.reshape(len(rows), *shape)).astype(feed.dtype)
