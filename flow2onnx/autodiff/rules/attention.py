"""Attention, and the rotation of its queries and keys."""

import functools
import math

import ml_dtypes
import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, vjp
from flow2onnx.dtypes import bool_, by_code
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dtype_of, rank_of
from flow2onnx.lowering.dimensions import as_number, check_constant, positions
from flow2onnx.lowering.scatters import scatter_sum


@expansion("Attention")
def _(b, n):
    q, k, v, mask, past_key, past_value, counts = [*n.inputs, *[None] * 4][:7]
    is_flat = rank_of(q) == 3
    if is_flat:
        heads = attribute(n, "kv_num_heads")
        q = _split_heads(b, q, attribute(n, "q_num_heads"))
        k, v = _split_heads(b, k, heads), _split_heads(b, v, heads)
    past = 0
    if past_key is not None:
        past = extents(b, past_key)[2]
        k, v = b.Concat(past_key, k, axis=2), b.Concat(past_value, v, axis=2)
    images, count, rows, size = extents(b, q)
    _, key_heads, width, _ = extents(b, k)
    # the queries of all heads that share a key are rows of one product
    shared = [images, key_heads, -1, size]
    keys = b.Transpose(k, perm=[0, 1, 3, 2])
    raw = b.MatMul(b.Reshape(_scale(b, n, q, size), shared), keys)
    raw = b.Reshape(raw, [images, count, rows, width])
    stages, is_dead = _score_stages(b, n, raw, mask, counts, past)
    weights = _attention_weights(b, n, stages[2], is_dead)
    y = b.MatMul(b.Reshape(weights, [images, key_heads, -1, width]), v)
    y = b.Reshape(y, [images, count, rows, extents(b, v)[3]])
    if is_flat:
        y = b.Reshape(b.Transpose(y, perm=[0, 2, 1, 3]), [images, rows, -1])
    mode = attribute(n, "qk_matmul_output_mode", 0)
    return [y, k, v, [*stages, weights][mode]][: len(n.outputs)]


def _scale(b, n, q, size):
    """The queries times the attribute, or divided by the root of their size."""
    scale = attribute(n, "scale", None)
    if not scale and not is_known(size):
        return b.Div(q, b.Sqrt(as_number(b, size, dtype_of(q))))
    return b.Mul(q, scale or 1.0 / math.sqrt(size))


def _split_heads(b, x, heads):
    images, rows, _ = extents(b, x)
    return b.Transpose(b.Reshape(x, [images, rows, heads, -1]), perm=[0, 2, 1, 3])


def _score_stages(b, n, raw, mask, counts, past):
    """The scores as they are, capped, and with what is not looked at out; and rows without any."""
    cap, capped = attribute(n, "softcap", 0.0), raw
    if cap:
        capped = b.Mul(b.Tanh(b.Mul(raw, 1.0 / cap)), cap)
    added = _additive_mask(b, mask, raw)
    masked = capped if added is None else b.Add(capped, added)
    allowed = _visible_keys(b, n, mask, counts, past, raw)
    lowest = b.like(-np.inf, raw)
    if allowed is not None:
        masked = b.Where(allowed, masked, lowest)
    stages = [raw, capped, masked]
    if mask is None and counts is None and not _has_window(n):
        return stages, None
    # a row that looks at nothing gives 0, as the standard says; the runtime takes the lowest number
    # of a mask for minus infinity
    least = b.like(float(ml_dtypes.finfo(dtype_of(raw).numpy).min), raw)
    return stages, b.LessOrEqual(b.ReduceMax(masked, [3], keepdims=1), least)


def _has_window(n):
    return bool(_windows(n))


def _additive_mask(b, mask, raw):
    """A mask of numbers, as wide as the scores."""
    if mask is None or dtype_of(mask) == bool_:
        return None
    return _pad_mask(b, mask, extents(b, raw)[3], b.like(-np.inf, mask))


def _pad_mask(b, mask, width, content):
    *lead, found = extents(b, mask)
    if found == width:
        return mask
    return b.Concat(mask, b.Expand(content, [*lead, width - found]), axis=len(lead))


def _visible_keys(b, n, mask, counts, past, raw):
    """True where a query may look at a key; None if all may at all."""
    rows, width = extents(b, raw)[2:]
    conditions = []
    if mask is not None and dtype_of(mask) == bool_:
        conditions.append(_pad_mask(b, mask, width, b.const(False, bool_)))
    known = None if counts is None else b.Reshape(counts, [-1, 1, 1, 1])
    if known is not None:
        if is_known(width):
            check_constant(width)
            keys = b.const(np.arange(width)[None, None, None])
        else:
            keys = b.Unsqueeze(positions(b, width), [0, 1, 2])
        conditions.append(b.Less(keys, known))
    if is_known(rows, width, past):
        conditions += _known_limits(b, n, known, (rows, width, past))
    else:
        conditions += _limits_at_run_time(b, n, known, (rows, width, past))
    return functools.reduce(b.And, conditions) if conditions else None


