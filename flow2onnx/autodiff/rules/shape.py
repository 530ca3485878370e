"""Operators that move elements about without changing them."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph import added_up, constant_of, dims, dtype_of, rank_of, unbroadcast


@vjp("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _(b, n, g):
    return b.Reshape(g, list(dims(n.inputs[0])))


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
    sizes = [dims(x)[axis] for x in n.inputs]
    if len(sizes) == 1:
        return g
    return b.several("Split", g, sizes, axis=axis, outputs=len(sizes))


@vjp("Split")
def _(b, n, *gs):
    parts = [
        b.const(np.zeros(dims(y), dtype_of(y).numpy)) if g is None else g
        for g, y in zip(gs, n.outputs, strict=True)
    ]
    return b.Concat(*parts, axis=attribute(n, "axis", 0))


@vjp("Slice")
def _(b, n, g):
    x = n.inputs[0]
    starts, ends, axes, steps = (
        None if v is None else [int(i) for i in constant_of(v)]
        for v in [*n.inputs[1:], None, None][:4]
    )
    axes = list(range(len(starts))) if axes is None else [a % rank_of(x) for a in axes]
    steps = [1] * len(starts) if steps is None else steps
    picked = [np.arange(d) for d in dims(x)]
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        picked[axis] = _positions(dims(x)[axis], start, end, step)
    if all(s == 1 for s in steps):
        before = [int(p[0]) if p.size else 0 for p in picked]
        after = [d - f - p.size for d, f, p in zip(dims(x), before, picked, strict=True)]
        return b.Pad(g, before + after)
    for axis in axes:
        g = _spread(b, g, axis, picked[axis], dims(x)[axis])
    return g


def _positions(extent, start, end, step):
    """The indices a slice takes; a start before the first element means the first."""
    start = start + extent if start < 0 else start
    end = end + extent if -extent <= end < 0 else end
    if step < 0:
        return np.arange(min(max(start, 0), extent - 1), max(end, -1), step)
    return np.arange(max(start, 0), min(end, extent), step)


def _spread(b, g, axis, positions, extent):
    """Zeros of length `extent` along `axis`, with `g` at `positions`, by one gather."""
    source = np.full(extent, positions.size, np.int64)
    source[positions] = np.arange(positions.size)
    rank = rank_of(g)
    pads = [0] * (2 * rank)
    pads[rank + axis] = 1
    return b.Gather(b.Pad(g, pads), source, axis=axis)


@vjp("Pad")
def _(b, n, g):
    x, given, _, axes = [*n.inputs, None, None][:4]
    axes = range(rank_of(x)) if axes is None else [int(a) % rank_of(x) for a in constant_of(axes)]
    pads = [int(p) for p in constant_of(given)]
    before = [0] * rank_of(x)
    after = [0] * rank_of(x)
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[i + len(axes)]
    mode = attribute(n, "mode", "constant")
    if mode != "constant":
        return _unpad(b, n, g, before, after, mode)
    if min(pads) < 0:
        return b.Pad(g, [-p for p in before + after])
    return b.Slice(g, before, [f + d for f, d in zip(before, dims(x), strict=True)])


def _unpad(b, n, g, before, after, mode):
    """Every element gets the gradients of its copies, one axis after the other."""
    if min(before + after) < 0:
        raise no_gradient(n, f"in mode {mode} that crops")
    for axis, (first, last, extent) in enumerate(
        zip(before, after, dims(n.inputs[0]), strict=True)
    ):
        if first or last:
            origin = np.pad(np.arange(extent), (first, last), mode=mode)
            shape = [extent if i == axis else d for i, d in enumerate(dims(g))]
            along = origin.reshape(-1, *[1] * (rank_of(g) - axis - 1))
            where = b.Expand(b.const(along), list(dims(g)))
            g = added_up(b, "ScatterElements", shape, where, g, axis=axis)
    return g


@vjp("Tile")
def _(b, n, g):
    x = n.inputs[0]
    repeats = [int(r) for r in constant_of(n.inputs[1])]
    split = [d for pair in zip(repeats, dims(x), strict=True) for d in pair]
    return b.ReduceSum(b.Reshape(g, split), list(range(0, 2 * rank_of(x), 2)), keepdims=0)
