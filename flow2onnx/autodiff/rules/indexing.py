"""Gathers: the gradient scatters back and adds up what was read twice."""

import math
from dataclasses import dataclass

import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, no_gradient, vjp
from flow2onnx.dtypes import float32, int64
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dims, dtype_of, is_static, rank_of, sizes_of
from flow2onnx.lowering.dimensions import check_constant, positions
from flow2onnx.lowering.forms import Lowering
from flow2onnx.lowering.scatters import scatter_add, scatter_sum, zeros


@vjp("Gather")
def _(b, n, g):
    x, indices = n.inputs
    axis, rank = attribute(n, "axis", 0) % rank_of(x), rank_of(x)
    k = rank_of(indices)
    if _is_one_place(x, axis, indices):
        return _place(
            b, x, axis, int(constant_of(indices).item()), g if k else b.Unsqueeze(g, [axis])
        ), None
    rows = _wrap_indices(b, b.Unsqueeze(_as_int64(b, indices), [-1]), sizes_of(x)[axis])
    if axis == 0:
        return _row_gradient(b, _Table(tuple(sizes_of(x))), rows, g), None
    # gathered axes first, so that each index tuple names one slice of x
    front = b.Transpose(
        g, perm=[*range(axis, axis + k), *range(axis), *range(axis + k, rank_of(g))]
    )
    swapped = [axis, *range(axis), *range(axis + 1, rank)]
    shape = [sizes_of(x)[i] for i in swapped]
    added = _row_gradient(b, _Table(tuple(shape)), rows, front)
    return b.Transpose(added, perm=[int(i) for i in np.argsort(swapped)]), None


def _is_one_place(x, axis, indices):
    """True if one known index is read, as a slice of one element, of what is no table of weights.

    Those of weights stay rows, which an update can take by themselves.
    """
    known = constant_of(indices)
    is_slice = known is not None and known.size == 1 and rank_of(indices) <= 1
    return is_slice and x.producer() is not None and isinstance(sizes_of(x)[axis], int)


def _place(b, x, axis, index, g):
    """The gradient of a slice of one element at an index of an axis."""
    rank, length = rank_of(x), sizes_of(x)[axis]
    pads = [0] * (2 * rank)
    pads[axis] = index % length
    pads[rank + axis] = length - 1 - pads[axis]
    return b.Pad(g, pads)


@vjp("OneHot")
def _(b, n, g):
    indices, depth, _ = n.inputs
    # in the type of g: the runtime has no kernel for every pair of indices and values
    is_on = b.OneHot(indices, depth, b.const([0, 1], dtype_of(g)), axis=attribute(n, "axis", -1))
    on = b.ReduceSum(b.Mul(g, is_on), keepdims=0)
    off = b.Sub(b.ReduceSum(g, keepdims=0), on)
    return None, None, b.Concat(b.Unsqueeze(off, [0]), b.Unsqueeze(on, [0]), axis=0)


@dataclass(frozen=True)
class _Table:
    """The table that rows were gathered from."""

    shape: tuple[int | str, ...]


# So few rows that a product with their places is no more work than reading the gradient.
_FEW_ROWS = 16


def _may_select(at, rows, g):
    return dtype_of(g) == float32 and is_static(g) and all(isinstance(d, int) for d in at.shape)


def _pick_form(at, rows, g):
    few = _may_select(at, rows, g) and at.shape[0] <= _FEW_ROWS
    return "selections" if few and math.prod(dims(g)) > 0 else "scatter"


_row_gradient = Lowering("Gather.dX", _pick_form, limit=lambda at: at.shape[0])


@_row_gradient.form("scatter")
def _(b, at, rows, g):
    return scatter_sum(b, "ScatterND", at.shape, rows, g)


@_row_gradient.form("selections", when=_may_select)
def _(b, at, rows, g):
    """A product of the gradient with which row each of its slices was gathered from."""
    count = math.prod(dims(rows))
    places = b.Reshape(rows, [1, count])
    check_constant(at.shape[0])
    chosen = b.Equal(np.arange(at.shape[0], dtype=np.int64)[:, None], places)
    total = b.MatMul(b.Cast(chosen, to=float32), b.Reshape(g, [count, -1]))
    return b.Reshape(total, list(at.shape))


def _as_int64(b, indices):
    return indices if dtype_of(indices) == int64 else b.Cast(indices, to=int64)


def _wrap_indices(b, indices, extent):
    """Indices counted from the front."""
    size = b.vector([extent]) if isinstance(extent, str) else extent
    return b.Where(b.Less(indices, 0), b.Add(indices, size), indices)


@vjp("GatherND")
def _(b, n, g):
    x, indices = n.inputs
    batch = attribute(n, "batch_dims", 0)
    if batch:
        full = b.Expand(_batch_places(b, indices, batch), [*extents(b, indices)[:-1], batch])
        indices = b.Concat(full, indices, axis=-1)
    return scatter_sum(b, "ScatterND", sizes_of(x), indices, g), None


