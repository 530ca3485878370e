"""Losses of scores against class numbers: cross_entropy, nll, softmax_focal, multi_margin."""

from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.class_numbers import annotate_class_numbers
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.ops.loss_parts import (
    Reduction,
    check_same,
    check_setting,
    class_axis,
    class_count,
    class_numbers,
    class_weights,
    reduced,
    total,
)

__all__ = ["cross_entropy", "multi_margin", "nll", "softmax_focal"]


def cross_entropy(
    b: Builder,
    output: Value,
    labels: Value,
    axis: int | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    weight: Any = None,
    probabilities: bool = False,
    reduction: Reduction = "mean",
) -> Value:
    """-w[y] log softmax(output)[y], over the sum of w[y]: torch's CrossEntropyLoss.

    Labels y are class numbers, without those that are `ignore_index`; `weight` w has a number for
    each class. Smoothing takes (1 - s) of that and s / classes of -sum of w log softmax(output)
    (Szegedy et al., "Rethinking the Inception Architecture", 2016, section 7). With `probabilities`
    labels have the shape of the output, and the sum is divided by their number.
    """
    check_setting("label_smoothing", label_smoothing, 0.0, 1.0)
    at = class_axis(output, axis)
    scores = b.LogSoftmax(output, axis=at)
    if probabilities:
        return _expectation(b, scores, labels, at, label_smoothing, weight, reduction)
    picked = _Picked(b, scores, labels, at, ignore_index, weight)
    if not label_smoothing:
        return picked.loss(b, picked.sum_of(b, b.Neg(picked.scores)), reduction)
    weights = class_weights(b, output, weight, at)
    by_class = b.Neg(scores if weights is None else b.Mul(scores, _along(b, weights, output, at)))
    spread = picked.kept_sum(b, b.ReduceSum(by_class, [at], keepdims=0))
    sharp = picked.sum_of(b, b.Neg(picked.scores))
    share = label_smoothing / class_count(output, at)
    both = b.Add(b.Mul(sharp, 1.0 - label_smoothing), b.Mul(spread, share))
    return picked.loss(b, both, reduction)


def nll(
    b: Builder,
    output: Value,
    labels: Value,
    axis: int | None = None,
    ignore_index: int = -100,
    weight: Any = None,
    reduction: Reduction = "mean",
) -> Value:
    """-w[y] output[y], over the sum of w[y], of logarithms of probabilities: torch's NLLLoss."""
    picked = _Picked(b, output, labels, class_axis(output, axis), ignore_index, weight)
    return picked.loss(b, picked.sum_of(b, b.Neg(picked.scores)), reduction)


def softmax_focal(
    b: Builder,
    output: Value,
    labels: Value,
    gamma: float = 2.0,
    axis: int | None = None,
    ignore_index: int = -100,
    weight: Any = None,
    reduction: Reduction = "mean",
) -> Value:
    """-w[y] (1 - p[y])^gamma log p[y] with p = softmax(output), over the number of labels.

    Lin et al., "Focal Loss for Dense Object Detection", 2017, formula 5 for several classes.
    """
    check_setting("gamma", gamma)
    at = class_axis(output, axis)
    picked = _Picked(b, b.LogSoftmax(output, axis=at), labels, at, ignore_index, weight)
    missing = b.Sub(1.0, b.Exp(picked.scores))
    terms = b.Mul(focus(b, missing, gamma), b.Neg(picked.scores))
    summed = picked.sum_of(b, terms)
    return b.Div(summed, picked.count(b)) if _is_mean(reduction) else summed


