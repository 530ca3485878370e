"""Losses by name: a scalar from an output of the model and an input of labels.

Names, formulas and settings are those of torch. Means are a sum divided by a size taken from the
value itself, so that they hold for every batch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flow2onnx.dtypes import DType, int64
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.class_numbers import annotate_class_numbers
from flow2onnx.graph.types import dims, dtype_of, rank_of
from flow2onnx.trace.call_text import find_entry

__all__ = ["LOSSES", "NamedLoss", "mean", "named_loss"]

Shape = tuple[int, ...]


@dataclass(frozen=True)
class NamedLoss:
    """A loss with its settings."""

    name: str
    function: Callable[..., Value]
    settings: dict[str, Any]

    def labels(self, output: Value) -> tuple[Shape, DType]:
        """The labels that it takes for an output of the model."""
        if not dtype_of(output).is_floating_point:
            raise DTypeError(
                f"the loss {self.name} is of real numbers, output {output.name} is "
                f"{dtype_of(output).name}",
                hint="name another output with output=",
            )
        if self.name not in _BY_CLASS:
            return dims(output), dtype_of(output)
        axis = _class_axis(output, self.settings.get("axis"))
        return tuple(d for i, d in enumerate(dims(output)) if i != axis), int64

    def apply(self, b: Builder, output: Value, labels: Value) -> Value:
        """The loss, a scalar."""
        return self.function(b, output, labels, **self.settings)


def named_loss(text: str) -> NamedLoss:
    """The loss that a text such as ``cross_entropy(axis=-1)`` names."""
    function, settings = find_entry(LOSSES, text, "loss", skipped=3)
    name = next(n for n, f in LOSSES.items() if f is function)
    return NamedLoss(name, function, settings)


def mean(b: Builder, x: Value) -> Value:
    """The mean of all elements, a scalar."""
    if not rank_of(x):
        return x
    return b.Div(b.ReduceSum(x, keepdims=0), b.Cast(b.Size(x), to=dtype_of(x)))


def _class_axis(output: Value, axis: Any) -> int:
    rank = rank_of(output)
    if axis is None:
        if rank == 3:
            raise ArgumentError(
                f"output {output.name} is {dims(output)}: which axis are the classes?",
                hint='write "cross_entropy(axis=-1)" for texts, axis=1 for torch\'s own order',
            )
        axis = 1
    if type(axis) is not int or not -rank <= axis < rank or rank < 2:
        raise ShapeError(
            f"output {output.name} is {dims(output)}, which has no axis {axis} of classes",
            hint="give the loss scores of shape (batch, classes), or say axis=",
        )
    return axis % rank


def cross_entropy(
    b: Builder,
    output: Value,
    labels: Value,
    axis: int | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """The mean of -log softmax(output)[label]; labels are class numbers."""
    at = _class_axis(output, axis)
    annotate_class_numbers(b, labels, output, at, ignore_index)
    scores = b.LogSoftmax(output, axis=at)
    if not label_smoothing:
        return _picked_mean(b, scores, labels, at, ignore_index)
    if not 0 <= label_smoothing <= 1:
        raise ArgumentError(f"label_smoothing is between 0 and 1, got {label_smoothing}")
    by_class = b.Neg(b.ReduceMean(scores, [at], keepdims=0))
    count = _count(b, labels, ignore_index, dtype_of(output))
    spread = b.Div(_kept_sum(b, by_class, labels, ignore_index), count)
    sharp = _picked_mean(b, scores, labels, at, ignore_index)
    return b.Add(b.Mul(sharp, 1.0 - label_smoothing), b.Mul(spread, label_smoothing))


def nll(
    b: Builder,
    output: Value,
    labels: Value,
    axis: int | None = None,
    ignore_index: int = -100,
) -> Value:
    """The mean of -output[label]; the output are logarithms of probabilities."""
    at = _class_axis(output, axis)
    annotate_class_numbers(b, labels, output, at, ignore_index)
    return _picked_mean(b, output, labels, at, ignore_index)


def _picked_mean(b: Builder, scores: Value, labels: Value, axis: int, ignored: int) -> Value:
    count = _count(b, labels, ignored, dtype_of(scores))
    safe = b.Where(b.Equal(labels, ignored), 0, labels)
    # one that the runtime refuses, as it would count -1 from the end
    safe = b.Where(b.Less(safe, 0), dims(scores)[axis], safe)
    picked = b.GatherElements(scores, b.Unsqueeze(safe, [axis]), axis=axis)
    return b.Neg(b.Div(_kept_sum(b, b.Squeeze(picked, [axis]), labels, ignored), count))


def _kept_sum(b: Builder, values: Value, labels: Value, ignored: int) -> Value:
    """The sum where the label counts; a product would make NaN of what is infinite elsewhere."""
    counted = b.Where(b.Equal(labels, ignored), b.like(0.0, values), values)
    return b.ReduceSum(counted, keepdims=0)


def _count(b: Builder, labels: Value, ignored: int, dtype: DType) -> Value:
    """How many labels count, in an element type."""
    kept = b.Cast(b.Not(b.Equal(labels, ignored)), to=dtype)
    return b.ReduceSum(kept, keepdims=0)


def mse(b: Builder, output: Value, labels: Value) -> Value:
    """The mean of the squared differences."""
    difference = b.Sub(output, labels)
    return mean(b, b.Mul(difference, difference))


def l1(b: Builder, output: Value, labels: Value) -> Value:
    """The mean of the absolute differences."""
    return mean(b, b.Abs(b.Sub(output, labels)))


def huber(b: Builder, output: Value, labels: Value, delta: float = 1.0) -> Value:
    """d²/2 up to a difference of `delta`, delta (d - delta/2) beyond."""
    if not delta > 0:
        raise ArgumentError(f"delta is positive, got {delta}")
    d = b.Abs(b.Sub(output, labels))
    near = b.Mul(b.Mul(d, d), 0.5)
    far = b.Mul(b.Sub(d, 0.5 * delta), delta)
    return mean(b, b.Where(b.Less(d, delta), near, far))


def smooth_l1(b: Builder, output: Value, labels: Value, beta: float = 1.0) -> Value:
    """The huber loss of delta `beta`, divided by it."""
    return b.Div(huber(b, output, labels, beta), beta)


def bce(b: Builder, output: Value, labels: Value) -> Value:
    """-(y log p + (1 - y) log(1 - p)) of probabilities; logarithms are at least -100."""
    low = b.like(-100.0, output)
    yes = b.Max(b.Log(output), low)
    no = b.Max(b.Log(b.Sub(1.0, output)), low)
    total = b.Add(b.Mul(labels, yes), b.Mul(b.Sub(1.0, labels), no))
    return b.Neg(mean(b, total))


def bce_with_logits(b: Builder, output: Value, labels: Value) -> Value:
    """max(x, 0) - x y + log(1 + e^-|x|) of scores."""
    tail = b.Log(b.Add(b.Exp(b.Neg(b.Abs(output))), 1.0))
    return mean(b, b.Add(b.Sub(b.Relu(output), b.Mul(output, labels)), tail))


def kl(b: Builder, output: Value, labels: Value) -> Value:
    """The sum of y (log y - output) divided by the batch; the output are logarithms."""
    zero = b.like(0.0, labels)
    is_zero = b.Equal(labels, zero)
    safe = b.Where(is_zero, b.like(1.0, labels), labels)
    parts = b.Sub(b.Mul(safe, b.Log(safe)), b.Mul(labels, output))
    whole = b.Where(is_zero, zero, parts)
    batch = b.Cast(b.Shape(output, start=0, end=1), to=dtype_of(output))
    return b.Div(b.ReduceSum(whole, keepdims=0), b.Squeeze(batch, [0]))


def hinge(b: Builder, output: Value, labels: Value) -> Value:
    """max(0, 1 - x y) for labels of -1 and 1."""
    return mean(b, b.Relu(b.Sub(1.0, b.Mul(output, labels))))


LOSSES: dict[str, Callable[..., Value]] = {
    "cross_entropy": cross_entropy,
    "nll": nll,
    "mse": mse,
    "l1": l1,
    "huber": huber,
    "smooth_l1": smooth_l1,
    "bce": bce,
    "bce_with_logits": bce_with_logits,
    "kl": kl,
    "hinge": hinge,
}
_BY_CLASS = ("cross_entropy", "nll")