def _known_limits(b, n, known, sizes):
    """True where a key is near enough to the query's own place."""
    rows, width, past = sizes
    check_constant(rows, width)
    apart = np.arange(width)[None] - np.arange(rows)[:, None]
    if attribute(n, "is_causal", 0):
        # the last query looks at the last key that there is
        if known is None:
            yield b.const(apart <= past)
        else:
            yield b.LessOrEqual(b.const((apart + rows)[None, None]), known)
    for sign, size in _windows(n):
        if known is None:
            yield b.const(sign * (apart - past) <= size)
        else:  # the place of a query is known - rows + its number
            edge = b.const((apart + rows - sign * size)[None, None])
            yield b.LessOrEqual(edge, known) if sign > 0 else b.LessOrEqual(known, edge)


def _limits_at_run_time(b, n, known, sizes):
    """`_known_limits` over rows and keys whose number is known at run time only."""
    rows, width, past = sizes
    keys, queries = b.Unsqueeze(positions(b, width), [0]), b.Unsqueeze(positions(b, rows), [1])
    apart = b.Sub(keys, queries)
    ahead = b.Unsqueeze(b.Add(apart, b.vector([rows])), [0, 1])
    if attribute(n, "is_causal", 0):
        if known is None:
            yield b.LessOrEqual(apart, b.vector([past]))
        else:
            yield b.LessOrEqual(ahead, known)
    for sign, size in _windows(n):
        if known is None:
            near = b.Mul(b.Sub(apart, b.vector([past])), sign)
            yield b.LessOrEqual(near, np.int64(size))
        else:
            edge = b.Sub(ahead, sign * size)
            yield b.LessOrEqual(edge, known) if sign > 0 else b.LessOrEqual(known, edge)


def _windows(n):
    """The sides on which a window ends, and how far away: -1 is before the query."""
    sizes = ((-1, "left_window_size"), (1, "right_window_size"))
    return [(sign, attribute(n, k, -1)) for sign, k in sizes if attribute(n, k, -1) >= 0]


def _attention_weights(b, n, scores, is_dead):
    """The weights of the keys: zeros in a row that looks at none."""
    own, code = dtype_of(scores), attribute(n, "softmax_precision", None)
    wide = b.Cast(scores, to=by_code(code)) if code and by_code(code) != own else scores
    if is_dead is None:
        weights = b.Softmax(wide, axis=-1)
    else:
        zero = b.like(0.0, wide)
        weights = b.Where(is_dead, zero, b.Softmax(b.Where(is_dead, zero, wide), axis=-1))
    return weights if wide is scores else b.Cast(weights, to=own)


@vjp("RotaryEmbedding")
def _(b, n, g):
    # a rotation back; the tables take part only where they are computed
    x, cosine, sine, *places = n.inputs
    attrs = {k: a.value for k, a in n.attributes.items()}
    gx = b.emit("RotaryEmbedding", [g, cosine, b.Neg(sine), *places], attrs)[0]
    if constant_of(cosine) is not None and constant_of(sine) is not None:
        return gx, None, None, None
    size = extents(b, cosine)[-1]
    (x_near, x_far), (g_near, g_far) = (_rotation_halves(b, n, v, size) for v in (x, g))
    g_cosine = b.Add(b.Mul(g_near, x_near), b.Mul(g_far, x_far))
    g_sine = b.Sub(b.Mul(g_far, x_near), b.Mul(g_near, x_far))
    found = [b.ReduceSum(v, [1], keepdims=0) for v in (g_cosine, g_sine)]
    if places and places[0] is not None:
        rows = b.Unsqueeze(places[0], [2])
        found = [scatter_sum(b, "ScatterND", extents(b, cosine), rows, v) for v in found]
    return gx, *found, None


def _rotation_halves(b, n, x, size):
    """The two halves of what is rotated: (image, head, row, angle)."""
    if rank_of(x) == 3:
        x = _split_heads(b, x, attribute(n, "num_heads"))
    if attribute(n, "interleaved", 0):
        return tuple(b.Slice(x, [i], [2 * size], [3], [2]) for i in range(2))
    return tuple(b.Slice(x, [i * size], [(i + 1) * size], [3]) for i in range(2))