def multi_margin(
    b: Builder,
    output: Value,
    labels: Value,
    p: int = 1,
    margin: float = 1.0,
    weight: Any = None,
    reduction: Reduction = "mean",
) -> Value:
    """w[y] times the sum over classes but y of max(0, margin - x[y] + x)^p, over their number.

    Scores x are (batch, classes): torch's MultiMarginLoss.
    """
    if p not in (1, 2):
        raise ArgumentError(f"p is {p!r}", hint="it is 1 or 2")
    check_setting("margin", margin)
    picked = _Picked(b, output, labels, class_axis(output, 1), -100, weight)
    own = b.Unsqueeze(picked.scores, [1])
    gap = b.Relu(b.Add(b.Sub(output, own), b.like(margin, output)))
    gap = gap if p == 1 else b.Mul(gap, gap)
    # the class itself has a gap of margin^p, which is no error
    by_sample = b.Sub(b.ReduceSum(gap, [1], keepdims=0), b.like(float(margin) ** p, output))
    if picked.weights is not None:
        by_sample = b.Mul(by_sample, picked.weights)
    return reduced(b, b.Div(by_sample, b.like(float(class_count(output, 1)), output)), reduction)


def focus(b: Builder, missing: Value, gamma: float) -> Value:
    """missing^gamma; where the root of 0 has no gradient, that of a number close to it."""
    if 0 < gamma < 1:
        missing = b.Max(missing, b.like(1e-7, missing))
    return b.Pow(missing, b.like(gamma, missing))


class _Picked:
    """The score at each label, its weight, and which labels count."""

    def __init__(
        self, b: Builder, scores: Value, labels: Value, axis: int, ignored: int, weight: Any
    ) -> None:
        if type(ignored) is not int:
            raise ArgumentError(f"ignore_index is {ignored!r}", hint="it is a whole number")
        annotate_class_numbers(b, labels, scores, axis, ignored)
        labels = class_numbers(b, scores, labels, axis)
        self.is_ignored = b.Equal(labels, ignored)
        safe = b.Where(self.is_ignored, 0, labels)
        # one that the runtime refuses, as it would count -1 from the end
        safe = b.Where(b.Less(safe, 0), class_count(scores, axis), safe)
        found = b.GatherElements(scores, b.Unsqueeze(safe, [axis]), axis=axis)
        self.scores = b.Squeeze(found, [axis])
        weights = class_weights(b, scores, weight, axis)
        self.weights = None if weights is None else b.Gather(weights, safe)

    def kept_sum(self, b: Builder, values: Value) -> Value:
        """The sum where the label counts; a product makes NaN of what is infinite elsewhere."""
        return total(b, b.Where(self.is_ignored, b.like(0.0, values), values))

    def sum_of(self, b: Builder, values: Value) -> Value:
        """The sum of values times the weights of their labels."""
        return self.kept_sum(b, values if self.weights is None else b.Mul(values, self.weights))

    def count(self, b: Builder) -> Value:
        """How many labels count, in the element type of the scores."""
        return total(b, b.Cast(b.Not(self.is_ignored), to=dtype_of(self.scores)))

    def loss(self, b: Builder, summed: Value, reduction: Reduction) -> Value:
        """The sum, or its quotient by the weights of all labels that count."""
        if not _is_mean(reduction):
            return summed
        weights = self.count(b) if self.weights is None else self.kept_sum(b, self.weights)
        return b.Div(summed, weights)


def _is_mean(reduction: Reduction) -> bool:
    if reduction not in ("mean", "sum"):
        raise ArgumentError(f"reduction is {reduction!r}", hint="it is 'mean' or 'sum'")
    return reduction == "mean"


def _along(b: Builder, weights: Value, output: Value, axis: int) -> Value:
    """A vector of classes in a shape that broadcasts over scores."""
    shape = [1] * rank_of(output)
    shape[axis] = -1
    return b.Reshape(weights, shape)


def _expectation(
    b: Builder,
    scores: Value,
    labels: Value,
    axis: int,
    smoothing: float,
    weight: Any,
    reduction: Reduction,
) -> Value:
    """The cross entropy with labels that are probabilities of classes."""
    check_same(output=scores, labels=labels)
    if smoothing:
        share = smoothing / class_count(scores, axis)
        labels = b.Add(b.Mul(labels, 1.0 - smoothing), b.like(share, labels))
    weights = class_weights(b, scores, weight, axis)
    terms = b.Mul(scores, labels)
    terms = terms if weights is None else b.Mul(terms, _along(b, weights, scores, axis))
    return b.Neg(reduced(b, b.ReduceSum(terms, [axis], keepdims=0), reduction))
