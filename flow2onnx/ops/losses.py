"""Losses: cross entropies of each sample, and distances reduced as `reduction` says."""

from collections.abc import Sequence

from flow2onnx.dtypes import DType
from flow2onnx.errors import ArgumentError, ContextError, DTypeError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.class_numbers import annotate_class_numbers
from flow2onnx.graph.types import dims, dtype_of, limits_of, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import reshape_to
from flow2onnx.lowering.scatters import scatter_add
from flow2onnx.ops.indexing import as_index
from flow2onnx.ops.reduce import reduce_mean, reduce_sum
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import composite, op


def as_column(b: Builder, labels: Value, logits: Value) -> Value:
    """Labels with a last dimension of 1."""
    if dtype_of(labels).is_floating_point:
        raise DTypeError(f"labels are class numbers, got {dtype_of(labels).name}")
    same_rank = rank_of(labels) == rank_of(logits) and limits_of(labels)[-1] == 1
    if limits_of(labels) != (*limits_of(logits)[:-1], *([1] if same_rank else [])):
        raise ShapeError(f"labels {limits_of(labels)} do not fit logits {limits_of(logits)}")
    annotate_class_numbers(b, labels, logits)
    index = as_index(b, labels)
    return index if same_rank else b.Unsqueeze(index, [-1])


def _sparse_vjp(
    b: Builder, inputs: tuple[Value, ...], outputs: tuple[Value, ...], g: Value
) -> tuple[None, Value]:
    # softmax - onehot in one pass over the logits, instead of a scatter into zeros and two sums
    labels, logits = inputs
    probabilities = b.Exp(b.LogSoftmax(logits, axis=-1))
    column = as_column(b, labels, logits)
    minus = b.const(-1.0, dtype_of(logits))
    ones = b.Expand(minus, list(sizes_of(column)))
    difference = scatter_add(b, "ScatterElements", probabilities, column, ones, axis=-1)
    return None, b.Mul(difference, reshape_to(b, g, sizes_of(column)))


@op(
    "nn.sparse_softmax_cross_entropy_with_logits",
    "nn.distributed_sparse_softmax_cross_entropy_with_logits",
    vjp=_sparse_vjp,
)
def sparse_softmax_cross_entropy_with_logits(
    b: Builder, labels: Value, logits: Value, name: str | None = None
) -> Value:
    """-log softmax(logits)[label] of each sample; labels are class numbers."""
    column = as_column(b, labels, logits)
    picked = b.GatherElements(b.LogSoftmax(logits, axis=-1), column, axis=-1)
    return b.Neg(reshape_to(b, picked, sizes_of(logits)[:-1]))


@op("nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    b: Builder, labels: Value, logits: Value, name: str | None = None
) -> Value:
    """-sum(labels * log softmax(logits)) over the last axis."""
    if limits_of(labels) != limits_of(logits):
        raise ShapeError(f"labels {limits_of(labels)} and logits {limits_of(logits)} differ")
    return b.Neg(b.ReduceSum(b.Mul(labels, b.LogSoftmax(logits, axis=-1)), [-1], keepdims=0))


@op("nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    b: Builder, labels: Value, logits: Value, name: str | None = None
) -> Value:
    """max(x, 0) - x z + ln(1 + e^-|x|) of each element; labels may be whole numbers."""
    if limits_of(labels) != limits_of(logits):
        raise ShapeError(f"labels {limits_of(labels)} and logits {limits_of(logits)} differ")
    x = logits
    z = labels if dtype_of(labels) == dtype_of(x) else b.Cast(labels, to=dtype_of(x))
    tail = b.Log(b.Add(b.Exp(b.Neg(b.Abs(x))), 1.0))
    return b.Add(b.Sub(b.Relu(x), b.Mul(x, z)), tail)


@op("nn.sparse_cross_entropy")
def sparse_cross_entropy(
    b: Builder, labels: Value, prediction: Value, name: str | None = None
) -> Value:
    """-log prediction[label] of each sample; predictions are probabilities already."""
    column = as_column(b, labels, prediction)
    picked = b.GatherElements(prediction, column, axis=-1)
    return b.Neg(b.Log(reshape_to(b, picked, sizes_of(prediction)[:-1])))


def _reduce(b: Builder, loss: Value, reduction: str) -> Value:
    if reduction == "none":
        return loss
    return {"mean": reduce_mean, "sum": reduce_sum}[reduction].lower(b, loss)


def _check(reduction: str, *values: Value) -> None:
    if reduction not in ("none", "mean", "sum"):
        raise ArgumentError(f"reduction is 'none', 'mean' or 'sum', got {reduction!r}")
    shapes = [dims(v) for v in values]
    if len(set(shapes)) > 1:
        raise ShapeError(f"shapes differ: {', '.join(map(str, shapes))}")


