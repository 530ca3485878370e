"""Activations, bias, softmax, dropout."""

from typing import Any

from flow2onnx.dtypes import bool_
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, limits_of, rank_of
from flow2onnx.ops.arguments import axis_of, check_rate, check_seed
from flow2onnx.trace.context import current_job
from flow2onnx.trace.op import op


@op("nn.bias_add")
def bias_add(
    b: Builder, value: Value, bias: Value, data_format: str | None = None, name: str | None = None
) -> Value:
    """A bias of one dimension added on axis 1, or on the last for a channels-last layout."""
    if rank_of(value) < 2:
        raise ArgumentError(f"bias_add needs two dimensions or more, got {limits_of(value)}")
    is_last = (data_format is not None and data_format.endswith("C")) or rank_of(value) == 2
    axis = rank_of(value) - 1 if is_last else 1
    if dims(bias) != (limits_of(value)[axis],):
        raise ArgumentError(f"bias {dims(bias)} does not fit axis {axis} of {limits_of(value)}")
    trailing = rank_of(value) - 1 - axis
    return b.Add(value, b.Reshape(bias, [-1] + [1] * trailing) if trailing else bias)


@op("nn.leaky_relu")
def leaky_relu(b: Builder, x: Value, alpha: float = 0.2, name: str | None = None) -> Value:
    """x where it is positive, else alpha x."""
    return b.LeakyRelu(x, alpha=alpha)


def _last_unless(axis: int | None, x: Value) -> int:
    return -1 if axis is None else axis_of(axis, rank_of(x))


@op("nn.softmax")
def softmax(b: Builder, logits: Value, axis: int | None = None, name: str | None = None) -> Value:
    """e^x over its sum along `axis`, the last unless said."""
    return b.Softmax(logits, axis=_last_unless(axis, logits))


@op("nn.logsoftmax")
def logsoftmax(
    b: Builder, logits: Value, axis: int | None = None, name: str | None = None
) -> Value:
    """The logarithm of softmax."""
    return b.LogSoftmax(logits, axis=_last_unless(axis, logits))


@op("nn.dropout")
def dropout(
    b: Builder,
    x: Value,
    rate: float,
    noise_shape: Any = None,
    seed: int | None = None,
    name: str | None = None,
) -> Value:
    """In a train job, zeros with probability `rate` and x/(1-rate) elsewhere; else x."""
    check_rate(rate, noise_shape)
    check_seed(seed, name)
    job = current_job("nn.dropout")
    if not job.is_trainable or rate == 0:
        return x
    operands = (x, float(rate), b.const(True, bool_))
    return b.several("Dropout", *operands, seed=job.random_seed(b.prefix, seed), outputs=2)[0]


@op("nn.prelu", is_public=False)
def prelu_by(b: Builder, x: Value, alpha: Value, name: str | None = None) -> Value:
    """x where it is positive, else alpha x, broadcast."""
    return b.PRelu(x, alpha)
