"""Gathers: the gradient scatters back and adds up what was read twice."""

import numpy as np

from flow2onnx.dtypes import int64
from flow2onnx.grad.registry import attribute, vjp
from flow2onnx.graph import dims, dtype_of, rank_of


def _zeros(b, x):
    # ConstantOfShape keeps large zeros out of the file
    return b.ConstantOfShape(list(dims(x)), value=np.zeros(1, dtype_of(x).numpy))


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
    zeros = b.ConstantOfShape(shape, value=np.zeros(1, dtype_of(x).numpy))
    rows = b.Unsqueeze(_int64(b, indices), [-1])
    added = b.ScatterND(zeros, _wrapped(b, rows, dims(x)[axis]), front, reduction="add")
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
    return b.ScatterND(_zeros(b, x), indices, g, reduction="add"), None


@vjp("GatherElements")
def _(b, n, g):
    x, indices = n.inputs
    axis = attribute(n, "axis", 0)
    return b.ScatterElements(_zeros(b, x), indices, g, axis=axis, reduction="add"), None


@vjp("ScatterElements")
def _(b, n, g):
    _, indices, updates = n.inputs
    axis, how = attribute(n, "axis", 0), attribute(n, "reduction", "none")
    assert how in ("none", "add"), f"ScatterElements({how}) has no gradient"
    zeros = b.ConstantOfShape(list(dims(updates)), value=np.zeros(1, dtype_of(updates).numpy))
    gx = g if how == "add" else b.ScatterElements(g, indices, zeros, axis=axis)
    return gx, None, b.GatherElements(g, indices, axis=axis)


@vjp("ScatterND")
def _(b, n, g):
    _, indices, updates = n.inputs
    how = attribute(n, "reduction", "none")
    assert how in ("none", "add"), f"ScatterND({how}) has no gradient"
    zeros = b.ConstantOfShape(list(dims(updates)), value=np.zeros(1, dtype_of(updates).numpy))
    gx = g if how == "add" else b.ScatterND(g, indices, zeros)
    return gx, None, b.GatherND(g, indices)
