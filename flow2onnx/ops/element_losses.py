"""Losses of each element against a label of its own: mse, l1, huber, bce, focal, dice, kl, …"""

from typing import Any, Literal

import numpy as np

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, limits_of, rank_of
from flow2onnx.ops.class_losses import focus
from flow2onnx.ops.loss_parts import Reduction, check_same, check_setting, mean, reduced, total

__all__ = [
    "bce",
    "bce_with_logits",
    "dice",
    "focal",
    "hinge",
    "hinge_embedding",
    "huber",
    "kl",
    "l1",
    "mse",
    "poisson_nll",
    "smooth_l1",
    "soft_margin",
]


def mse(b: Builder, output: Value, labels: Value, reduction: Reduction = "mean") -> Value:
    """(output - y)²: torch's MSELoss."""
    check_same(output=output, labels=labels)
    difference = b.Sub(output, labels)
    return reduced(b, b.Mul(difference, difference), reduction)


def l1(b: Builder, output: Value, labels: Value, reduction: Reduction = "mean") -> Value:
    """|output - y|: torch's L1Loss."""
    check_same(output=output, labels=labels)
    return reduced(b, b.Abs(b.Sub(output, labels)), reduction)


def huber(
    b: Builder, output: Value, labels: Value, delta: float = 1.0, reduction: Reduction = "mean"
) -> Value:
    """d²/2 up to a difference d of `delta`, delta (d - delta/2) beyond: torch's HuberLoss.

    Huber, "Robust Estimation of a Location Parameter", 1964.
    """
    check_setting("delta", delta, is_open=True)
    check_same(output=output, labels=labels)
    d = b.Abs(b.Sub(output, labels))
    near = b.Mul(b.Mul(d, d), 0.5)
    far = b.Mul(b.Sub(d, 0.5 * delta), delta)
    return reduced(b, b.Where(b.Less(d, delta), near, far), reduction)


def smooth_l1(
    b: Builder, output: Value, labels: Value, beta: float = 1.0, reduction: Reduction = "mean"
) -> Value:
    """d²/(2 beta) up to a difference d of `beta`, d - beta/2 beyond: torch's SmoothL1Loss.

    Girshick, "Fast R-CNN", 2015, formula 3; l1 for a beta of 0.
    """
    check_setting("beta", beta)
    if not beta:
        return l1(b, output, labels, reduction)
    return b.Div(huber(b, output, labels, beta, reduction), beta)


def bce(b: Builder, output: Value, labels: Value, reduction: Reduction = "mean") -> Value:
    """-(y log p + (1 - y) log(1 - p)) of probabilities: torch's BCELoss, no log below -100."""
    check_same(output=output, labels=labels)
    low = b.like(-100.0, output)
    yes = b.Max(b.Log(output), low)
    no = b.Max(b.Log(b.Sub(1.0, output)), low)
    both = b.Add(b.Mul(labels, yes), b.Mul(b.Sub(1.0, labels), no))
    return b.Neg(reduced(b, both, reduction))


def bce_with_logits(
    b: Builder,
    output: Value,
    labels: Value,
    pos_weight: Any = None,
    reduction: Reduction = "mean",
) -> Value:
    """max(x, 0) - x y + log(1 + e^-|x|) of scores: torch's BCEWithLogitsLoss.

    With `pos_weight` w, a number or what broadcasts to the output such as one number for each of
    its last axis, (1 - y) x + (1 + (w - 1) y) (max(-x, 0) + log(1 + e^-|x|)).
    """
    check_same(output=output, labels=labels)
    tail = b.Log(b.Add(b.Exp(b.Neg(b.Abs(output))), 1.0))
    if pos_weight is None:
        whole = b.Add(b.Sub(b.Relu(output), b.Mul(output, labels)), tail)
        return reduced(b, whole, reduction)
    more = _positive_weights(b, output, pos_weight)
    share = b.Add(b.Mul(labels, b.Sub(more, 1.0)), 1.0)
    tail = b.Mul(share, b.Add(tail, b.Relu(b.Neg(output))))
    return reduced(b, b.Add(b.Mul(b.Sub(1.0, labels), output), tail), reduction)


def _positive_weights(b: Builder, output: Value, given: Any) -> Value:
    # along an axis of any length there is one number
    shape = tuple(d if isinstance(d, int) else 1 for d in limits_of(output))
    try:
        numbers = np.asarray(given, np.float64)
        fits = np.broadcast_shapes(numbers.shape, shape) == shape
    except (TypeError, ValueError):
        numbers, fits = np.empty(0), False
    if not fits or not np.isfinite(numbers).all() or (numbers < 0).any():
        raise ArgumentError(
            f"pos_weight is {given!r}",
            hint=f"it is a number of at least 0, or what broadcasts to {limits_of(output)}",
        )
    return b.const(numbers, dtype_of(output))


