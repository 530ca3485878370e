"""Metrics: numbers that say how good predictions are, gathered batch by batch.

Names and formulas are those of scikit-learn, but that of perplexity, which it lacks.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from flow2onnx_runtime.call_text import parse_call
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.errors import FeedError, OptionsError

__all__ = [
    "F1",
    "MAE",
    "METRICS",
    "MSE",
    "R2",
    "RMSE",
    "Accuracy",
    "Metric",
    "Perplexity",
    "TopK",
    "metrics_of",
]


class Metric:
    """A number gathered from predictions and labels; a subclass says how.

    `name` is what it is called in a history; `grows` is true if more is better.
    """

    name: ClassVar[str]
    grows: ClassVar[bool] = False

    def reset(self) -> None:
        """Forget what was gathered."""
        raise NotImplementedError

    def update(self, predictions: Array, labels: Array) -> None:
        """Add the predictions of a batch, and the labels that they should be."""
        raise NotImplementedError

    def result(self) -> float:
        """The number; NaN of nothing."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """The numbers gathered, as plain values: the attributes that begin with one underscore."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
            if name.startswith("_")
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.reset()
        for name, value in state.items():
            kept = getattr(self, name)
            is_array = isinstance(kept, np.ndarray)
            shape = (-1, *kept.shape[1:]) if is_array else ()
            made = np.asarray(value, kept.dtype).reshape(shape) if is_array else value
            setattr(self, name, made)

    def __repr__(self) -> str:
        return f"<metric {self.name}>"


class _ByClass(Metric):
    """Metrics of classes: scores along an axis, against class numbers.

    `axis` is that of the classes; without it, the one that the labels lack. Labels of
    `ignore_index` do not count.
    """

    def __init__(self, axis: int | None = None, ignore_index: int = -100) -> None:
        self.axis, self.ignore_index = axis, ignore_index
        self.reset()

    def _scores(self, predictions: Array, labels: Array) -> tuple[Array, Array]:
        """Scores (count, classes) and labels (count,) of those that count."""
        axis = self._class_axis(predictions, labels)
        classes = predictions.shape[axis]
        scores = np.moveaxis(predictions, axis, -1).reshape(-1, classes)
        flat = labels.reshape(-1)
        kept = flat != self.ignore_index
        flat, scores = flat[kept], scores[kept]
        if flat.size and not (flat.min() >= 0 and flat.max() < classes):
            wrong = flat[(flat < 0) | (flat >= classes)][0]
            raise FeedError(
                f"{self.name}: the label {wrong} is no class of {classes}",
                hint=f"labels are 0 to {classes - 1}, or {self.ignore_index} for none",
            )
        return scores.astype(np.float64), flat.astype(np.int64)

    def _class_axis(self, predictions: Array, labels: Array) -> int:
        if labels.dtype.kind not in "iub":
            raise FeedError(
                f"{self.name}: labels of {labels.dtype} are no class numbers",
                hint="give whole numbers, or choose another metric, such as mae",
            )
        shape = predictions.shape
        # the first axis is that of the batch, whatever its size is
        axes = [i for i in range(1, len(shape)) if shape[:i] + shape[i + 1 :] == labels.shape]
        if self.axis is not None:
            axes = [a for a in axes if a == self.axis % max(len(shape), 1)]
        if len(axes) == 1:
            return axes[0]
        if axes:
            raise FeedError(
                f"{self.name}: predictions {shape} have classes along one of the axes {axes}",
                hint=f"say which: {self.name}(axis=1)",
            )
        raise FeedError(
            f"{self.name}: predictions {shape} are no scores for labels {labels.shape}",
            hint="predictions have one axis more than labels, that of the classes",
        )


def _is_thresholded(predictions: Array, labels: Array) -> bool:
    return bool(predictions.shape == labels.shape)


def _over(name: str, predictions: Array, threshold: float | None) -> Array:
    """The truths that numbers above a threshold stand for; 0.5 unless told, of probabilities."""
    if predictions.dtype.kind in "iub" and threshold is None:
        threshold = 0
    if threshold is None:
        if predictions.size and not (predictions.min() >= 0 and predictions.max() <= 1):
            raise FeedError(
                f"{name}: predictions from {predictions.min():.3g} to {predictions.max():.3g} are "
                "no probabilities",
                hint=f"say from where on they mean yes: {name}(threshold=0) for logits",
            )
        threshold = 0.5
    truths: Array = predictions > threshold
    return truths


