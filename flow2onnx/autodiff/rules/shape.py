"""Operators that move elements about without changing them."""

import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static, rank_of, sizes_of
from flow2onnx.lowering.broadcasts import reshape_to, unbroadcast
from flow2onnx.lowering.dimensions import check_constant, positions
from flow2onnx.lowering.scatters import scatter_sum, zeros

# What ends a slice where the dimension ends.
_END = 2**63 - 1


@vjp("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _(b, n, g):
    return reshape_to(b, g, sizes_of(n.inputs[0]))


@vjp("Transpose")
def _(b, n, g):
    rank = rank_of(g)
    perm = attribute(n, "perm", list(reversed(range(rank))))
    return b.Transpose(g, perm=[int(i) for i in np.argsort(perm)])


@vjp("Expand")
def _(b, n, g):
    return unbroadcast(b, g, n.inputs[0]), None


@vjp("Concat")
def _(b, n, g):
    axis = attribute(n, "axis") % rank_of(g)
    sizes = [sizes_of(x)[axis] for x in n.inputs]
    if len(sizes) == 1:
        return g
    return b.several("Split", g, sizes, axis=axis, outputs=len(sizes))


@vjp("Split")
def _(b, n, *gs):
    parts = [_zeros_like(b, y) if g is None else g for g, y in zip(gs, n.outputs, strict=True)]
    return b.Concat(*parts, axis=attribute(n, "axis", 0))


def _zeros_like(b, y):
    """Zeros in the shape of a value."""
    if not is_static(y):
        return zeros(b, sizes_of(y), dtype_of(y))
    check_constant(*dims(y))
    return b.const(np.zeros(dims(y), dtype_of(y).numpy))


@vjp("Slice")
def _(b, n, g):
    x = n.inputs[0]
    if not _is_known(n):
        return _slice_at_run_time(b, n, g)
    starts, ends, axes, steps = (
        None if v is None else [int(i) for i in constant_of(v)]
        for v in [*n.inputs[1:], None, None][:4]
    )
    axes = list(range(len(starts))) if axes is None else [a % rank_of(x) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    lengths = sizes_of(x)
    picked = {
        axis: _positions(lengths[axis], start, end, step)
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True)
    }
    if all(s == 1 for s in steps):
        before, after = [0] * rank_of(x), [0] * rank_of(x)
        for axis, p in picked.items():
            before[axis] = p[0] if p else 0
            after[axis] = lengths[axis] - before[axis] - len(p)
        return b.Pad(g, before + after)
    for axis in axes:
        check_constant(lengths[axis])
        g = _place_along(b, g, axis, picked[axis], lengths[axis])
    return g


def _is_known(n):
    """True if a slice takes the same positions of the same extents at every run."""
    operands = [constant_of(v) for v in n.inputs[1:] if v is not None]
    if any(v is None for v in operands):
        return False
    given = constant_of(n.inputs[3]) if len(n.inputs) > 3 else None
    axes = range(operands[0].size) if given is None else given
    return all(isinstance(sizes_of(n.inputs[0])[int(a)], int) for a in axes)


def _slice_at_run_time(b, n, g):
    """Every element back to its place: the same slice of the places says which."""
    x = n.inputs[0]
    count = b.Size(x)
    places = reshape_to(b, b.Range(np.int64(0), count, np.int64(1)), sizes_of(x))
    taken = b.Reshape(b.emit("Slice", (places, *n.inputs[1:]))[0], [-1, 1])
    nothing = b.ConstantOfShape(b.Reshape(count, [1]), value=np.zeros(1, dtype_of(g).numpy))
    return reshape_to(b, b.ScatterND(nothing, taken, b.Reshape(g, [-1])), sizes_of(x))


def _positions(extent, start, end, step):
    """The indices a slice takes; a start before the first element means the first."""
    start = start + extent if start < 0 else start
    end = end + extent if -extent <= end < 0 else end
    if step < 0:
        return range(min(max(start, 0), extent - 1), max(end, -1), step)
    return range(max(start, 0), min(end, extent), step)


def _place_along(b, g, axis, places, extent):
    """Zeros of length `extent` along `axis`, with `g` at `places`, by one gather."""
    source = np.full(extent, len(places), np.int64)
    source[np.asarray(places, np.int64)] = np.arange(len(places))
    rank = rank_of(g)
    pads = [0] * (2 * rank)
    pads[rank + axis] = 1
    return b.Gather(b.Pad(g, pads), source, axis=axis)


@vjp("Pad")
def _(b, n, g):
    x, given, _, axes = [*n.inputs, None, None][:4]
    is_constant, known = attribute(n, "mode", "constant") == "constant", constant_of(given)
    crops = known is None or known.min(initial=0) < 0
    if known is None or (axes is not None and constant_of(axes) is None):
        return _unpad_by_places(b, n, g)
    if crops and not is_constant:
        return _unpad_by_places(b, n, g)
    axes = range(rank_of(x)) if axes is None else [int(a) % rank_of(x) for a in constant_of(axes)]
    pads = [int(p) for p in known]
    before = [0] * rank_of(x)
    after = [0] * rank_of(x)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    if not is_constant:
        return _unpad(b, n, g, before, after, attribute(n, "mode"))
    if crops:
        return b.Pad(g, [-p for p in before + after])
    if is_static(x):
        return b.Slice(g, before, [f + d for f, d in zip(before, dims(x), strict=True)])
    return b.Slice(g, before, [-a if a else _END for a in after])


def _unpad(b, n, g, before, after, mode):
    """Every element gets the gradients of its copies, one axis after the other."""
    for axis, (first, last, extent) in enumerate(
        zip(before, after, extents(b, n.inputs[0]), strict=True)
    ):
        if first or last:
            shape = [extent if i == axis else d for i, d in enumerate(extents(b, g))]
            along = [-1, *[1] * (rank_of(g) - axis - 1)]
            if is_known(extent):
                check_constant(extent + first + last)
                origin = b.const(np.pad(np.arange(extent), (first, last), mode=mode).reshape(along))
            else:
                every = positions(b, extent)
                origin = b.Reshape(b.Pad(every, [first, last], mode=mode), along)
            where = b.Expand(origin, list(extents(b, g)))
            g = scatter_sum(b, "ScatterElements", shape, where, g, axis=axis)
    return g


def _unpad_by_places(b, n, g):
    """Every element gets the gradients of its copies: the places, padded alike, say which they are.

    What is filled in goes to one more place, and from there nowhere.
    """
    x, pads, _, axes = [*n.inputs, None, None][:4]
    count, mode = b.Size(x), attribute(n, "mode", "constant")
    places = reshape_to(b, b.Range(np.int64(0), count, np.int64(1)), sizes_of(x))
    filled = count if mode == "constant" else None
    places = b.emit("Pad", (places, pads, filled, axes), {"mode": mode})[0]
    total = math.prod(extents(b, x))
    sums = scatter_sum(
        b, "ScatterElements", [total + 1], b.Reshape(places, [-1]), b.Reshape(g, [-1]), axis=0
    )
    return reshape_to(b, b.Slice(sums, [0], b.Reshape(count, [1])), sizes_of(x))


@vjp("Tile")
def _(b, n, g):
    x, repeats = n.inputs[0], constant_of(n.inputs[1])
    if repeats is None:
        return _untile_at_run_time(b, n, g)
    repeats = [int(r) for r in repeats]
    split = [d for pair in zip(repeats, sizes_of(x), strict=True) for d in pair]
    return b.ReduceSum(reshape_to(b, g, split), list(range(0, 2 * rank_of(x), 2)), keepdims=0)


def _untile_at_run_time(b, n, g):
    """The same for repeats known at run time only."""
    x, rank = n.inputs[0], rank_of(n.inputs[0])
    pairs = [b.Unsqueeze(v, [1]) for v in (n.inputs[1], b.Shape(x))]
    split = b.Reshape(g, b.Reshape(b.Concat(*pairs, axis=1), [2 * rank]))
    total = b.ReduceSum(split, list(range(0, 2 * rank, 2)), keepdims=0)
    return reshape_to(b, total, sizes_of(x))
