"""The loss of a head that is one product, computed for a part of the words at a time.

Each part's weights are read once, for the scores and for the gradient of what they are made from.
The sums of exponentials and of the gradient so far are scaled down when a larger score comes, as in
Milakov and Gimelshein, Online normalizer calculation for softmax (2018), so that neither all scores
nor all weights are ever there at once.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float16, float32, int64
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.contrib import CONTRIB_DOMAIN
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dtype_of, rank_of, sizes_of
from flow2onnx.lowering.block_weights import BlockWeight

__all__ = ["TiledHead", "tiled_head", "tiled_loss"]

_WORDS = 2048  # of a part: few enough for a processor's cache, many enough for a product
_LOWEST = -3.0e38
# Below the largest score, from where on scores count as if they were there: e^-60 is less than
# float32 has digits for. What follows, numbers without leading digits, takes products many times as
# long.
_DEPTH = 60.0
_UNARY = ("Cast", "Identity", "Tanh")
_BINARY = ("Add", "Sub", "Mul", "Div")
_BITS = (4, 8)
_TURN = [1, 0]


@dataclass(frozen=True)
class _Change:
    """An elementwise operator; of its operands None is what was made before."""

    op_type: str
    operands: tuple[Value | None, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class RealWeight:
    """The weight of a product as real numbers: (column, word), or (word, column) if `by_words`."""

    value: Value
    by_words: bool

    def tile(self, b: Builder, start: Value, count: int) -> tuple[Value, Value]:
        """The weights of `count` words from `start` on: (column, word) and (word, column)."""
        value, axis, begin = _unwidened(self.value), int(not self.by_words), b.Reshape(start, [1])
        shape = list(sizes_of(value))
        shape[axis] = count
        part = b.Slice(value, begin, b.Add(begin, np.int64(count)), [axis])
        part = _widened(b, b.Reshape(part, shape))
        turned = b.Transpose(part, perm=[1, 0])
        return (turned, part) if self.by_words else (part, turned)

    def at(self, b: Builder, places: Value) -> Value:
        """The weights of the words at `places`, (place, column)."""
        value = _unwidened(self.value)
        if self.by_words:
            return _widened(b, b.Gather(value, places, axis=0))
        return _widened(b, b.Transpose(b.Gather(value, places, axis=1), perm=[1, 0]))


@dataclass(frozen=True, kw_only=True)
class TiledHead:
    """A product with a constant weight and what makes scores of it, element by element.

    Other operands of what comes `after` are one number, or one for each word.
    """

    weight: BlockWeight | RealWeight
    words: int
    after: tuple[_Change, ...]

    def tile(self, b: Builder, start: Value, count: int) -> tuple[Value, Value]:
        """The weights of `count` words from `start` on: (column, word) and (word, column)."""
        if isinstance(self.weight, RealWeight):
            return self.weight.tile(b, start, count)
        rows = self.weight.at(b, self.places(b, start, count), count)
        return b.Transpose(rows, perm=[1, 0]), rows

    @staticmethod
    def places(b: Builder, start: Value, count: int) -> Value:
        """The numbers of `count` words from `start` on."""
        found: Value = b.Add(b.const(np.arange(count)), start)
        return found

    def scores(self, b: Builder, raw: Value, places: Value) -> Value:
        """The head's scores from products with the words at `places`, which are the last axis."""
        value = raw
        for change in self.after:
            operands = [value if v is None else self._other(b, v, places) for v in change.operands]
            value = b.emit(change.op_type, operands, change.attributes)[0]
        return _widened(b, value)

    def _other(self, b: Builder, operand: Value, places: Value) -> Value:
        """One number, or those of the words at `places`."""
        found: Value
        if all(d == 1 for d in sizes_of(operand)):
            found = operand if rank_of(operand) == 0 else b.Squeeze(operand)
        else:
            found = b.Gather(b.Reshape(operand, [self.words]), places)
        return found


def tiled_head(nodes: Sequence[Node], made: Mapping[str, Value], hidden: str) -> TiledHead | None:
    """The head that `nodes` are, which make scores from the value `hidden`; None for any other."""
    first, *after = nodes
    found = _weight(first, made, hidden)
    if found is None:
        return None
    weight, words, bias = found
    changes = [] if bias is None else [_Change("Add", (None, bias), {})]
    value = first.outputs[0]
    for node in after:
        others = [made.get(str(v.name)) for v in node.inputs if v is not None and v is not value]
        if not _is_elementwise(node, value) or not all(_fits(v, words) for v in others):
            return None
        operands = [None if v is value else made[str(v.name)] for v in node.inputs if v is not None]
        changes.append(_Change(node.op_type, tuple(operands), dict(node.attributes)))
        value = node.outputs[0]
    return TiledHead(weight=weight, words=words, after=tuple(changes))


