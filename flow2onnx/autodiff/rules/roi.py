"""Pools over regions of an image."""

from dataclasses import dataclass

import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, no_gradient, vjp
from flow2onnx.dtypes import float16, float32, int64
from flow2onnx.graph import Value
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dims, dtype_of
from flow2onnx.lowering.dimensions import as_number, positions


@vjp("RoiAlign")
def _(b, n, g):
    # the corners of a region have no gradient, as in torch
    x, rois, batch = n.inputs
    is_half = dtype_of(x) == float16
    gs, points = (b.Cast(v, to=float32) if is_half else v for v in (g, rois))
    height, width = (attribute(n, k, 1) for k in ("output_height", "output_width"))
    is_max = attribute(n, "mode", "avg") == "max"
    rows = _axis_samples(b, n, points, (1, 3), height, extents(b, x)[2], is_max)
    columns = _axis_samples(b, n, points, (0, 2), width, extents(b, x)[3], is_max)
    if is_max:
        wide = b.Cast(x, to=float32) if is_half else x
        gs = _max_gradient(b, b.Gather(wide, batch), gs, rows, columns)
    gx = _sum_by_image(b, gs, rows.weights, columns.weights, batch, extents(b, x))
    return b.Cast(gx, to=float16) if is_half else gx, None, None


@dataclass(frozen=True)
class _Samples:
    """An axis of every region: weights (region, part, element), and which samples a bin has."""

    weights: Value
    used: Value
    each: int


def _axis_samples(b, n, rois, ends, bins, extent, is_max):
    """The weights with which the parts of an axis of each region are made of elements.

    An average has one part for each bin. The runtime's maximum is over the weighted elements that
    the samples of a bin are mixed of: one part for each.
    """
    scale, ratio = attribute(n, "spatial_scale", 1.0), attribute(n, "sampling_ratio", 0)
    is_centred = attribute(n, "coordinate_transformation_mode", "half_pixel") == "half_pixel"
    first, last = (
        b.Sub(b.Mul(b.Gather(rois, np.asarray([e]), axis=1), scale), 0.5 if is_centred else 0.0)
        for e in ends
    )
    length = b.Sub(last, first) if is_centred else b.Max(b.Sub(last, first), b.like(1.0, rois))
    # (region, bin, sample) from here on
    size, start = (b.Unsqueeze(v, [2]) for v in (b.Div(length, float(bins)), first))
    count = b.like(np.full((1, 1, 1), ratio), rois) if ratio else b.Ceil(size)
    i = b.Cast(_sample_numbers(b, n, rois, ends, bins, count, is_max), to=dtype_of(rois))
    numbers = np.arange(bins, dtype=dtype_of(rois).numpy)[None, :, None]
    divisor = b.Max(count, b.like(1.0, rois))
    inner = b.Div(b.Mul(b.Add(i, 0.5), size), divisor)
    at = b.Add(b.Add(start, b.Mul(size, numbers)), inner)
    used = b.Less(i, count)
    is_outside = b.Or(b.Less(at, -1.0), b.Greater(at, _real(b, extent, rois)))
    kept = b.Cast(b.And(b.Not(is_outside), used), to=dtype_of(rois))
    at = b.Clip(at, 0.0, _real(b, extent - 1, rois))
    low = b.Floor(at)
    rest = b.Sub(at, low)
    elements = positions(b, extent, dtype_of(rois))
    lower = _one_hot(b, low, b.Mul(b.Sub(1.0, rest), kept), elements)
    upper = _one_hot(b, b.Add(low, 1.0), b.Mul(rest, kept), elements)
    if not is_max:
        return _Samples(b.Div(b.ReduceSum(b.Add(lower, upper), [2], keepdims=0), divisor), used, 1)
    each = 2 * dims(i)[0]
    both = b.Concat(b.Unsqueeze(lower, [3]), b.Unsqueeze(upper, [3]), axis=3)
    return _Samples(b.Reshape(both, [extents(b, rois)[0], bins * each, extent]), used, each)


def _real(b, size, like):
    """A size as a real number beside `like`."""
    return float(size) if is_known(size) else as_number(b, size, dtype_of(like))


def _one_hot(b, place, weight, elements):
    """`weight` at the element `place`, 0 at the others."""
    is_here = b.Cast(b.Equal(b.Unsqueeze(place, [3]), elements), to=dtype_of(weight))
    return b.Mul(is_here, b.Unsqueeze(weight, [3]))


def _sample_numbers(b, n, rois, ends, bins, count, is_max):
    """0, 1, …: as many as the largest region has samples in a bin."""
    ratio, known = attribute(n, "sampling_ratio", 0), constant_of(n.inputs[1])
    if ratio:
        return b.const(np.arange(ratio))
    if known is not None:
        length = (known[:, ends[1]] - known[:, ends[0]]) * attribute(n, "spatial_scale", 1.0)
        return b.const(np.arange(max(int(np.ceil(max(length.max(), 1) / bins)), 1)))
    if is_max:
        raise no_gradient(
            n, "in mode max, with regions known only at run time and no sampling_ratio"
        )
    return b.Range(0, b.Cast(b.ReduceMax(count, keepdims=0), to=int64), 1)


