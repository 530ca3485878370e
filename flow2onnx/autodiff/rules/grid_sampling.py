"""Reading an image at points between its elements."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, vjp
from flow2onnx.autodiff.rules.windows import windows
from flow2onnx.dtypes import float16, float32, int64
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dims, dtype_of, rank_of
from flow2onnx.lowering.dimensions import as_number, check_constant, positions, rows_of_batch
from flow2onnx.lowering.scatters import scatter_sum


@vjp("GridSample")
def _(b, n, g):
    # one gather, and one scatter that adds, over all elements that a point is a mixture of;
    # at the kinks, and where nearest jumps, the points have the slope of one side, as in torch
    x, grid = n.inputs
    images, channels, *lengths = extents(b, x)
    size = math.prod(lengths)
    wide, points = (_as_float32(b, v) for v in (x, b.Reshape(grid, [images, -1, len(lengths)])))
    rows = b.Reshape(b.Transpose(b.Reshape(wide, [images, channels, size]), perm=[0, 2, 1]),
                     [-1, channels])  # fmt: skip
    gs = b.Transpose(b.Reshape(_as_float32(b, g), [images, channels, -1]), perm=[0, 2, 1])
    factors = [_factor(b, n, extent, dtype_of(points)) for extent in lengths]
    taps = [
        _taps(b, n, _coordinate(b, n, points, axis, lengths), extent)
        for axis, extent in enumerate(lengths)
    ]
    images_at = rows_of_batch(b, x, images)
    places, parts, slopes = [], [], [[] for _ in lengths]
    for tap in itertools.product(*taps):
        place = _place(b, [t.place for t in tap], lengths, images_at)
        places.append(b.Reshape(place, [-1, 1]))
        weight = functools.reduce(b.Mul, [t.weight for t in tap])
        parts.append(b.Reshape(b.Mul(gs, b.Unsqueeze(weight, [2])), [-1, channels]))
        along = b.ReduceSum(b.Mul(b.Gather(rows, place), gs), [2], keepdims=0)
        for axis, t in enumerate(tap):
            if t.slope is not None:
                others = [o.weight for o in tap[:axis] + tap[axis + 1 :]]
                slopes[axis].append(functools.reduce(b.Mul, [along, t.slope, *others]))
    total = scatter_sum(
        b, "ScatterND", [images * size, channels], b.Concat(*places, axis=0),
        b.Concat(*parts, axis=0),
    )  # fmt: skip
    gx = b.Transpose(b.Reshape(total, [images, size, channels]), perm=[0, 2, 1])
    gx = b.Cast(b.Reshape(gx, list(extents(b, x))), to=dtype_of(x))
    if not slopes[0]:
        return gx, b.Mul(grid, 0.0)
    # the last number of a point belongs to the first axis
    last = [
        b.Unsqueeze(b.Mul(functools.reduce(b.Add, s), factor), [2])
        for s, factor in zip(reversed(slopes), reversed(factors), strict=True)
    ]
    whole = b.Reshape(b.Concat(*last, axis=2), list(extents(b, grid)))
    return gx, b.Cast(whole, to=dtype_of(grid))


def _as_float32(b, value):
    """Coordinates in half precision would miss their elements."""
    return b.Cast(value, to=float32) if dtype_of(value) == float16 else value


def _factor(b, n, extent, dtype):
    """The number of elements that one unit of a point is: the image is 2 units wide."""
    return _half(b, extent - 1 if attribute(n, "align_corners", 0) else extent, dtype)


def _half(b, size, dtype):
    """Half of a size as a real number."""
    return size / 2 if is_known(size) else b.Mul(as_number(b, size, dtype), 0.5)


def _coordinate(b, n, points, axis, lengths):
    """The place of each point on an axis, in elements."""
    unit = b.Gather(points, np.asarray(len(lengths) - 1 - axis), axis=2)
    scaled = b.Mul(unit, _factor(b, n, lengths[axis], dtype_of(points)))
    return b.Add(scaled, _half(b, lengths[axis] - 1, dtype_of(points)))


class _Tap:
    """One of the elements of an axis that a point is a mixture of."""

    def __init__(self, place, weight, slope):
        self.place, self.weight, self.slope = place, weight, slope


def _taps(b, n, at, extent):
    """The elements that each coordinate mixes: place, weight, and the slope of the weight."""
    mode = attribute(n, "mode", "linear")
    if mode == "nearest":
        place = b.Round(at)
        one = b.Add(b.Mul(at, 0.0), 1.0)
        return [_pad_tap(b, n, place, one, None, extent)]
    low = b.Floor(at)
    rest = b.Sub(at, low)
    if mode in ("linear", "bilinear"):
        one = b.Add(b.Mul(at, 0.0), 1.0)
        return [
            _pad_tap(b, n, low, b.Sub(1.0, rest), b.Neg(one), extent),
            _pad_tap(b, n, b.Add(low, 1.0), rest, one, extent),
        ]
    taps = []
    for offset in range(-1, 3):
        weight, slope = (_polynomial(b, rest, c) for c in _cubic(offset))
        taps.append(_pad_tap(b, n, b.Add(low, float(offset)), weight, slope, extent))
    return taps


def _cubic(offset, a=-0.75):
    """The polynomials, highest power first, of a tap's weight and slope in the rest."""
    near = [a + 2, -(a + 3), 0, 1]
    far = [a, -5 * a, 8 * a, -4 * a]
    kernel = np.poly1d(near if offset in (0, 1) else far)
    distance = np.poly1d([1, -offset] if offset <= 0 else [-1, offset])
    weight = kernel(distance)
    return weight.coeffs, weight.deriv().coeffs