class Accuracy(_ByClass):
    """The share of labels that are the class of the highest score.

    Predictions of the labels' shape are probabilities, or numbers with a `threshold`, above which
    they mean yes.
    """

    name, grows = "accuracy", True

    def __init__(
        self, axis: int | None = None, ignore_index: int = -100, threshold: float | None = None
    ) -> None:
        super().__init__(axis, ignore_index)
        self.threshold = threshold

    def reset(self) -> None:
        """Forget what was gathered."""
        self._right, self._count = 0, 0

    def update(self, predictions: Array, labels: Array) -> None:
        """Add a batch."""
        if _is_thresholded(predictions, labels):
            right = _over(self.name, predictions, self.threshold) == (labels > 0.5)
        else:
            scores, flat = self._scores(predictions, labels)
            right = scores.argmax(-1) == flat if flat.size else flat != flat
        self._right += int(right.sum())
        self._count += right.size

    def result(self) -> float:
        """The share."""
        return self._right / self._count if self._count else math.nan


class TopK(_ByClass):
    """The share of labels above whose score fewer than `k` others stand."""

    name, grows = "top_k", True

    def __init__(self, k: int = 5, axis: int | None = None, ignore_index: int = -100) -> None:
        if type(k) is not int or k < 1:
            raise OptionsError(f"top_k: k is {k!r}", hint="give a number of at least 1")
        self.k = k
        super().__init__(axis, ignore_index)

    def reset(self) -> None:
        """Forget what was gathered."""
        self._right, self._count = 0, 0

    def update(self, predictions: Array, labels: Array) -> None:
        """Add a batch."""
        scores, flat = self._scores(predictions, labels)
        own = np.take_along_axis(scores, flat[:, None], -1)
        self._right += int(((scores > own).sum(-1) < self.k).sum())
        self._count += flat.size

    def result(self) -> float:
        """The share."""
        return self._right / self._count if self._count else math.nan


class F1(_ByClass):
    """2 * precision * recall / (precision + recall).

    Of several classes the `average`: "macro" (each alike), "weighted" (by its labels), "micro" (of
    all counts) or "binary" (class 1 alone). Of predictions of the labels' shape it is that of yes,
    as for `Accuracy`.
    """

    name, grows = "f1", True
    averages = ("macro", "micro", "weighted", "binary")

    def __init__(
        self,
        average: str | None = None,
        axis: int | None = None,
        ignore_index: int = -100,
        threshold: float | None = None,
    ) -> None:
        if average is not None and average not in self.averages:
            raise OptionsError(f"f1: average is {average!r}", hint=", ".join(self.averages))
        self.average, self.threshold = average, threshold
        super().__init__(axis, ignore_index)

    def reset(self) -> None:
        """Forget what was gathered."""
        self._counts = np.zeros((0, 3), np.int64)  # by class: hits, predictions, labels
        self._is_binary = False

    def update(self, predictions: Array, labels: Array) -> None:
        """Add a batch."""
        if _is_thresholded(predictions, labels):
            self._is_binary = True
            chosen = _over(self.name, predictions, self.threshold).reshape(-1).astype(np.int64)
            flat, classes = (labels > 0.5).reshape(-1).astype(np.int64), 2
        else:
            scores, flat = self._scores(predictions, labels)
            classes = scores.shape[1]
            chosen = scores.argmax(-1) if flat.size else flat
        found = [flat[chosen == flat], chosen, flat]
        counts = np.stack([np.bincount(f, minlength=classes) for f in found], -1)
        missing = len(counts) - len(self._counts)
        self._counts = np.pad(self._counts, ((0, max(missing, 0)), (0, 0))) + counts

    def result(self) -> float:
        """The average."""
        average = self.average or ("binary" if self._is_binary else "macro")
        if not self._counts.sum():
            return math.nan
        if average == "binary":
            return float(_f1(self._counts[1:2]).sum())
        if average == "micro":
            return float(_f1(self._counts.sum(0, keepdims=True))[0])
        counts = self._counts[self._counts[:, 1:].any(-1)]
        each = _f1(counts)
        if average == "macro":
            return float(each.mean())
        return float((each * counts[:, 2]).sum() / counts[:, 2].sum())


def _f1(counts: Array) -> Array:
    """2 hits / (predictions + labels) of each row; 0 of none."""
    total = counts[:, 1] + counts[:, 2]
    scores: Array = np.divide(2.0 * counts[:, 0], total, where=total > 0, out=np.zeros(len(counts)))
    return scores


class _OfNumbers(Metric):
    """Metrics of real numbers, of one shape with their labels."""

    def _pair(self, predictions: Array, labels: Array) -> tuple[Array, Array]:
        if predictions.shape != labels.shape:
            raise FeedError(
                f"{self.name}: predictions {predictions.shape} and labels {labels.shape} differ",
                hint="give labels the shape of the predictions",
            )
        return predictions.astype(np.float64), labels.astype(np.float64)