def _weight(
    node: Node, made: Mapping[str, Value], hidden: str
) -> tuple[BlockWeight | RealWeight, int, Value | None] | None:
    """The weight of a product of `hidden`, its count of words, and a bias if it has one."""
    operands = [None if v is None else made.get(str(v.name)) for v in node.inputs]
    if node.inputs[0] is None or node.inputs[0].name != hidden or len(operands) < 2:
        return None
    weight = operands[1]
    if node.op_type == "MatMul" and weight is not None and rank_of(weight) == 2:
        words = sizes_of(weight)[1]
        return (_real_weight(weight), words, None) if isinstance(words, int) else None
    if node.op_type != "MatMulNBits" or node.domain != CONTRIB_DOMAIN:
        return None
    _, packed, scales, points, order, bias = [*operands, *[None] * 6][:6]
    bits = int(attribute(node, "bits", 4))
    if packed is None or scales is None or order is not None or bits not in _BITS:
        return None
    rows, columns = int(attribute(node, "N")), int(attribute(node, "K"))
    whole = BlockWeight(
        packed=packed, scales=scales, points=points, bits=bits,
        block=int(attribute(node, "block_size")), rows=rows, columns=columns,
    )  # fmt: skip
    return whole, rows, bias


def _real_weight(value: Value) -> RealWeight:
    """The weight (column, word) of a product, or the table whose transpose it is."""
    node = value.producer()
    if (
        node is not None
        and node.op_type == "Transpose"
        and list(attribute(node, "perm", _TURN)) == _TURN
    ):
        assert node.inputs[0] is not None, "the checker has seen the operand"
        return RealWeight(node.inputs[0], by_words=True)
    return RealWeight(value, by_words=False)


def _is_elementwise(node: Node, value: Value) -> bool:
    """True for a node that makes a number of each number of `value`, and at most of constants."""
    uses = sum(v is value for v in node.inputs)
    if node.domain not in ("", "ai.onnx") or uses != 1:
        return False
    return node.op_type in _UNARY or (node.op_type in _BINARY and len(node.inputs) == 2)


def _fits(value: Value | None, words: int) -> bool:
    """True for one number, or one for each word."""
    if value is None or any(not isinstance(d, int) for d in sizes_of(value)):
        return False
    sizes = list(sizes_of(value))
    return math.prod(sizes) == 1 or (math.prod(sizes) == words == sizes[-1])


def _unwidened(value: Value) -> Value:
    """The value in half precision that `value` is in single precision, or itself."""
    node = value.producer()
    if node is not None and node.op_type == "Cast" and node.inputs[0] is not None:
        inner = node.inputs[0]
        return inner if dtype_of(inner) == float16 else value
    return value


def _widened(b: Builder, value: Value) -> Value:
    if dtype_of(value) == float32:
        return value
    wide: Value = b.Cast(value, to=float32)
    return wide


def tiled_loss(
    b: Builder,
    head: TiledHead,
    x: Value,
    labels: Value,
    is_counted: Value,
    *,
    tiles: int | None,
    trains: bool,
) -> tuple[Value, list[Value]]:
    """The sum of -log p(label) over the rows of `x` that count; to train, its gradient in `x` too.

    `labels`, (row,), are words, also where they do not count. The words are taken in `tiles` parts.
    """
    weight = b.Cast(is_counted, to=float32)
    top, mass, raw, *pull = _scan(b, head, x, labels, tiles, trains=trains)
    raw = b.Squeeze(raw, [1])
    own = head.scores(b, raw, labels)
    # the largest first: the difference is exact where the label is what is most likely
    above = b.Add(b.Sub(b.Squeeze(top, [1]), own), b.Log(b.Squeeze(mass, [1])))
    loss = b.ReduceSum(b.Mul(above, weight), [0], keepdims=0)
    if not trains:
        return loss, []
    rows = head.weight.at(b, labels)
    if head.after:
        rows = b.Mul(rows, b.Unsqueeze(_slope(b, own, raw), [1]))
    return loss, [b.Mul(b.Sub(b.Div(pull[0], mass), rows), b.Unsqueeze(weight, [1]))]


