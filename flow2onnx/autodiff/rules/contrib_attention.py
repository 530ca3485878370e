"""Attention and rotations as the runtime has them beside the standard.

The weights of the keys are computed again on the way back, unless the node gives them.
"""

import math
from functools import cached_property

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.dtypes import int64
from flow2onnx.graph.contrib import AFTER_SOFTMAX
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.types import dims, dtype_of, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import unbroadcast
from flow2onnx.lowering.dimensions import positions

_ROTATION = "com.microsoft::RotaryEmbedding"
_HIDDEN = -1e30  # added to the score of a key that is not seen
# Below the largest score of a row, from where on scores are as good as equal: e^-60 is less than
# float32 has digits for. What is far below it comes out of the runtime's Softmax as numbers without
# leading digits, which take a processor eight times as long as any other.
_DEPTH = 60.0


@vjp(_ROTATION)
def _(b, n, g):
    # a rotation back; the tables are not trained
    _, places, cosine, sine = n.inputs
    attrs = {k: a.value for k, a in n.attributes.items()}
    return b.emit(_ROTATION, [g, places, cosine, b.Neg(sine)], attrs)[0], None, None, None


@vjp("com.microsoft::GroupQueryAttention")
def _(b, n, g, g_key=None, g_value=None, g_weights=None):
    x, key, value, *others = [*n.inputs, *[None] * 16][:16]
    _check_grouped(n, others, g_weights)
    bias, sink = others[7:9]
    count, shared = attribute(n, "num_heads"), attribute(n, "kv_num_heads")
    turn, weights = _Turn(b, n, others[4:6]), _given_weights(n)
    if weights is not None:
        size = sizes_of(n.outputs[1])[3]
        q = _heads(b, x if key is not None else b.Slice(x, [0], [count * size], [2]), count)
        k, v = n.outputs[1:3]
    elif key is None:
        parts = _heads(b, x, count + 2 * shared)
        q, k, v = b.several("Split", parts, [count, shared, shared], outputs=3, axis=1)
    else:
        q, k, v = _heads(b, x, count), _heads(b, key, shared), _heads(b, value, shared)
    q, k = turn(q, count), turn(k, shared) if weights is None else k
    scores = _Scores(b, q, k, attribute(n, "scale", 0.0), attribute(n, "softcap", 0.0), bias)
    scores.hide(lambda: _visible(b, scores, attribute(n, "local_window_size", -1), others[2]))
    if sink is None and attribute(n, "smooth_softmax", 0) == 1:
        sink = b.const(np.zeros(count), dtype_of(x))
    y, g = (_heads(b, x, count) for x in (n.outputs[0], _or_zeros(b, g, n)))
    gq, gk, gv, g_bias, g_sink = scores.gradients(v, y, g, sink, weights)
    gk = gk if g_key is None else b.Add(gk, g_key)
    gv = gv if g_value is None else b.Add(gv, g_value)
    gq, gk = turn(gq, count, back=True), turn(gk, shared, back=True)
    rest = [None] * 7 + [g_bias, g_sink]
    if key is None:
        return [_rows(b, b.Concat(gq, gk, gv, axis=1)), None, None, *rest]
    return [*(_rows(b, v) for v in (gq, gk, gv)), *rest]


def _or_zeros(b, g, n):
    """The gradient of the first output, which may have none."""
    return b.Mul(n.outputs[0], 0.0) if g is None else g


def _given_weights(n):
    """The weights of the keys that a node gives, (image, head, row, key), or None."""
    return n.outputs[3] if attribute(n, "qk_output", 0) == AFTER_SOFTMAX else None


def _check_grouped(n, others, g_weights):
    """Raise for what this gradient does not know."""
    past_key, past_value, *_ = others
    if g_weights is not None:
        raise no_gradient(n, "whose weights are read")
    if past_key is not None or past_value is not None:
        raise no_gradient(n, "with keys and values of the past")
    if any(v is not None for v in others[9:]):
        raise no_gradient(n, "with scales or norms of keys")
    if attribute(n, "causal", 1) != 1:
        raise no_gradient(n, "that is not causal")
    kind = attribute(n, "qk_output", 0)
    if kind not in (0, AFTER_SOFTMAX) or (kind and attribute(n, "softcap", 0.0)):
        raise no_gradient(n, "that gives scores, or weights of scores with a cap")