def _check_broadcast(x: Value, target: Value) -> None:
    """Raise unless `target` is broadcast to the shape of `x`."""
    sizes = dims(target)
    pairs = zip(reversed(dims(x)), reversed(sizes), strict=False)
    if len(sizes) > rank_of(x) or any(t not in (1, n) for n, t in pairs):
        raise ShapeError(
            f"shapes differ: {dims(x)}, and {sizes}, which is not broadcast to it",
            hint="a target has the inputs' shape, or 1 in its place",
        )


@op("nn.L1Loss")
def l1_loss(
    b: Builder, input: Value, target: Value, reduction: str = "mean", name: str | None = None
) -> Value:
    """|target - input|."""
    _check(reduction, input, target)
    difference = b.Sub(target, input)
    # not Abs: where they are equal OneFlow's gradient is 1
    is_below = b.Less(difference, b.like(0.0, difference))
    return _reduce(b, b.Where(is_below, b.Neg(difference), difference), reduction)


@op("nn.MSELoss")
def mse_loss(
    b: Builder, input: Value, target: Value, reduction: str = "mean", name: str | None = None
) -> Value:
    """(target - input)²."""
    _check(reduction, input, target)
    difference = b.Sub(target, input)
    return _reduce(b, b.Mul(difference, difference), reduction)


@op("nn.BCELoss", catalogued=True)
def bce_loss(
    b: Builder, input: Value, target: Value, weight: Value | None, reduction: str, name: str | None
) -> Value:
    """-(y ln x + (1 - y) ln(1 - x)) of probabilities x, times weight."""
    _check(reduction, input, target, *([] if weight is None else [weight]))
    hit = b.Mul(target, b.Log(input))
    miss = b.Mul(b.Sub(1.0, target), b.Log(b.Sub(1.0, input)))
    loss = b.Neg(b.Add(hit, miss))
    return _reduce(b, loss if weight is None else b.Mul(weight, loss), reduction)


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
    return _reduce(b, loss if weight is None else b.Mul(weight, loss), reduction)


@op("nn.KLDivLoss", catalogued=True)
def kl_div_loss(
    b: Builder, input: Value, target: Value, log_target: bool, reduction: str, name: str | None
) -> Value:
    """y (ln y - x) of log-probabilities x, 0 where y is; with `log_target` y is a logarithm too."""
    _check(reduction, input, target)
    if log_target:
        return _reduce(b, b.Mul(b.Exp(target), b.Sub(target, input)), reduction)
    is_some = b.Not(b.Equal(b.Round(b.Add(target, 0.5)), b.like(0.0, target)))
    logarithm = b.Log(b.Where(is_some, target, b.like(1.0, target)))
    loss = b.Mul(target, b.Sub(logarithm, input))
    return _reduce(b, b.Where(is_some, loss, b.like(0.0, loss)), reduction)


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
    """max(0, margin - target (input1 - input2)); target is 1 or -1, and may be broadcast."""
    _check(reduction, input1, input2)
    _check_broadcast(input1, target)
    lead = b.Mul(target, b.Sub(input2, input1))
    return _reduce(b, b.Clip(b.Add(lead, float(margin)), 0.0), reduction)


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
    return _reduce(b, b.Clip(b.Add(b.Sub(near, far), float(margin)), 0.0), reduction)


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
    moved = picked if (m1, m2) == (1, 0) else _add_angle(b, picked, m1, m2)
    moved = b.Sub(moved, b.like(m3, x)) if m3 else moved
    return b.ScatterElements(x, place, moved, axis=-1)


def _add_angle(b: Builder, cosine: Value, m1: float, m2: float) -> Value:
    return b.Cos(b.Add(b.Mul(b.Acos(cosine), float(m1)), float(m2)))


@composite("losses.add_loss")
def add_loss(loss: Blob | Sequence[Blob]) -> None:
    """Minimise the mean of `loss` too, under the job's `config.train` settings."""
    job = current_job("losses.add_loss")
    if not job.is_trainable:
        raise ContextError(
            "add_loss in a predict job",
            hint="set config.train.primary_lr(...) and config.train.model_update_conf(...)",
        )
    for blob in loss if isinstance(loss, list | tuple) else [loss]:
        if not isinstance(blob, Blob):
            raise ArgumentError(f"a loss is a blob, got {blob!r}")
        _check_real(blob.dtype)
        job.add_loss(blob.value, blob.is_dynamic)


def _check_real(dtype: DType) -> None:
    if not dtype.is_floating_point:
        raise DTypeError(f"a loss is of real numbers, got {dtype.name}")
