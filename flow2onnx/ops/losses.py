"""Losses. None is reduced: a job minimises the mean over the elements of what it is given."""

from typing import Any

from flow2onnx.dtypes import DType
from flow2onnx.errors import ArgumentError, ContextError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import bounds_of, dtype_of, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import reshape_to
from flow2onnx.lowering.scatters import scatter_add
from flow2onnx.ops.indexing import as_index
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import composite, op


def as_column(b: Builder, labels: Value, logits: Value) -> Value:
    """Labels with a last dimension of 1."""
    if dtype_of(labels).is_floating_point:
        raise DTypeError(f"labels are class numbers, got {dtype_of(labels).name}")
    same_rank = rank_of(labels) == rank_of(logits) and bounds_of(labels)[-1] == 1
    if bounds_of(labels) != (*bounds_of(logits)[:-1], *([1] if same_rank else [])):
        raise ShapeError(f"labels {bounds_of(labels)} do not fit logits {bounds_of(logits)}")
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
    earlier={"0.1.5": "(labels=None, logits=None, name=None)"},
)
def sparse_softmax_cross_entropy_with_logits(
    b: Builder, labels: Value, logits: Value, name: str | None = None
) -> Value:
    """-log softmax(logits)[label] of each sample; labels are class numbers."""
    column = as_column(b, labels, logits)
    picked = b.GatherElements(b.LogSoftmax(logits, axis=-1), column, axis=-1)
    return b.Neg(reshape_to(b, picked, sizes_of(logits)[:-1]))


@op(
    "nn.softmax_cross_entropy_with_logits",
    earlier={"0.1.5": "(labels=None, logits=None, name=None)"},
)
def softmax_cross_entropy_with_logits(
    b: Builder, labels: Value, logits: Value, name: str | None = None
) -> Value:
    """-sum(labels * log softmax(logits)) over the last axis."""
    if bounds_of(labels) != bounds_of(logits):
        raise ShapeError(f"labels {bounds_of(labels)} and logits {bounds_of(logits)} differ")
    return b.Neg(b.ReduceSum(b.Mul(labels, b.LogSoftmax(logits, axis=-1)), [-1], keepdims=0))


@op(
    "nn.sigmoid_cross_entropy_with_logits",
    earlier={"0.1.5": "(labels=None, logits=None, name=None)"},
)
def sigmoid_cross_entropy_with_logits(
    b: Builder, labels: Value, logits: Value, name: str | None = None
) -> Value:
    """max(x, 0) - x z + ln(1 + e^-|x|) of each element; labels may be whole numbers."""
    if bounds_of(labels) != bounds_of(logits):
        raise ShapeError(f"labels {bounds_of(labels)} and logits {bounds_of(logits)} differ")
    x = logits
    z = labels if dtype_of(labels) == dtype_of(x) else b.Cast(labels, to=dtype_of(x))
    tail = b.Log(b.Add(b.Exp(b.Neg(b.Abs(x))), 1.0))
    return b.Add(b.Sub(b.Relu(x), b.Mul(x, z)), tail)


@op("nn.sparse_cross_entropy", earlier={"0.1.5": "(labels=None, prediction=None, name=None)"})
def sparse_cross_entropy(
    b: Builder, labels: Value, prediction: Value, name: str | None = None
) -> Value:
    """-log prediction[label] of each sample; predictions are probabilities already."""
    column = as_column(b, labels, prediction)
    picked = b.GatherElements(prediction, column, axis=-1)
    return b.Neg(b.Log(reshape_to(b, picked, sizes_of(prediction)[:-1])))


@composite("losses.add_loss")
def add_loss(loss: Any) -> None:
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