def _max_gradient(b, images, g, rows, columns):
    """The gradient of each bin at the highest of its weighted elements, the first of equal ones."""
    regions, channels, height, width = extents(b, g)
    made = b.MatMul(b.Unsqueeze(rows.weights, [1]), images)
    made = b.MatMul(made, b.Unsqueeze(b.Transpose(columns.weights, perm=[0, 2, 1]), [1]))
    split = [regions, channels, height, rows.each, width, columns.each]
    values = b.Transpose(b.Reshape(made, split), perm=[0, 1, 2, 4, 3, 5])
    used = b.And(_used_pairs(b, rows, [2, 4]), _used_pairs(b, columns, [1, 3]))
    values = b.Where(used, values, b.like(np.finfo(dtype_of(g).numpy).min, g))
    size = rows.each * columns.each
    flat = b.Reshape(values, [regions, channels, height, width, size])
    chosen = b.Equal(b.ArgMax(flat, axis=4, keepdims=1), np.arange(size))
    spread = b.Mul(b.Cast(chosen, to=dtype_of(g)), b.Unsqueeze(g, [4]))
    spread = b.Reshape(spread, [regions, channels, height, width, rows.each, columns.each])
    spread = b.Transpose(spread, perm=[0, 1, 2, 4, 3, 5])
    return b.Reshape(spread, [regions, channels, height * rows.each, width * columns.each])


def _used_pairs(b, samples, axes):
    """The samples used, twice each, beside (region, channel, row, column, both's samples)."""
    regions = extents(b, samples.used)[0]
    twice = b.Expand(b.Unsqueeze(samples.used, [3]), [regions, 1, samples.each // 2, 2])
    shape = [regions, 1, 1, 1, 1, 1]
    shape[4 if axes[0] == 2 else 5] = samples.each
    return b.Reshape(twice, shape)


def _sum_by_image(b, g, rows, columns, batch, shape):
    """The gradients of all regions, spread by their weights, added up by image: two products."""
    images, channels, height, width = shape
    regions, _, parts = extents(b, g)[:3]
    spread = b.MatMul(g, b.Unsqueeze(columns, [1]))
    spread = b.Reshape(b.Transpose(spread, perm=[0, 2, 1, 3]), [regions * parts, channels * width])
    if is_known(images):
        every = b.const(np.arange(images)[:, None, None, None])
    else:
        every = b.Reshape(positions(b, images), [-1, 1, 1, 1])
    is_of = b.Cast(b.Equal(every, b.Reshape(batch, [1, 1, regions, 1])), to=dtype_of(g))
    by_image = b.Mul(is_of, b.Unsqueeze(b.Transpose(rows, perm=[2, 0, 1]), [0]))
    total = b.MatMul(b.Reshape(by_image, [images * height, regions * parts]), spread)
    return b.Transpose(b.Reshape(total, [images, height, channels, width]), perm=[0, 2, 1, 3])


@expansion("MaxRoiPool")
def _(b, n):
    # the highest of each bin's rows, then of its columns; equal elements share
    x, rois = n.inputs
    height, width = extents(b, x)[2:]
    regions = extents(b, rois)[0]
    down, right = attribute(n, "pooled_shape")
    images = b.Gather(x, b.Cast(b.Gather(rois, np.asarray(0), axis=1), to=int64))
    corners = b.Floor(b.Add(b.Mul(rois, attribute(n, "spatial_scale", 1.0)), 0.5))
    rows = _bins(b, corners, (2, 4), down, height)
    columns = _bins(b, corners, (1, 3), right, width)
    lowest = b.like(np.finfo(dtype_of(x).numpy).min, x)
    inside = b.Reshape(rows, [regions, 1, down, height, 1])
    tall = b.Where(inside, b.Unsqueeze(images, [2]), lowest)
    tall = b.ReduceMax(tall, [3], keepdims=0)
    inside = b.Reshape(columns, [regions, 1, 1, right, width])
    y = b.ReduceMax(b.Where(inside, b.Unsqueeze(tall, [3]), lowest), [4], keepdims=0)
    return b.Where(b.Equal(y, lowest), b.like(0.0, x), y)  # a bin may be empty


def _bins(b, corners, ends, bins, extent):
    """True where an element of an axis is in a bin of a region: (region, bin, element)."""
    first, last = (b.Gather(corners, np.asarray([e]), axis=1) for e in ends)
    one = b.like(1.0, corners)
    size = b.Div(b.Max(b.Add(b.Sub(last, first), one), one), float(bins))
    numbers = np.arange(bins, dtype=dtype_of(corners).numpy)[None]
    start = b.Unsqueeze(b.Add(b.Floor(b.Mul(size, numbers)), first), [2])
    end = b.Unsqueeze(b.Add(b.Ceil(b.Mul(size, numbers + 1)), first), [2])
    if is_known(extent):
        elements = b.const(np.arange(extent, dtype=dtype_of(corners).numpy)[None, None])
    else:
        elements = b.Reshape(positions(b, extent, dtype_of(corners)), [1, 1, -1])
    return b.And(b.LessOrEqual(start, elements), b.Greater(end, elements))