def _slope(b: Builder, scores: Value, raw: Value) -> Value:
    """The derivatives of scores in the products that they are made of."""
    ones = b.Expand(b.like(1.0, scores), b.Shape(scores))
    return gradients(b, {scores: ones}, [raw])[raw]


def _scan(
    b: Builder, head: TiledHead, x: Value, labels: Value, tiles: int | None, *, trains: bool
) -> Sequence[Value]:
    """For each row the largest score, the sum of exp(score - largest), the product with the label's
    weights, and to train the sum of exp(…) times the derivative of the score in `x`.
    """
    parts = min(head.words, tiles or max(1, round(head.words / _WORDS)))
    count = -(-head.words // parts)
    parts = -(-head.words // count)
    begins = np.arange(parts) * count
    starts = np.minimum(begins, head.words - count)  # the last part may reach back
    rows, width = extents(b, x)
    states = [
        b.Expand(np.float32(_LOWEST), [rows, 1]),
        b.Expand(np.float32(0), [rows, 1]),
        b.Expand(np.float32(0), [rows, 1]),
        *([b.Expand(np.float32(0), [rows, width])] if trains else []),
    ]
    body = _Body(b, head, x, b.Unsqueeze(labels, [1]), count)
    made = body.graph(trains=trains, reaches_back=bool((begins != starts).any()))
    attrs = {"body": made, "num_scan_inputs": 2}
    return b.emit("Scan", [*states, b.const(starts), b.const(begins)], attrs, len(states))


class _Body:
    """The graph of one part of the words, which begins at `start` and is new from `begin` on."""

    def __init__(self, b: Builder, head: TiledHead, x: Value, labels: Value, count: int) -> None:
        self._head, self._x, self._labels, self._count = head, x, labels, count
        name = b.unique("head")
        self._b = Builder.inside(b, name)
        rows, width = sizes_of(x)
        self._states = {
            n: self._b.input(f"{name}/{n}", [rows, size], float32)
            for n, size in (("top", 1), ("mass", 1), ("own", 1), ("pull", width))
        }
        self._start = self._b.input(f"{name}/start", [], int64)
        self._begin = self._b.input(f"{name}/begin", [], int64)

    def graph(self, *, trains: bool, reaches_back: bool) -> object:
        """The whole graph."""
        b = self._b
        with b.under("head"):
            results = self._results(trains=trains, reaches_back=reaches_back)
        if not trains:
            b.graph.inputs.remove(self._states["pull"])
        for value in results:
            b.graph.outputs.append(value)
        return b.graph

    def _results(self, *, trains: bool, reaches_back: bool) -> list[Value]:
        b, head, states = self._b, self._head, self._states
        columns, words = head.tile(b, self._start, self._count)
        raw = b.MatMul(self._x, columns)
        places = head.places(b, self._start, self._count)
        scores = head.scores(b, raw, places)
        if reaches_back:  # to words that an earlier part had
            is_new = b.GreaterOrEqual(places, self._begin)
            scores = b.Where(is_new, scores, b.like(_LOWEST, scores))
        top = b.Max(states["top"], b.ReduceMax(scores, [1], keepdims=1))
        terms = b.Exp(b.Max(b.Sub(scores, top), np.float32(-_DEPTH)))
        decay = b.Exp(b.Sub(states["top"], top))
        mass = b.Add(b.Mul(states["mass"], decay), b.ReduceSum(terms, [1], keepdims=1))
        found = [top, mass, b.Add(states["own"], self._own(raw))]
        if trains:
            slope = terms if scores is raw else gradients(b, {scores: terms}, [raw])[raw]
            found.append(b.Add(b.Mul(states["pull"], decay), b.MatMul(slope, words)))
        return found

    def _own(self, raw: Value) -> Value:
        """Of each row the product with its label's weights, 0 where these are of another part."""
        b, last = self._b, np.int64(self._count - 1)
        place = b.Sub(self._labels, self._start)
        within = b.Min(b.Max(place, np.int64(0)), last)
        is_here = b.And(b.GreaterOrEqual(self._labels, self._begin), b.LessOrEqual(place, last))
        found: Value = b.Where(is_here, b.GatherElements(raw, within, axis=1), b.like(0.0, raw))
        return found
