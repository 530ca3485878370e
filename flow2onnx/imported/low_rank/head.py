"""The loss of a language model, whose last product is computed in chunks.

Scores of all words for all tokens are the largest values of a step. A Scan makes those of some
words, or of some rows, at a time, and at once the gradients of what they are computed from, so that
none is kept.
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
from flow2onnx.imported.low_rank.tiled_head import tiled_head, tiled_loss
from flow2onnx.passes.dead_code import DeadCodeElimination
from flow2onnx.trace.job import Job, Region

__all__ = ["head_nodes", "next_token_loss"]

_CHUNKS = 4  # of rows, unless it is said


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
    chunks: int | None,
    trained: Sequence[Value] = (),
    trains: bool,
) -> tuple[Value, Value]:
    """The mean of -log p(label) over the labels that count, and how many these are; both scalars.

    `nodes` make scores (image, row, word) from the value called `hidden`; `labels` are (image, row)
    with `IGNORED` for those that do not count. Other values are those `made`. Without any label
    that counts the loss is 0. The work is done in `chunks`: of words where the head is one product,
    of rows else; None takes as many as a processor's cache asks for. `trained` are values that
    have gradients, as `made[hidden]` has; the head reads some of them if it has adapters.
    """
    b, start = job.b, len(job.b.nodes)
    x = made[hidden]
    rows, width = b.Reshape(labels, [-1]), sizes_of(x)[-1]
    is_counted = b.Not(b.Equal(rows, np.int64(IGNORED)))
    count = b.ReduceSum(b.Cast(is_counted, to=float32), [0], keepdims=0)
    safe = b.Max(count, b.const(1.0, float32))
    wrt = [x, *(v for v in trained if any(made.get(n) is v for n in _names_read(nodes)))]
    plain = tiled_head(nodes, made, hidden)
    if plain is None:
        total, slopes = _row_loss(b, nodes, made, hidden, rows, wrt, chunks=chunks or _CHUNKS,
                                  trains=trains)  # fmt: skip
    else:
        words = b.Where(is_counted, rows, np.int64(0))
        flat = b.Reshape(x, [-1, width])
        total, slopes = tiled_loss(b, plain, flat, words, is_counted, tiles=chunks, trains=trains)
    loss = b.Div(total, safe)
    if trains:
        found = [b.Reshape(slopes[0], list(extents(b, x))), *slopes[1:]]

        def vjp(
            b: Builder, inputs: Sequence[Value], outputs: Sequence[Value], g: Value
        ) -> tuple[Value, ...]:
            return tuple(b.Mul(slope, b.Div(g, safe)) for slope in found)

        job.add_region(Region(tuple(wrt), (loss,), vjp), start)
    return loss, count


def _names_read(nodes: Sequence[Node]) -> set[str]:
    return {str(v.name) for n in nodes for v in n.inputs if v is not None}


def _row_loss(
    b: Builder,
    nodes: Sequence[Node],
    made: Mapping[str, Value],
    hidden: str,
    labels: Value,
    wrt: Sequence[Value],
    *,
    chunks: int,
    trains: bool,
) -> tuple[Value, list[Value]]:
    """The sum of the losses, in chunks of rows; to train, its gradients in `wrt`, too.

    The first of `wrt` is what the head reads, whose gradient is (row, width).
    """
    x = made[hidden]
    width = sizes_of(x)[-1]
    missing = b.Mod(b.Neg(b.Shape(labels)), np.asarray([chunks]))
    none = np.zeros(1, np.int64)
    flat = b.Pad(b.Reshape(x, [-1, width]), b.Concat(none, none, missing, none, axis=0))
    marks = b.Pad(labels, b.Concat(none, missing, axis=0), np.int64(IGNORED))
    parts = b.Reshape(flat, [chunks, -1, width]), b.Reshape(marks, [chunks, -1])
    body = _body(b, nodes, made, hidden, parts, wrt[1:], trains=trains)
    attrs = {"body": body, "num_scan_inputs": 2}
    losses, *slopes = b.emit("Scan", parts, attrs, 1 + len(wrt) if trains else 1)
    total: Value = b.ReduceSum(losses, [0], keepdims=0)
    if not trains:
        return total, []
    own = b.Slice(b.Reshape(slopes[0], [-1, width]), [0], b.Shape(labels), [0])
    return total, [own, *(b.ReduceSum(v, [0], keepdims=0) for v in slopes[1:])]


def _body(
    b: Builder,
    nodes: Sequence[Node],
    made: Mapping[str, Value],
    hidden: str,
    parts: tuple[Value, Value],
    others: Sequence[Value],
    *,
    trains: bool,
) -> object:
    """The graph of one chunk: the sum of its losses and, to train, the gradients of its rows and of
    `others`.
    """
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
            slope = inner.Mul(slope, weight)
            found = gradients(inner, {scores: slope}, [x, *others])
            if any(v not in found for v in (x, *others)):
                raise UnsupportedError("the scores do not depend on what the head reads")
            outputs += [found[v] for v in (x, *others)]
    for value in outputs:
        inner.graph.outputs.append(value)
    DeadCodeElimination().run(inner.graph)  # rules have gradients of scales and biases, too
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