def focal(
    b: Builder,
    output: Value,
    labels: Value,
    gamma: float = 2.0,
    alpha: float | None = 0.25,
    reduction: Reduction = "mean",
) -> Value:
    """-alpha_t (1 - p_t)^gamma log p_t of scores against labels of 0 and 1.

    p_t is the sigmoid of the score where the label is 1, and 1 minus it where it is 0; alpha_t is
    alpha and 1 - alpha, or 1 for None. Lin et al., "Focal Loss for Dense Object Detection", 2017,
    formula 5; as torchvision's sigmoid_focal_loss.
    """
    check_setting("gamma", gamma)
    check_same(output=output, labels=labels)
    others = b.Sub(1.0, labels)
    p = b.Sigmoid(output)
    missing = b.Add(b.Mul(b.Sub(1.0, p), labels), b.Mul(p, others))
    tail = b.Log(b.Add(b.Exp(b.Neg(b.Abs(output))), 1.0))
    entropy = b.Add(b.Sub(b.Relu(output), b.Mul(output, labels)), tail)
    terms = b.Mul(focus(b, missing, gamma), entropy)
    if alpha is not None:
        check_setting("alpha", alpha, 0.0, 1.0)
        terms = b.Mul(terms, b.Add(b.Mul(labels, alpha), b.Mul(others, 1.0 - alpha)))
    return reduced(b, terms, reduction)


def dice(
    b: Builder,
    output: Value,
    labels: Value,
    smooth: float = 1.0,
    squared: bool = True,
    sigmoid: bool = True,
) -> Value:
    """1 - (2 sum p y + smooth) / (sum p² + sum y² + smooth), the mean over the batch.

    p is the sigmoid of the output, or without `sigmoid` the output itself; sums are over all axes
    but the first. Milletari et al., "V-Net: Fully Convolutional Neural Networks for Volumetric
    Medical Image Segmentation", 2016, section 3, with `smooth` in both parts so that an empty mask
    is no division by 0; not `squared`, the sums below are of p and y.
    """
    check_setting("smooth", smooth)
    check_same(output=output, labels=labels)
    if rank_of(output) < 2:
        raise ShapeError(
            f"output {output.name} is {limits_of(output)}", hint="give (batch, …) scores of masks"
        )
    p = b.Sigmoid(output) if sigmoid else output
    axes = list(range(1, rank_of(output)))
    both = b.ReduceSum(b.Mul(p, labels), axes, keepdims=0)
    own, wanted = (b.Mul(v, v) if squared else v for v in (p, labels))
    below = b.ReduceSum(b.Add(own, wanted), axes, keepdims=0)
    overlap = b.Div(b.Add(b.Mul(both, 2.0), smooth), b.Add(below, smooth))
    return mean(b, b.Sub(1.0, overlap))


def kl(
    b: Builder,
    output: Value,
    labels: Value,
    log_target: bool = False,
    reduction: Literal["batchmean", "mean", "sum"] = "batchmean",
) -> Value:
    """y (log y - output), 0 where y is, of logarithms of probabilities: torch's KLDivLoss.

    Of the sum divided by the first axis, unless told. With `log_target` labels are logarithms too.
    """
    check_same(output=output, labels=labels)
    if log_target:
        whole = b.Mul(b.Exp(labels), b.Sub(labels, output))
    else:
        zero = b.like(0.0, labels)
        is_zero = b.Equal(labels, zero)
        safe = b.Where(is_zero, b.like(1.0, labels), labels)
        parts = b.Sub(b.Mul(safe, b.Log(safe)), b.Mul(labels, output))
        whole = b.Where(is_zero, zero, parts)
    if reduction != "batchmean":
        return reduced(b, whole, reduction)
    batch = b.Cast(b.Shape(output, start=0, end=1), to=dtype_of(output))
    return b.Div(total(b, whole), b.Squeeze(batch, [0]))


def hinge(b: Builder, output: Value, labels: Value, reduction: Reduction = "mean") -> Value:
    """max(0, 1 - x y), labels -1 and 1: Cortes and Vapnik, "Support-Vector Networks", 1995."""
    check_same(output=output, labels=labels)
    return reduced(b, b.Relu(b.Sub(1.0, b.Mul(output, labels))), reduction)


def hinge_embedding(
    b: Builder, output: Value, labels: Value, margin: float = 1.0, reduction: Reduction = "mean"
) -> Value:
    """x where the label is 1, max(0, margin - x) where it is -1: torch's HingeEmbeddingLoss."""
    check_setting("margin", margin)
    check_same(output=output, labels=labels)
    zero = b.like(0.0, output)
    apart = b.Relu(b.Sub(b.like(margin, output), output))
    near = b.Where(b.Equal(labels, b.like(-1.0, labels)), zero, output)
    far = b.Where(b.Equal(labels, b.like(1.0, labels)), zero, apart)
    return reduced(b, b.Add(near, far), reduction)


def soft_margin(b: Builder, output: Value, labels: Value, reduction: Reduction = "mean") -> Value:
    """log(1 + e^(-x y)) for labels of -1 and 1: torch's SoftMarginLoss."""
    check_same(output=output, labels=labels)
    z = b.Neg(b.Mul(output, labels))
    tail = b.Log(b.Add(b.Exp(b.Neg(b.Abs(z))), 1.0))
    return reduced(b, b.Add(b.Relu(z), tail), reduction)


def poisson_nll(
    b: Builder,
    output: Value,
    labels: Value,
    log_input: bool = True,
    eps: float = 1e-8,
    reduction: Reduction = "mean",
) -> Value:
    """e^x - y x of the logarithm of a rate, or x - y log(x + eps): torch's PoissonNLLLoss."""
    check_setting("eps", eps)
    check_same(output=output, labels=labels)
    if log_input:
        return reduced(b, b.Sub(b.Exp(output), b.Mul(labels, output)), reduction)
    logarithm = b.Log(b.Add(output, b.like(eps, output)))
    return reduced(b, b.Sub(output, b.Mul(labels, logarithm)), reduction)
