"""Gathers: the gradient scatters back and adds up what was read twice."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.dtypes import int64
from flow2onnx.graph import added_up, dims, dtype_of, rank_of, zeros


@vjp("Gather")
def _(b, n, g):
    x, indices = n.inputs
    axis, rank = attribute(n, "axis", 0) % rank_of(x), rank_of(x)
    k = rank_of(indices)
    # gathered axes first, so that each index tuple names one slice of x
    front = b.Transpose(
        g, perm=[*range(axis, axis + k), *range(axis), *range(axis + k, rank_of(g))]
    )
    swapped = [axis, *range(axis), *range(axis + 1, rank)]
    shape = [dims(x)[i] for i in swapped]
    rows = _wrapped(b, b.Unsqueeze(_int64(b, indices), [-1]), dims(x)[axis])
    added = added_up(b, "ScatterND", shape, rows, front)
    if axis == 0:
        return added, None
    return b.Transpose(added, perm=[int(i) for i in np.argsort(swapped)]), None


def _int64(b, indices):
    return indices if dtype_of(indices) == int64 else b.Cast(indices, to=int64)


def _wrapped(b, indices, extent):
    """Indices counted from the front."""
    return b.Where(b.Less(indices, 0), b.Add(indices, extent), indices)


@vjp("GatherND")
def _(b, n, g):
    x, indices = n.inputs
    batch = attribute(n, "batch_dims", 0)
    if batch:
        lead = [np.arange(d, dtype=np.int64) for d in dims(indices)[:batch]]
        grids = np.meshgrid(*lead, indexing="ij")
        prefix = np.stack(grids, -1)
        prefix = prefix.reshape(*prefix.shape[:-1], *[1] * (rank_of(indices) - batch - 1), batch)
        full = b.Expand(b.const(prefix), [*dims(indices)[:-1], batch])
        indices = b.Concat(full, indices, axis=-1)
    return added_up(b, "ScatterND", dims(x), indices, g), None


@vjp("GatherElements")
def _(b, n, g):
    x, indices = n.inputs
    axis = attribute(n, "axis", 0)
    return added_up(b, "ScatterElements", dims(x), indices, g, axis=axis), None


@vjp("ScatterElements")
def _(b, n, g):
    _, indices, updates = n.inputs
    axis, how = attribute(n, "axis", 0), attribute(n, "reduction", "none")
    if how not in ("none", "add"):
        raise no_gradient(n, f"with reduction {how}")
    blank = zeros(b, dims(updates), dtype_of(updates))
    gx = g if how == "add" else b.ScatterElements(g, indices, blank, axis=axis)
    return gx, None, b.GatherElements(g, indices, axis=axis)


@vjp("ScatterND")
def _(b, n, g):
    _, indices, updates = n.inputs
    how = attribute(n, "reduction", "none")
    if how not in ("none", "add"):
        raise no_gradient(n, f"with reduction {how}")
    blank = zeros(b, dims(updates), dtype_of(updates))
    gx = g if how == "add" else b.ScatterND(g, indices, blank)
    return gx, None, b.GatherND(g, indices)
