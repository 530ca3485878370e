"""Losses of several outputs of a model against each other: cosine, triplet, ranking, InfoNCE."""

from flow2onnx.errors import ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dtype_of, limits_of, rank_of
from flow2onnx.ops.loss_parts import Reduction, check_same, check_setting, distance, mean, reduced

__all__ = [
    "cosine",
    "cosine_embedding",
    "gaussian_nll",
    "info_nce",
    "margin_ranking",
    "triplet",
]


def cosine(b: Builder, output: Value, labels: Value, reduction: Reduction = "mean") -> Value:
    """1 - cos(output, y) over the last axis: cosine_embedding of pairs that belong together."""
    _check_vectors(output=output, labels=labels)
    return reduced(b, b.Sub(1.0, _cosine(b, output, labels)), reduction)


def cosine_embedding(
    b: Builder,
    first: Value,
    second: Value,
    labels: Value,
    margin: float = 0.0,
    reduction: Reduction = "mean",
) -> Value:
    """1 - cos(first, second) where the label is 1, max(0, cos - margin) where it is -1.

    torch's CosineEmbeddingLoss; vectors are (batch, size), labels (batch).
    """
    check_setting("margin", margin, -1.0, 1.0)
    _check_vectors(first=first, second=second)
    found = _cosine(b, first, second)
    check_same(cosines=found, labels=labels)
    zero = b.like(0.0, found)
    near = b.Where(b.Equal(labels, b.like(1.0, labels)), b.Sub(1.0, found), zero)
    apart = b.Relu(b.Sub(found, b.like(margin, found)))
    far = b.Where(b.Equal(labels, b.like(-1.0, labels)), apart, zero)
    return reduced(b, b.Add(near, far), reduction)


def triplet(
    b: Builder,
    anchor: Value,
    positive: Value,
    negative: Value,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: Reduction = "mean",
) -> Value:
    """max(0, margin + |anchor - positive + eps| - |anchor - negative + eps|) in the p-norm.

    torch's TripletMarginLoss over the last axis: Schroff et al., "FaceNet", 2015. With `swap` the
    distance of positive and negative counts where it is less (Balntas et al., "Learning shallow
    convolutional feature descriptors with triplet losses", 2016).
    """
    check_setting("margin", margin, is_open=True)
    check_setting("p", p, is_open=True)
    _check_vectors(anchor=anchor, positive=positive, negative=negative)

    def apart(x: Value, y: Value) -> Value:
        return distance(b, b.Add(b.Sub(x, y), b.like(eps, x)), float(p))

    near, far = apart(anchor, positive), apart(anchor, negative)
    if swap:
        far = b.Min(far, apart(positive, negative))
    return reduced(b, b.Relu(b.Add(b.Sub(near, far), b.like(margin, near))), reduction)


def margin_ranking(
    b: Builder,
    first: Value,
    second: Value,
    labels: Value,
    margin: float = 0.0,
    reduction: Reduction = "mean",
) -> Value:
    """max(0, margin - y (first - second)) for labels of 1, where first leads, and -1.

    torch's MarginRankingLoss.
    """
    check_setting("margin", margin)
    check_same(first=first, second=second, labels=labels)
    lead = b.Mul(labels, b.Sub(second, first))
    return reduced(b, b.Relu(b.Add(lead, b.like(margin, lead))), reduction)


def info_nce(
    b: Builder,
    first: Value,
    second: Value,
    temperature: float = 0.07,
    normalize: bool = True,
    symmetric: bool = False,
) -> Value:
    """-log of the share of e^(s_ii) in the sum of e^(s_ij) over j, s = first secondᵀ / temperature.

    Row i of both is one pair, all other rows are its negatives: van den Oord et al.,
    "Representation Learning with Contrastive Predictive Coding", 2018, formula 4. Rows are made
    unit vectors unless told; `symmetric` is the mean of that and of the sums over i (Radford et
    al., "Learning Transferable Visual Models From Natural Language Supervision", 2021).
    """
    check_setting("temperature", temperature, is_open=True)
    _check_vectors(first=first, second=second)
    if rank_of(first) != 2:
        raise ShapeError(
            f"first is {limits_of(first)}, and info_nce takes (batch, size)", hint="reshape it"
        )
    if normalize:
        first, second = (_unit(b, x) for x in (first, second))
    first = b.Div(first, b.like(temperature, first))
    scores = b.MatMul(first, b.Transpose(second, perm=[1, 0]))
    own = b.ReduceSum(b.Mul(first, second), [1], keepdims=0)
    rows = mean(b, b.Sub(b.ReduceLogSumExp(scores, [1], keepdims=0), own))
    if not symmetric:
        return rows
    columns = mean(b, b.Sub(b.ReduceLogSumExp(scores, [0], keepdims=0), own))
    return b.Mul(b.Add(rows, columns), 0.5)


def gaussian_nll(
    b: Builder,
    output: Value,
    variance: Value,
    labels: Value,
    eps: float = 1e-6,
    reduction: Reduction = "mean",
) -> Value:
    """(log v + (output - y)² / v) / 2 with v = max(variance, eps): torch's GaussianNLLLoss."""
    check_setting("eps", eps, is_open=True)
    check_same(output=output, variance=variance, labels=labels)
    v = b.Max(variance, b.like(eps, variance))
    difference = b.Sub(output, labels)
    terms = b.Add(b.Log(v), b.Div(b.Mul(difference, difference), v))
    return reduced(b, b.Mul(terms, 0.5), reduction)


def _check_vectors(**values: Value) -> None:
    check_same(**values)
    name, value = next(iter(values.items()))
    if not rank_of(value):
        raise ShapeError(f"{name} is a single number", hint="give vectors, such as (batch, size)")


def _cosine(b: Builder, x: Value, y: Value) -> Value:
    """The cosine over the last axis, with 1e-12 beside each sum of squares, as torch has it."""
    above = b.ReduceSum(b.Mul(x, y), [-1], keepdims=0)
    tiny = b.like(1e-12, x)
    squares = (b.Add(b.ReduceSum(b.Mul(v, v), [-1], keepdims=0), tiny) for v in (x, y))
    return b.Div(above, b.Sqrt(b.Mul(*squares)))


def _unit(b: Builder, x: Value) -> Value:
    """Rows of length 1; of length 0 they stay zeros."""
    squares = b.ReduceSum(b.Mul(x, x), [-1], keepdims=1)
    assert dtype_of(squares) == dtype_of(x), "a sum has the type of its terms"
    return b.Div(x, b.Sqrt(b.Add(squares, b.like(1e-12, x))))