def _batch_places(b, indices, batch):
    """The place of each row of indices on its batch axes: (batch axes, ones, coordinate)."""
    lengths, ones = extents(b, indices)[:batch], [1] * (rank_of(indices) - batch - 1)
    if is_known(*lengths):
        check_constant(*lengths)
        lead = [np.arange(d, dtype=np.int64) for d in lengths]
        prefix = np.stack(np.meshgrid(*lead, indexing="ij"), -1)
        return b.const(prefix.reshape(*prefix.shape[:-1], *ones, batch))
    grids = [
        b.Expand(
            b.Reshape(positions(b, d), [-1 if i == axis else 1 for i in range(batch)]),
            list(lengths),
        )
        for axis, d in enumerate(lengths)
    ]
    stacked = b.Concat(*(b.Unsqueeze(v, [batch]) for v in grids), axis=batch)
    return b.Unsqueeze(stacked, list(range(batch, batch + len(ones)))) if ones else stacked


@vjp("GatherElements")
def _(b, n, g):
    x, indices = n.inputs
    axis = attribute(n, "axis", 0)
    return scatter_sum(b, "ScatterElements", sizes_of(x), indices, g, axis=axis), None


@vjp("TopK")
def _(b, n, g, _positions=None):
    x, axis = n.inputs[0], attribute(n, "axis", -1)
    return scatter_sum(b, "ScatterElements", sizes_of(x), n.outputs[1], g, axis=axis), None


@vjp("Trilu")
def _(b, n, g):
    return b.Trilu(g, *n.inputs[1:], upper=attribute(n, "upper", 1)), None


@vjp("ReverseSequence")
def _(b, n, g):
    # turned twice is as before
    axes = {k: attribute(n, k, d) for k, d in (("batch_axis", 1), ("time_axis", 0))}
    return b.ReverseSequence(g, n.inputs[1], **axes), None


@vjp("ScatterElements")
def _(b, n, g):
    return _scatter_gradient(
        b, n, g, "ScatterElements", "GatherElements", axis=attribute(n, "axis", 0)
    )


@vjp("ScatterND")
def _(b, n, g):
    return _scatter_gradient(b, n, g, "ScatterND", "GatherND")


def _scatter_gradient(b, n, g, scatter, gather, **axis):
    _, indices, updates = n.inputs
    how = attribute(n, "reduction", "none")
    places = b.emit(gather, (g, indices), axis)[0]
    if how == "add":
        return g, None, places
    if how == "none":
        blank = zeros(b, sizes_of(updates), dtype_of(updates))
        return b.emit(scatter, (g, indices, blank), axis)[0], None, places
    form = _product_gradient if how == "mul" else _extreme_gradient
    return form(b, n, g, scatter, gather, axis)


def _product_gradient(b, n, g, scatter, gather, axis):
    """Each factor gets the product of the others, which is 0 where one of them is."""
    x, indices, updates = n.inputs
    zero, one = b.like(0.0, x), b.like(1.0, x)
    (zeros_x, safe_x), (zeros_u, safe_u) = (
        (b.Cast(b.Equal(v, 0.0), to=dtype_of(x)), b.Where(b.Equal(v, 0.0), one, v))
        for v in (x, updates)
    )
    product = b.emit(scatter, (safe_x, indices, safe_u), {**axis, "reduction": "mul"})[0]
    count = scatter_add(b, scatter, zeros_x, indices, zeros_u, **axis)

    def slope(whole, number, own, safe, back):
        rest = b.Where(b.Equal(b.Sub(number, own), 0.0), b.Div(whole, safe), zero)
        return b.Mul(back, rest)

    whole, number, back = (b.emit(gather, (v, indices), axis)[0] for v in (product, count, g))
    return (
        slope(product, count, zeros_x, safe_x, g),
        None,
        slope(whole, number, zeros_u, safe_u, back),
    )


def _extreme_gradient(b, n, g, scatter, gather, axis):
    """Ties share equally, as in torch."""
    x, indices, updates = n.inputs
    y = n.outputs[0]
    hit_x = b.Cast(b.Equal(x, y), to=dtype_of(x))
    hit_u = b.Cast(b.Equal(updates, b.emit(gather, (y, indices), axis)[0]), to=dtype_of(x))
    share = b.Div(g, scatter_add(b, scatter, hit_x, indices, hit_u, **axis))
    return b.Mul(hit_x, share), None, b.Mul(hit_u, b.emit(gather, (share, indices), axis)[0])


@expansion("TensorScatter")
def _(b, n):
    # each row of the batch writes its updates from its own place on, around the end if circular
    x, updates, starts = [*n.inputs, None][:3]
    rank, axis = rank_of(x), attribute(n, "axis", -2) % rank_of(x)
    length, beside = extents(b, updates)[axis], [-1, *[1] * (rank - axis - 1)]
    if is_known(length):
        check_constant(length)
        steps = b.const(np.arange(length).reshape(beside))
    else:
        steps = b.Reshape(positions(b, length), beside)
    first = b.const(np.int64(0)) if starts is None else b.Reshape(starts, [-1, *[1] * (rank - 1)])
    places = b.Add(first, steps)
    if attribute(n, "mode", "linear") == "circular":
        places = b.Mod(places, extents(b, x)[axis])
    whole = b.Expand(places, list(extents(b, updates)))
    return b.ScatterElements(x, whole, updates, axis=axis)


@expansion("Compress")
def _(b, n):
    x, condition = n.inputs[0], constant_of(n.inputs[1])
    if condition is None:
        raise no_gradient(n, "by a condition known only at run time")
    axis = attribute(n, "axis")
    flat = b.Reshape(x, [-1]) if axis is None else x
    return b.Gather(flat, np.flatnonzero(condition), axis=axis or 0)