def _polynomial(b, x, coefficients):
    total = b.Add(b.Mul(x, float(coefficients[0])), float(coefficients[1]))
    for c in coefficients[2:]:
        total = b.Add(b.Mul(total, x), float(c))
    return total


def _pad_tap(b, n, place, weight, slope, extent):
    """A tap with its place inside: on the edge, reflected, or without weight."""
    how, last = attribute(n, "padding_mode", "zeros"), _last(b, extent, dtype_of(place))
    inside = b.Clip(place, 0.0, last)
    if how == "reflection":
        edge = 0.0 if attribute(n, "align_corners", 0) else -0.5
        reflect = _reflect if is_known(extent) else _reflect_at_run_time
        inside = b.Clip(reflect(b, place, edge, last), 0.0, last)
    elif how == "zeros":
        is_inside = b.Cast(b.Equal(inside, place), to=dtype_of(weight))
        weight = b.Mul(weight, is_inside)
        slope = None if slope is None else b.Mul(slope, is_inside)
    return _Tap(b.Cast(inside, to=int64), weight, slope)


def _last(b, extent, dtype):
    """The place of the last element of an axis."""
    return float(extent - 1) if is_known(extent) else as_number(b, extent - 1, dtype)


def _reflect_at_run_time(b, place, low, last):
    """`_reflect` over an axis whose length is known at run time only."""
    high = b.Sub(last, low)
    span = b.Sub(high, low)
    one = b.like(1.0, place)
    wide = b.Where(b.Equal(span, 0.0), one, span)
    turns = b.Floor(b.Div(b.Mul(b.Sub(place, low), 0.5), wide))
    phase = b.Sub(b.Sub(place, low), b.Mul(turns, b.Mul(wide, 2.0)))
    thrown = b.Sub(high, b.Abs(b.Sub(phase, wide)))
    return b.Where(b.Equal(span, 0.0), b.Mul(place, 0.0), thrown)


def _reflect(b, place, low, last):
    """Places thrown back at both ends, half an element outside, as often as it takes."""
    high = last - low
    span = high - low
    if span == 0:
        return b.Mul(place, 0.0)
    turns = b.Floor(b.Mul(b.Sub(place, low), 0.5 / span))
    phase = b.Sub(b.Sub(place, low), b.Mul(turns, 2 * span))
    return b.Sub(high, b.Abs(b.Sub(phase, span)))


def _place(b, places, lengths, images_at):
    """The row of an element of each image when all elements of all images stand in one column."""
    total = functools.reduce(
        lambda t, pair: b.Add(b.Mul(t, pair[1]), pair[0]),
        zip(places[1:], lengths[1:], strict=True), places[0],
    )  # fmt: skip
    beside, size = [-1, *[1] * (rank_of(total) - 1)], math.prod(lengths)
    known = constant_of(images_at)
    if known is not None and is_known(size):
        return b.Add(total, (known * size).reshape(beside))
    return b.Add(total, b.Reshape(b.Mul(images_at, size), beside))


@vjp("AffineGrid")
def _(b, n, g):
    # the grid is a constant one times theta
    theta, size = n.inputs[0], constant_of(n.inputs[1])
    is_aligned = attribute(n, "align_corners", 0)
    if size is None:
        return _theta_at_run_time(b, n, g, is_aligned), None
    lines = [_line(int(extent), is_aligned) for extent in size[2:]]
    points = [p.ravel() for p in np.meshgrid(*lines, indexing="ij")][::-1]
    base = np.stack([*points, np.ones_like(points[0])], 1).astype(dtype_of(theta).numpy)
    flat = b.Reshape(g, [extents(b, theta)[0], -1, len(lines)])
    return b.MatMul(b.Transpose(flat, perm=[0, 2, 1]), b.const(base)), None


def _theta_at_run_time(b, n, g, is_aligned):
    """The gradient in theta where the grid's size is known at run time only."""
    theta, dtype = n.inputs[0], dtype_of(n.inputs[0])
    lengths = extents(b, g)[1:-1]
    rank, bases = len(lengths), []
    for axis, length in enumerate(lengths):
        line = _line_at_run_time(b, length, is_aligned, dtype)
        beside = b.Reshape(line, [-1 if i == axis else 1 for i in range(rank)])
        bases.append(b.Reshape(b.Expand(beside, list(lengths)), [-1, 1]))
    one = b.Add(b.Mul(bases[0], 0.0), 1.0)
    base = b.Concat(*bases[::-1], one, axis=1)
    flat = b.Reshape(g, [extents(b, theta)[0], -1, rank])
    return b.MatMul(b.Transpose(flat, perm=[0, 2, 1]), base)


