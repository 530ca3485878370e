"""Nodes that mean one thing in training and another in use: BatchNormalization and Dropout."""

import math
from collections.abc import Mapping, Sequence

from flow2onnx.autodiff.walk import expand_node
from flow2onnx.errors import ShapeError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.onnx_io.append import Handler
from flow2onnx.onnx_io.foreign import ForeignModel
from flow2onnx.ops.normalization import by_batch
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job

__all__ = ["ALWAYS", "INFERENCE", "TRAINING", "has_training_mode", "statistics"]

Operands = Sequence[Value | None]
Values = Mapping[str, Value]


def statistics(foreign: ForeignModel, is_asked: bool) -> frozenset[str]:
    """The running means and variances that a training step moves."""
    return frozenset(
        str(v.name)
        for node in foreign.graph
        if node.op_type == "BatchNormalization" and (is_asked or has_training_mode(node))
        for v in node.inputs[3:5]
        if v is not None and v.name in foreign.tensors
    )


def has_training_mode(node: Node) -> bool:
    """True if a BatchNormalization is in training form in the model itself."""
    return bool(attribute(node, "training_mode", 0))


def _batch_statistics(b: Builder, node: Node, inputs: Operands, made: Values) -> list[Value]:
    """Normalise by the batch, and move the running statistics.

    A node in inference form becomes what torch trains: the running variance is the unbiased one.
    """
    x, scale, offset, *running = inputs
    assert x is not None, "the checker has seen the operands"
    epsilon, momentum = attribute(node, "epsilon", 1e-5), attribute(node, "momentum", 0.9)
    operands = [Blob(v) for v in (x, scale, offset) if v is not None]
    y, mean, variance, _ = by_batch(*operands, epsilon)
    seen = [mean.value, variance.value]
    is_several = None
    if not has_training_mode(node):
        count = _values_per_channel(b, x)
        is_several = b.Greater(count, 1.0)
        seen[1] = b.Mul(seen[1], b.Div(count, b.Sub(count, 1.0)))
    moved = []
    for old, new in zip(running, seen, strict=True):
        if old is not None:
            after = b.Add(b.Mul(old, momentum), b.Mul(new, 1.0 - momentum))
            # one value has no variance: what would enter the state is not a number
            moved.append(after if is_several is None else b.Where(is_several, after, old))
    job = current_job("BatchNormalization")
    names = {id(value): name for name, value in job.values.items()}
    for old, new in zip(running, moved, strict=True):
        name = names.get(id(old))
        if name is not None and name not in job.updates:
            job.assign(name, new)
    return [y.value, *moved][: len(node.outputs)]


def _values_per_channel(b: Builder, x: Value) -> Value:
    """The number of values behind each mean; raises where it is known to be 1, as torch does."""
    if is_static(x) and math.prod(dims(x)) == dims(x)[1]:
        raise ShapeError(
            f"BatchNormalization of {dims(x)} in training: one value for each channel has no "
            "variance",
            hint="give larger batches, or leave training_mode out",
        )
    return b.Div(b.Cast(b.Size(x), to=dtype_of(x)), float(dims(x)[1]))


def _dropping(b: Builder, node: Node, inputs: Operands, made: Values) -> Operands:
    """Drop out, by a seed of the node's own."""
    x, ratio = inputs[0], inputs[1] if len(inputs) > 1 else None
    seed = current_job("Dropout").random_seed(node.name or b.prefix)
    operands = (x, ratio, b.const(True)) if ratio is not None else (x, 0.5, b.const(True))
    return b.several("Dropout", *operands, seed=int(seed), outputs=2)[: len(node.outputs)]


def _fixed_statistics(b: Builder, node: Node, inputs: Operands, made: Values) -> Operands:
    y = b.BatchNormalization(*inputs, epsilon=attribute(node, "epsilon", 1e-5))
    return [y, *inputs[3:5]][: len(node.outputs)]


def _keeping(b: Builder, node: Node, inputs: Operands, made: Values) -> Operands:
    x = inputs[0]
    assert x is not None, "the checker has seen the operands"
    if len(node.outputs) == 1:
        return [b.Identity(x)]
    return [b.Identity(x), b.Expand(b.const(True), b.Shape(x))]


def _within_window(b: Builder, node: Node, inputs: Operands, made: Values) -> Operands:
    """Attention; with windows the nodes that stand for it, as the runtime knows none."""
    outputs = b.emit("Attention", inputs, dict(node.attributes), len(node.outputs))
    maker = outputs[0].producer()
    sizes = [attribute(node, f"{side}_window_size", -1) for side in ("left", "right")]
    if maker is None or max(sizes) < 0:
        return outputs
    return expand_node(b, maker)


def _with_checked_labels(b: Builder, node: Node, inputs: Operands, made: Values) -> Operands:
    """A loss whose negative labels the runtime refuses, but for what is ignored.

    Its own body counts them from the end, so that -1 would be the last class.
    """
    scores, labels, *weights = inputs
    assert scores is not None, "the checker has seen the operands"
    assert labels is not None, "the checker has seen the operands"
    is_wrong = b.Less(labels, b.like(0, labels))
    ignored = attribute(node, "ignore_index")
    if ignored is not None:
        is_wrong = b.And(is_wrong, b.Not(b.Equal(labels, b.like(ignored, labels))))
    refused = b.Where(is_wrong, b.like(dims(scores)[1], labels), labels)
    operands = (scores, refused, *weights)
    return b.emit(node.op_type, operands, dict(node.attributes), len(node.outputs))


ALWAYS: dict[str, Handler] = {
    "::Attention": _within_window,
    "::NegativeLogLikelihoodLoss": _with_checked_labels,
    "::SoftmaxCrossEntropyLoss": _with_checked_labels,
}
TRAINING: dict[str, Handler] = {
    **ALWAYS,
    "::BatchNormalization": _batch_statistics,
    "::Dropout": _dropping,
}
INFERENCE: dict[str, Handler] = {
    **ALWAYS,
    "::BatchNormalization": _fixed_statistics,
    "::Dropout": _keeping,
}
