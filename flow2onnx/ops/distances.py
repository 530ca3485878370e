"""Losses between what is and what should be, reduced to a mean or a sum unless told otherwise."""

from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims
from flow2onnx.ops.losses import as_column
from flow2onnx.ops.reduce import reduce_mean, reduce_sum
from flow2onnx.trace.op import op


def _reduced(b: Builder, loss: Value, reduction: str) -> Value:
    if reduction == "none":
        return loss
    return {"mean": reduce_mean, "sum": reduce_sum}[reduction].lower(b, loss)


def _check(reduction: str, *values: Value) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"reduction is 'none', 'mean' or 'sum', got {reduction!r}")
    shapes = [dims(v) for v in values]
    if len(set(shapes)) > 1:
        raise ShapeError(f"shapes differ: {', '.join(map(str, shapes))}")


@op("nn.L1Loss")
def l1_loss(
    b: Builder, input: Value, target: Value, reduction: str = "mean", name: str | None = None
) -> Value:
    """|target - input|."""
    _check(reduction, input, target)
    difference = b.Sub(target, input)
    # not Abs: where they are equal OneFlow's gradient is 1
    is_below = b.Less(difference, b.like(0.0, difference))
    return _reduced(b, b.Where(is_below, b.Neg(difference), difference), reduction)


@op("nn.MSELoss")
def mse_loss(
    b: Builder, input: Value, target: Value, reduction: str = "mean", name: str | None = None
) -> Value:
    """(target - input)²."""
    _check(reduction, input, target)
    difference = b.Sub(target, input)
    return _reduced(b, b.Mul(difference, difference), reduction)


@op("nn.BCELoss")
def bce_loss(
    b: Builder,
    input: Value,
    target: Value,
    weight: Value | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Value:
    """-(y ln x + (1 - y) ln(1 - x)) of probabilities x, times weight."""
    _check(reduction, input, target, *([] if weight is None else [weight]))
    hit = b.Mul(target, b.Log(input))
    miss = b.Mul(b.Sub(1.0, target), b.Log(b.Sub(1.0, input)))
    loss = b.Neg(b.Add(hit, miss))
    return _reduced(b, loss if weight is None else b.Mul(weight, loss), reduction)


@op("nn.BCEWithLogitsLoss")
def bce_with_logits_loss(
    b: Builder,
    input: Value,
    target: Value,
    weight: Value | None = None,
    pos_weight: Value | None = None,
    reduction: str = "mean",
    name: str | None = None,
) -> Value:
    """nn.BCELoss of sigmoid(x), with a weight for the positives of each class."""
    _check(reduction, input, target, *([] if weight is None else [weight]))
    if pos_weight is not None and dims(pos_weight) != dims(input)[-1:]:
        raise ShapeError(f"pos_weight {dims(pos_weight)} is not one number for each class")
    tail = b.Softplus(b.Neg(input))
    if pos_weight is not None:
        tail = b.Mul(tail, b.Add(b.Mul(b.Sub(pos_weight, 1.0), target), 1.0))
    loss = b.Add(b.Mul(b.Sub(1.0, target), input), tail)
    return _reduced(b, loss if weight is None else b.Mul(weight, loss), reduction)


@op("nn.KLDivLoss")
def kl_div_loss(
    b: Builder,
    input: Value,
    target: Value,
    log_target: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Value:
    """y (ln y - x) of log-probabilities x, 0 where y is; with `log_target` y is a logarithm too."""
    _check(reduction, input, target)
    if log_target:
        return _reduced(b, b.Mul(b.Exp(target), b.Sub(target, input)), reduction)
    is_some = b.Not(b.Equal(b.Round(b.Add(target, 0.5)), b.like(0.0, target)))
    logarithm = b.Log(b.Where(is_some, target, b.like(1.0, target)))
    loss = b.Mul(target, b.Sub(logarithm, input))
    return _reduced(b, b.Where(is_some, loss, b.like(0.0, loss)), reduction)


@op("nn.MarginRankingLoss")
def margin_ranking_loss(
    b: Builder,
    input1: Value,
    input2: Value,
    target: Value,
    margin: float = 0.0,
    reduction: str = "mean",
    name: str | None = None,
) -> Value:
    """max(0, margin - target (input1 - input2)); target is 1 or -1."""
    _check(reduction, input1, input2, target)
    lead = b.Mul(target, b.Sub(input2, input1))
    return _reduced(b, b.Clip(b.Add(lead, float(margin)), 0.0), reduction)


@op("nn.TripletMarginLoss")
def triplet_margin_loss(
    b: Builder,
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-06,
    swap: bool = False,
    reduction: str = "mean",
    name: str | None = None,
) -> Value:
    """max(0, margin + |anchor - positive| - |anchor - negative|) in the p-norm over axis 1."""
    _check(reduction, anchor, positive, negative)
    if swap:
        raise UnsupportedError("swap was never implemented", hint="leave swap=False")
    near, far = (_norm(b, b.Add(b.Sub(anchor, v), eps), p) for v in (positive, negative))
    return _reduced(b, b.Clip(b.Add(b.Sub(near, far), float(margin)), 0.0), reduction)


def _norm(b: Builder, x: Value, p: float) -> Value:
    """The p-norm over axis 1."""
    if p == 2.0:
        return b.Sqrt(b.ReduceSum(b.Mul(x, x), [1], keepdims=0))
    total = b.ReduceSum(b.Pow(b.Abs(x), b.like(p, x)), [1], keepdims=0)
    return b.Pow(total, b.like(1.0 / p, x))


@op("smooth_l1_loss")
def smooth_l1_loss(
    b: Builder, prediction: Value, label: Value, beta: float = 1.0, name: str | None = None
) -> Value:
    """d²/(2 beta) where |d| < beta, else |d| - beta/2, of d = prediction - label; not reduced."""
    _check("none", prediction, label)
    difference = b.Sub(prediction, label)
    size = b.Abs(difference)
    square = b.Mul(b.Mul(difference, difference), 0.5 / beta)
    is_near = b.Less(size, b.like(beta, size))
    return b.Where(is_near, square, b.Sub(size, b.like(0.5 * beta, size)))


@op("combined_margin_loss")
def combined_margin_loss(
    b: Builder,
    x: Value,
    label: Value,
    m1: float = 1,
    m2: float = 0,
    m3: float = 0,
    name: str | None = None,
) -> Value:
    """x = cos t with cos(m1 t + m2) - m3 at the label of each sample."""
    place = as_column(b, label, x)
    picked = b.GatherElements(x, place, axis=-1)
    moved = picked if (m1, m2) == (1, 0) else _turned(b, picked, m1, m2)
    moved = b.Sub(moved, b.like(m3, x)) if m3 else moved
    return b.ScatterElements(x, place, moved, axis=-1)


def _turned(b: Builder, cosine: Value, m1: float, m2: float) -> Value:
    return b.Cos(b.Add(b.Mul(b.Acos(cosine), float(m1)), float(m2)))