def _line_at_run_time(b, length, is_aligned, dtype):
    """`_line` of a length known at run time only."""
    places, count = positions(b, length, dtype), as_number(b, length, dtype)
    if not is_aligned:
        return b.Sub(b.Div(b.Add(b.Mul(places, 2.0), 1.0), count), 1.0)
    gaps = b.Sub(count, 1.0)
    is_one = b.Equal(gaps, 0.0)
    along = b.Sub(b.Div(b.Mul(places, 2.0), b.Where(is_one, b.like(1.0, gaps), gaps)), 1.0)
    return b.Where(is_one, b.like(1.0, along), along)


def _line(extent, is_aligned):
    """The middles of the elements of an axis 2 units wide; aligned, from end to end."""
    check_constant(extent)
    if is_aligned:
        return np.linspace(-1, 1, extent) if extent > 1 else np.ones(1)
    return (2 * np.arange(extent) + 1) / extent - 1


@expansion("DeformConv")
def _(b, n):
    x, w, offset, bias, mask = [*n.inputs, None, None][:5]
    # the sizes of the output are those of the offsets: nothing here may read the output itself
    at = replace(windows(b, n, dims(w)[2:]), outputs=extents(b, offset)[2:])
    images, channels = extents(b, x)[:2]
    outputs, _, *kernel = dims(w)
    groups, parts = attribute(n, "group", 1), attribute(n, "offset_group", 1)
    taps, spread, size = math.prod(kernel), math.prod(at.outputs), math.prod(at.extents)
    shifts = b.Reshape(_as_float32(b, offset), [images * parts, taps, 2, spread])
    axes = []
    for axis, extent in enumerate(at.extents):
        moved = b.Gather(shifts, np.asarray(axis), axis=2)
        at_rest = _kernel_positions(b, at, axis, dtype_of(shifts))
        axes.append(_linear_taps(b, b.Add(moved, at_rest), extent))
    # offsets of a part move all its channels alike: one row holds them
    rows = b.Reshape(_as_float32(b, x), [images * parts, channels // parts, size])
    rows = b.Reshape(b.Transpose(rows, perm=[0, 2, 1]), [-1, channels // parts])

    images_at = rows_of_batch(b, x, images, parts)

    def part(down, right):
        place = _place(b, [down.place, right.place], at.extents, images_at)
        weight = b.Mul(down.weight, right.weight)
        if mask is not None:
            weight = b.Mul(weight, b.Reshape(_as_float32(b, mask), [images * parts, taps, spread]))
        return b.Mul(b.Gather(rows, place), b.Unsqueeze(weight, [3]))

    total = functools.reduce(b.Add, itertools.starmap(part, itertools.product(*axes)))
    columns = b.Transpose(total, perm=[0, 3, 1, 2])
    columns = b.Reshape(columns, [images, groups, channels // groups * taps, spread])
    flat = b.Reshape(_as_float32(b, w), [groups, outputs // groups, -1])
    y = b.Reshape(b.MatMul(flat, columns), [images, outputs, *at.outputs])
    y = b.Cast(y, to=dtype_of(x)) if dtype_of(y) != dtype_of(x) else y
    return y if bias is None else b.Add(y, b.Reshape(bias, [-1, 1, 1]))


def _kernel_positions(b, at, axis, dtype):
    """The positions of an ordinary convolution's taps: (taps, outputs)."""
    check_constant(*at.kernel)
    taps = np.indices(at.kernel)[axis].reshape(-1, 1) * at.dilations[axis]
    if not is_known(*at.outputs):
        along = b.Mul(positions(b, at.outputs[axis]), at.strides[axis])
        rank = len(at.outputs)
        along = b.Reshape(along, [-1 if i == axis else 1 for i in range(rank)])
        starts = b.Reshape(b.Expand(along, list(at.outputs)), [1, -1])
        return b.Cast(b.Add(starts, taps - at.before[axis]), to=dtype)
    check_constant(*at.kernel, *at.outputs)
    starts = np.indices(at.outputs)[axis].reshape(1, -1) * at.strides[axis] - at.before[axis]
    return (taps + starts).astype(dtype.numpy)


def _linear_taps(b, at, extent):
    """The two elements that each coordinate mixes; outside is 0."""
    low = b.Floor(at)
    rest = b.Sub(at, low)
    taps = []
    for place, weight in ((low, b.Sub(1.0, rest)), (b.Add(low, 1.0), rest)):
        inside = b.Clip(place, 0.0, _last(b, extent, dtype_of(place)))
        is_inside = b.Cast(b.Equal(inside, place), to=dtype_of(weight))
        taps.append(_Tap(b.Cast(inside, to=int64), b.Mul(weight, is_inside), None))
    return taps
