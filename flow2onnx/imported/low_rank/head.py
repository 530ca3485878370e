"""The loss of a language model, whose last product is computed in chunks of rows.

Scores of all words for all tokens are the largest values of a step. A Scan makes those of some rows
at a time, and at once the gradients of what they are computed from, so that none is kept.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32, int64
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.functions import inline_nodes
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.imported.low_rank.texts import IGNORED
from flow2onnx.trace.job import Job, Region

__all__ = ["head_nodes", "next_token_loss"]


def head_nodes(nodes: Sequence[Node], hidden: str) -> list[Node]:
    """The nodes that depend on the value `hidden`, in their order."""
    reached, found = {hidden}, []
    for node in nodes:
        if any(v is not None and v.name in reached for v in node.inputs):
            found.append(node)
            reached.update(str(o.name) for o in node.outputs)
    return found


def next_token_loss(
    job: Job,
    nodes: Sequence[Node],
    made: Mapping[str, Value],
    hidden: str,
    labels: Value,
    *,
    chunks: int,
    trains: bool,
) -> tuple[Value, Value]:
    """The mean of -log p(label) over the labels that count, and how many these are; both scalars.

    `nodes` make scores (image, row, word) from the value called `hidden`; `labels` are (image, row)
    with `IGNORED` for those that do not count. Other values are those `made`. Without any label
    that counts the loss is 0.
    """
    b, start = job.b, len(job.b.nodes)
    x = made[hidden]
    width = sizes_of(x)[-1]
    rows = b.Reshape(labels, [-1])
    missing = b.Mod(b.Neg(b.Shape(rows)), np.asarray([chunks]))
    none = np.zeros(1, np.int64)
    flat = b.Pad(b.Reshape(x, [-1, width]), b.Concat(none, none, missing, none, axis=0))
    marks = b.Pad(rows, b.Concat(none, missing, axis=0), np.int64(IGNORED))
    parts = b.Reshape(flat, [chunks, -1, width]), b.Reshape(marks, [chunks, -1])
    body = _body(b, nodes, made, hidden, parts, trains=trains)
    found = b.emit("Scan", parts, {"body": body, "num_scan_inputs": 2}, 2 if trains else 1)
    is_counted = b.Cast(b.Not(b.Equal(rows, np.int64(IGNORED))), to=float32)
    count = b.ReduceSum(is_counted, [0], keepdims=0)
    safe = b.Max(count, b.const(1.0, float32))
    loss = b.Div(b.ReduceSum(found[0], [0], keepdims=0), safe)
    if trains:
        slope = b.Slice(b.Reshape(found[1], [-1, width]), [0], b.Shape(rows), [0])
        whole = b.Reshape(slope, list(extents(b, x)))

        def vjp(
            b: Builder, inputs: Sequence[Value], outputs: Sequence[Value], g: Value
        ) -> tuple[Value]:
            return (b.Mul(whole, b.Div(g, safe)),)

        job.add_region(Region((x,), (loss,), vjp), start)
    return loss, count


def _body(
    b: Builder,
    nodes: Sequence[Node],
    made: Mapping[str, Value],
    hidden: str,
    parts: tuple[Value, Value],
    *,
    trains: bool,
) -> object:
    """The graph of one chunk: the sum of its losses and, to train, the gradient of its rows."""
    name = b.unique("head")
    inner = Builder.inside(b, name)
    shapes = [[f"{name}/rows", *sizes_of(v)[2:]] for v in parts]
    x = inner.input(f"{name}/x", shapes[0], dtype_of(parts[0]))
    label = inner.input(f"{name}/label", shapes[1], int64)
    with inner.under("head"):
        scores = _scores(inner, nodes, made, hidden, x)
        logs = inner.LogSoftmax(scores, axis=-1)
        is_counted = inner.Not(inner.Equal(label, np.int64(IGNORED)))
        at = inner.Unsqueeze(inner.Where(is_counted, label, np.int64(0)), [1])
        weight = inner.Unsqueeze(inner.Cast(is_counted, to=float32), [1])
        own = inner.GatherElements(logs, at, axis=1)
        outputs = [inner.Neg(inner.ReduceSum(inner.Mul(own, weight), [0, 1], keepdims=0))]
        if trains:  # of softmax and logarithm together: p, less 1 at the label
            above = inner.Sub(inner.Exp(own), 1.0)
            slope = inner.ScatterElements(inner.Exp(logs), at, above, axis=1)
            found = gradients(inner, {scores: slope}, [x]).get(x)
            if found is None:
                raise UnsupportedError("the scores do not depend on what the head reads")
            outputs.append(inner.Mul(found, weight))
    for value in outputs:
        inner.graph.outputs.append(value)
    return inner.graph


def _scores(
    inner: Builder,
    nodes: Sequence[Node],
    made: Mapping[str, Value],
    hidden: str,
    x: Value,
) -> Value:
    """The scores (row, word) of the rows `x`."""
    own = {o for n in nodes for o in n.outputs}
    outer = [v for n in nodes for v in n.inputs if v is not None and v.name and v not in own]
    formal = list(dict.fromkeys(outer))
    wide = inner.Unsqueeze(x, [0])  # as one text
    actual = [wide if v.name == hidden else made[str(v.name)] for v in formal]
    (scores,) = inline_nodes(inner, nodes, formal, actual, [nodes[-1].outputs[0]])
    assert scores is not None, "the last node makes the scores"
    flat: Value = inner.Squeeze(scores, [0])
    return flat if dtype_of(flat) == float32 else inner.Cast(flat, to=float32)