class _Turn:
    """The rotation of queries and keys by their places, or nothing where there is none."""

    def __init__(self, b, n, tables):
        self._b, self._tables = b, tables
        self._is_on = attribute(n, "do_rotary", 0) == 1
        self._interleaved = attribute(n, "rotary_interleaved", 0)
        # without a past the runtime counts places from 0, whatever position_ids says
        self._places = np.zeros(1, np.int64)

    def __call__(self, x, heads, *, back=False):
        if not self._is_on:
            return x
        cosine, sine = self._tables
        attrs = {"interleaved": self._interleaved}
        angles = sizes_of(cosine)[1]
        if 2 * angles != sizes_of(x)[3]:
            attrs |= {"rotary_embedding_dim": 2 * angles, "num_heads": heads}
        sine = self._b.Neg(sine) if back else sine
        return self._b.emit(_ROTATION, [x, self._places, cosine, sine], attrs)[0]


def _heads(b, x, count):
    """(image, row, width) as (image, head, row, size)."""
    width = sizes_of(x)[2]
    return b.Transpose(b.Reshape(x, [0, 0, count, width // count]), perm=[0, 2, 1, 3])


def _rows(b, x):
    """(image, head, row, size) as (image, row, width)."""
    count, size = sizes_of(x)[1], sizes_of(x)[3]
    return b.Reshape(b.Transpose(x, perm=[0, 2, 1, 3]), [0, 0, count * size])


def _visible(b, scores, window, last=None):
    """True where a row may look at a key, (row, key) with axes before it.

    `last` is the place of each text's last token; a row beyond it looks where that one does.
    """
    rows, width = extents(b, scores.q)[2], extents(b, scores.k)[2]
    keys, queries = b.Unsqueeze(positions(b, width), [0]), b.Unsqueeze(positions(b, rows), [1])
    if last is not None:
        queries = b.Min(queries, b.Reshape(b.Cast(last, to=int64), [-1, 1, 1, 1]))
    allowed = b.LessOrEqual(keys, queries)
    if window > 0:
        allowed = b.And(allowed, b.Less(b.Sub(queries, keys), np.int64(window)))
    return allowed


class _Scores:
    """The products of queries and keys: of all heads that share a key, rows of one product."""

    def __init__(self, b, q, k, scale, cap, bias):
        self.b, self.q, self.k, self._cap, self._bias = b, q, k, cap, bias
        self._count, size = sizes_of(q)[1], sizes_of(q)[3]
        self._shared = sizes_of(k)[1]
        self._scale = scale or 1.0 / math.sqrt(size)
        self._queries = self._together(b.Mul(q, self._scale))
        self._masks = []

    @cached_property
    def _bend(self):
        """The hyperbolic tangent of the scores by the cap, or None without one."""
        return self.b.Tanh(self.b.Mul(self._raw, 1.0 / self._cap)) if self._cap else None

    @cached_property
    def _raw(self):
        keys = self.b.Transpose(self.k, perm=[0, 1, 3, 2])
        return self._apart(self.b.MatMul(self._queries, keys))

    def _together(self, x):
        """(image, head, row, n) with the rows of the heads of one key in one: a reshape."""
        return self.b.Reshape(x, [0, self._shared, -1, *extents(self.b, x)[3:]])

    def _apart(self, x):
        images, _, rows, _ = extents(self.b, self.q)
        return self.b.Reshape(x, [images, self._count, rows, *extents(self.b, x)[3:]])

    def hide(self, allowed):
        """Let keys have no weight where `allowed()` is false."""

        def mask():
            zero = self.b.like(0.0, self.q)
            lowest = -65504.0 if dtype_of(self.q).name == "float16" else _HIDDEN
            return self.b.Where(allowed(), zero, self.b.like(lowest, self.q))

        self.add(mask)

    def add(self, mask):
        """Add the numbers `mask()` to the scores; they have no gradient."""
        self._masks.append(mask)

    def gradients(self, v, y, g, sink=None, weights=None):
        """The gradients of queries, keys, values, bias and sink; `g` is that of the result `y`.

        `weights` are those of the keys, (image, head, row, key), if they are known.
        """
        b = self.b
        # the sum over keys j of weight_ij (g_i · v_j), which is g_i · y_i
        level = b.ReduceSum(b.Mul(y, g), [3], keepdims=1)
        if weights is None:
            weights, rest = self._weights(sink)
        else:
            rest = None if sink is None else b.Sub(1.0, b.ReduceSum(weights, [3], keepdims=1))
        flat, g_rows = self._together(weights), self._together(g)
        gv = b.MatMul(b.Transpose(flat, perm=[0, 1, 3, 2]), g_rows)
        slope = b.Mul(weights, self._pull_of_keys(g, v, level))
        g_bias = None if self._bias is None else unbroadcast(b, slope, self._bias)
        if self._bend is not None:
            slope = b.Mul(slope, b.Sub(1.0, b.Mul(self._bend, self._bend)))
        inner = self._together(slope)
        gq = self._apart(b.MatMul(inner, b.Mul(self.k, self._scale)))
        gk = b.MatMul(b.Transpose(inner, perm=[0, 1, 3, 2]), self._queries)
        return gq, gk, gv, g_bias, None if sink is None else self._pull_of_sink(sink, rest, level)

    def _pull_of_keys(self, g, v, level):
        """g_i · v_j - level_i as one product with a term more, which reads all pairs once."""
        b = self.b
        ones = b.Expand(b.like(1.0, v), [*extents(b, v)[:3], 1])
        rows = self._together(b.Concat(g, b.Neg(level), axis=3))
        keys = b.Transpose(b.Concat(v, ones, axis=3), perm=[0, 1, 3, 2])
        return self._apart(b.MatMul(rows, keys))

    def _weights(self, sink):
        """The weights of the keys, and what is left of them for the sink, (image, head, row, 1)."""
        b = self.b
        scores = b.Mul(self._bend, self._cap) if self._cap else self._raw
        scores = scores if self._bias is None else b.Add(scores, self._bias)
        for mask in self._masks:
            scores = b.Add(scores, mask())
        scores = b.Max(scores, b.Sub(b.ReduceMax(scores, [3], keepdims=1), _DEPTH))
        if sink is None:
            return b.Softmax(scores, axis=-1), None
        images, _, rows, width = extents(b, scores)
        share = b.Expand(b.Reshape(sink, [1, self._count, 1, 1]), [images, self._count, rows, 1])
        whole = b.Softmax(b.Concat(scores, share, axis=3), axis=-1)
        return b.Slice(whole, [0], [width], [3]), b.Slice(whole, [-1], [2**31], [3])

    def _pull_of_sink(self, sink, rest, level):
        pulled = self.b.ReduceSum(self.b.Mul(rest, level), [0, 2, 3], keepdims=0)
        return self.b.Reshape(self.b.Neg(pulled), list(dims(sink)))


@vjp("com.microsoft::MultiHeadAttention")
def _(b, n, g):
    x, key, value, offset, mask, bias, *others = [*n.inputs, *[None] * 10][:10]
    if any(v is not None for v in others):
        raise no_gradient(n, "with keys and values of the past")
    count = attribute(n, "num_heads")
    operands, returned = _read_operands(b, n, x, key, value, count)
    if offset is not None:
        operands = _shift(b, operands, offset, count)
    q, k, v = operands
    scores = _Scores(b, q, k, attribute(n, "scale", 0.0), 0.0, bias)
    filler = attribute(n, "mask_filter_value", -10000.0)
    if mask is not None:
        hidden = b.Not(_kept_keys(b, n, mask, k))
        scores.add(lambda: b.Mul(b.Cast(hidden, to=dtype_of(x)), filler))
    if attribute(n, "unidirectional", 0):
        scores.hide(lambda: _visible(b, scores, -1))
    y, g = (_heads(b, x, count) for x in (n.outputs[0], g))
    *found, g_bias, _ = scores.gradients(v, y, g)
    g_offset = None if offset is None else b.Concat(
        *(b.Reshape(b.ReduceSum(part, [0, 2], keepdims=0), [-1]) for part in found), axis=0
    )  # fmt: skip
    return [*returned(found), g_offset, None, g_bias]


def _read_operands(b, n, x, key, value, count):
    """Queries, keys and values by head, and how their gradients become those of the inputs."""
    if rank_of(x) == 5 or key is None or rank_of(key) == 5:
        raise no_gradient(n, "of packed queries, keys and values")
    q = _heads(b, x, count)
    if rank_of(key) == 4:
        return [q, key, value], lambda gs: [_rows(b, gs[0]), gs[1], gs[2]]
    pair = [_heads(b, key, count), _heads(b, value, count)]
    return [q, *pair], lambda gs: [_rows(b, part) for part in gs]


def _shift(b, operands, offset, count):
    """Queries, keys and values with their parts of a vector added."""
    sizes = [count * sizes_of(v)[3] for v in operands]
    parts = b.several("Split", offset, sizes, outputs=3, axis=0)
    return [b.Add(v, b.Reshape(p, [1, count, 1, -1])) for v, p in zip(operands, parts, strict=True)]


def _kept_keys(b, n, mask, k):
    """True for the keys that a mask leaves: (image, 1, row or 1, key)."""
    if rank_of(mask) == 1:
        keys = b.Cast(positions(b, extents(b, k)[2]), to=dtype_of(mask))
        kept = b.Less(b.Unsqueeze(keys, [0]), b.Unsqueeze(mask, [1]))
    elif rank_of(mask) in (2, 3):
        kept = b.Greater(mask, b.like(0, mask))
    else:
        raise no_gradient(n, "with such a mask")
    return b.Unsqueeze(kept, [1, 2] if rank_of(kept) == 2 else [1])