class _MeanOfErrors(_OfNumbers):
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was gathered."""
        self._total, self._count = 0.0, 0

    def update(self, predictions: Array, labels: Array) -> None:
        """Add a batch."""
        p, y = self._pair(predictions, labels)
        self._total += float(self._error(p - y).sum())
        self._count += p.size

    def result(self) -> float:
        """The mean."""
        return self._total / self._count if self._count else math.nan

    def _error(self, difference: Array) -> Array:
        raise NotImplementedError


class MAE(_MeanOfErrors):
    """The mean absolute error."""

    name = "mae"

    def _error(self, difference: Array) -> Array:
        return np.abs(difference)


class MSE(_MeanOfErrors):
    """The mean squared error."""

    name = "mse"

    def _error(self, difference: Array) -> Array:
        return np.square(difference)


class RMSE(MSE):
    """The root of the mean squared error."""

    name = "rmse"

    def result(self) -> float:
        """The root."""
        return math.sqrt(super().result())


class R2(_OfNumbers):
    """1 - squared errors / squared distances of the labels from their mean.

    Of several columns the mean. Of labels that are all alike it is 1 if nothing is wrong, else 0.
    """

    name, grows = "r2", True

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget what was gathered."""
        self._count = 0
        self._errors = self._mean = self._spread = np.zeros(1)

    def update(self, predictions: Array, labels: Array) -> None:
        """Add a batch; means and spreads are merged by Chan's formula."""
        p, y = (a.reshape(len(a), -1) for a in self._pair(predictions, labels))
        if not len(y):
            return
        count, mean = len(y), y.mean(0)
        total, shift = self._count + count, mean - self._mean
        self._errors = self._errors + np.square(p - y).sum(0)
        self._spread = (
            self._spread
            + np.square(y - mean).sum(0)
            + np.square(shift) * (self._count * count / total)
        )
        self._mean = self._mean + shift * (count / total)
        self._count = total

    def result(self) -> float:
        """The share of the spread that is explained."""
        if self._count < 2:
            return math.nan
        is_flat = self._spread == 0
        ratio = np.divide(self._errors, self._spread, where=~is_flat, out=np.zeros(is_flat.shape))
        return float(np.where(is_flat, np.where(self._errors == 0, 1.0, 0.0), 1.0 - ratio).mean())


class Perplexity(_ByClass):
    """e to the mean of -log softmax(scores)[label]."""

    name = "perplexity"

    def reset(self) -> None:
        """Forget what was gathered."""
        self._total, self._count = 0.0, 0

    def update(self, predictions: Array, labels: Array) -> None:
        """Add a batch of scores, or of logarithms of probabilities."""
        scores, flat = self._scores(predictions, labels)
        if not flat.size:
            return
        top = scores.max(-1, keepdims=True)
        sums = np.log(np.exp(scores - top).sum(-1)) + top[:, 0]
        self._total += float((sums - np.take_along_axis(scores, flat[:, None], -1)[:, 0]).sum())
        self._count += flat.size

    def result(self) -> float:
        """The number; infinite where it is too large for one."""
        if not self._count:
            return math.nan
        mean = self._total / self._count
        return math.exp(mean) if mean < 709 else math.inf


METRICS: Mapping[str, Callable[..., Metric]] = {
    m.name: m for m in (Accuracy, TopK, F1, MAE, MSE, RMSE, R2, Perplexity)
}
Given = str | Metric | Sequence[str | Metric]


def metrics_of(given: Given) -> list[Metric]:
    """Metrics by name with settings, such as ``"top_k(k=3)"``, or as objects."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        given = [given]
    parts = list(given)
    found = [part if isinstance(part, Metric) else _metric(part) for part in parts]
    names = [metric.name for metric in found]
    for name in names:
        if names.count(name) > 1:
            raise OptionsError(f"two metrics are called {name}", hint="give one of them a subclass")
    for metric in found:
        metric.reset()
    return found


def _metric(text: object) -> Metric:
    call = parse_call(text) if isinstance(text, str) else None
    if call is None or call[0].lower() not in METRICS:
        raise OptionsError(
            f"{text!r} is no metric",
            hint=f"there are {', '.join(METRICS)}, perhaps with settings: 'top_k(k=3)'",
        )
    name, settings = call
    kind = METRICS[name.lower()]
    allowed = [p for p in inspect.signature(kind).parameters if p not in ("args", "kwargs")]
    for setting in settings:
        if setting not in allowed:
            have = f"it has {', '.join(allowed)}" if allowed else "it has no settings"
            raise OptionsError(f"metric {name} has no setting {setting!r}", hint=have)
    return kind(**settings)
