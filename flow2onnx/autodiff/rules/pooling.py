"""Pools, and what adds windows up."""

import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.autodiff.rules.windows import spatial_axes, sum_windows, windows
from flow2onnx.dtypes import float32
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dtype_of, sizes_of
from flow2onnx.lowering.dimensions import check_constant, divide, positions
from flow2onnx.lowering.forms import Lowering
from flow2onnx.lowering.scatters import scatter_sum, zeros


@vjp("MaxPool")
def _(b, n, g, _indices_g=None):
    # the first of equal elements gets all, as in OneFlow
    return _max_gradient(b, n, g)


def _tiles(n, _g):
    """True if the windows tile an image exactly, so that maxima need no positions."""
    kernel = attribute(n, "kernel_shape")
    return (
        len(kernel) == 2
        and len(n.outputs) == 1
        and dtype_of(n.inputs[0]).name == "float32"
        and attribute(n, "strides") == kernel
        and not any(attribute(n, "pads", [0]))
        and set(attribute(n, "dilations", [1])) == {1}
        and all(
            is_known(h, o) and h == o * k
            for h, o, k in zip(_extents(n.inputs[0]), _extents(n.outputs[0]), kernel, strict=True)
        )
    )


_max_gradient = Lowering(
    "MaxPool.dX", lambda n, g: "marks" if _tiles(n, g) else "indices", forward=True
)


def _extents(x):
    return sizes_of(x)[2:]


@_max_gradient.form("marks", when=_tiles)
def _(b, n, g):
    """Mark the maxima of each window, number the marks, and keep the highest number.

    The runtime finds positions with a slow scalar loop; nearest Resize, Equal and a second pool are
    vectorised, and together take two thirds of its time.
    """
    x, y = n.inputs[0], n.outputs[0]
    kh, kw = kernel = attribute(n, "kernel_shape")
    check_constant(*_extents(x))
    order = np.arange(kh * kw, 0, -1, dtype=np.float32).reshape(kh, kw)
    numbers = np.tile(order, [d // k for d, k in zip(_extents(x), kernel, strict=True)])
    marks = b.Mul(b.Cast(b.Equal(x, _repeat_in_window(b, n, y)), to=float32), numbers[None, None])
    first = b.MaxPool(marks, kernel_shape=kernel, strides=kernel)
    chosen = b.Cast(b.Equal(marks, _repeat_in_window(b, n, first)), to=float32)
    return b.Mul(chosen, _repeat_in_window(b, n, g))


def _repeat_in_window(b, n, value):
    """The value of each window at all of its elements."""
    scales = np.array([1, 1, *attribute(n, "kernel_shape")], np.float32)
    how = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return b.Resize(value, None, scales, **how)


@_max_gradient.form("indices")
def _(b, n, g):
    """Scatter to the positions that the forward pool reports."""
    x = n.inputs[0]
    indices = b.another_output(n) if len(n.outputs) == 1 else n.outputs[1]
    if attribute(n, "storage_order", 0):
        indices = _row_major(b, indices, extents(b, x)[2:])
    size, places, parts = [math.prod(extents(b, x))], b.Reshape(indices, [-1]), b.Reshape(g, [-1])
    if _may_overlap(n):
        flat = scatter_sum(b, "ScatterElements", size, places, parts, axis=0)
    else:
        flat = b.ScatterElements(zeros(b, size, dtype_of(x)), places, parts, axis=0)
    return b.Reshape(flat, list(extents(b, x)))


def _row_major(b, indices, sizes):
    """Positions that count the first axis of an image fastest, counting the last one so."""
    size = math.prod(sizes)
    rest = b.Mod(indices, size)
    total = b.Sub(indices, rest)
    step = size
    for extent in sizes:
        step //= extent
        total = b.Add(total, b.Mul(b.Mod(rest, extent), step))
        rest = b.Div(rest, extent)
    return total


def _may_overlap(n):
    """True if two windows may share an element."""
    kernel = attribute(n, "kernel_shape")
    ones = [1] * len(kernel)
    strides, dilations = attribute(n, "strides", ones), attribute(n, "dilations", ones)
    return any((k - 1) * d >= s for k, s, d in zip(kernel, strides, dilations, strict=True))


@vjp("AveragePool")
def _(b, n, g):
    at = windows(b, n, attribute(n, "kernel_shape"))
    includes_pad = attribute(n, "count_include_pad", 0)
    if is_known(*at.extents, *at.outputs):
        check_constant(*at.outputs)
        counts = b.const(_window_sizes(at, includes_pad).astype(dtype_of(g).numpy))
    else:
        counts = _window_sizes_at_run_time(b, at, includes_pad, dtype_of(g))
    return sum_windows(b, at, b.Div(g, counts), n.inputs[0])


def _window_sizes(at, includes_pad):
    """The number of elements that each window averages."""
    total = np.ones(())
    for extent, outputs, kernel, stride, dilation, first, last in zip(
        at.extents, at.outputs, at.kernel, at.strides, at.dilations, at.before, at.after,
        strict=True,
    ):  # fmt: skip
        starts = np.arange(outputs) * stride - first
        ends = (-first, extent + last) if includes_pad else (0, extent)
        # of the taps start + i * dilation, those below each end: divisions that round up
        below = [np.clip(-((starts - end) // dilation), 0, kernel) for end in ends]
        total = total[..., None] * (below[1] - below[0])
    return total


def _window_sizes_at_run_time(b, at, includes_pad, dtype):
    """`_window_sizes`, of axes whose lengths may be known only at run time."""
    total = None
    for axis, (extent, outputs) in enumerate(zip(at.extents, at.outputs, strict=True)):
        first = at.before[axis]
        check_constant(at.kernel[axis])
        taps = np.arange(at.kernel[axis]) * at.dilations[axis]
        starts = b.Sub(b.Mul(positions(b, outputs), at.strides[axis]), _operand(b, first))
        places = b.Add(b.Unsqueeze(starts, [1]), taps)
        low, high = (0 - first, extent + at.after[axis]) if includes_pad else (0, extent)
        inside = b.And(
            b.GreaterOrEqual(places, _operand(b, low)), b.Less(places, _operand(b, high))
        )
        count = b.ReduceSum(b.Cast(inside, to=dtype), [1], keepdims=0)
        count = b.Reshape(count, [-1, *[1] * (len(at.kernel) - axis - 1)])
        total = count if total is None else b.Mul(total, count)
    return total


def _operand(b, size):
    return b.vector([size])


@vjp("LpPool")
def _(b, n, g):
    at = windows(b, n, attribute(n, "kernel_shape"))
    return _norm_gradient(b, n, lambda share: sum_windows(b, at, share, n.inputs[0]), g)


@vjp("GlobalLpPool")
def _(b, n, g):
    return _norm_gradient(b, n, lambda share: share, g)


def _norm_gradient(b, n, to_elements, g):
    """The gradient of the p-norm of each window: 0 where the norm is, as for torch's norms."""
    x, y, p = n.inputs[0], n.outputs[0], attribute(n, "p", 2)
    if p == 1:
        return b.Mul(b.Sign(x), to_elements(g))
    is_zero, zero = b.Equal(y, 0.0), b.like(0.0, g)
    divisor = b.Where(is_zero, b.like(1.0, y), y if p == 2 else b.Pow(y, b.like(p - 1, y)))
    share = to_elements(b.Where(is_zero, zero, b.Div(g, divisor)))
    if p == 2:
        return b.Mul(x, share)
    return b.Mul(b.Mul(b.Sign(x), b.Pow(b.Abs(x), b.like(p - 1, x))), share)


@vjp("GlobalAveragePool")
def _(b, n, g):
    x = n.inputs[0]
    return b.Expand(divide(b, g, math.prod(extents(b, x)[2:])), list(extents(b, x)))


@vjp("GlobalMaxPool")
def _(b, n, g):
    # the first of equal elements gets all, as in torch's adaptive pool
    x = n.inputs[0]
    images, channels, *lengths = extents(b, x)
    flat = b.Reshape(x, [images, channels, -1])
    first = b.ArgMax(flat, axis=2, keepdims=1)
    if is_known(*lengths):
        check_constant(*lengths)
        places = b.const(np.arange(math.prod(lengths), dtype=np.int64)[None, None])
    else:
        places = positions(b, math.prod(lengths))
    chosen = b.Cast(b.Equal(first, places), to=dtype_of(g))
    return b.Reshape(b.Mul(chosen, b.Reshape(g, [images, channels, 1])), list(extents(b, x)))


@vjp("MaxUnpool")
def _(b, n, g):
    x, places = n.inputs[:2]
    picked = b.Gather(b.Reshape(g, [-1]), b.Reshape(places, [-1]))
    return b.Reshape(picked, list(extents(b, x))), None


@vjp("Col2Im")
def _(b, n, g):
    # the windows of the image that the node adds up
    x, block = n.inputs[0], constant_of(n.inputs[2])
    if block is None:
        raise no_gradient(n, "with a block known only at run time")
    image = extents(b, g)[2:]
    ones = [1] * len(block)
    strides, dilations = (attribute(n, k, ones) for k in ("strides", "dilations"))
    pads = list(attribute(n, "pads", [0] * 2 * len(block)))
    before, after = pads[: len(block)], pads[len(block) :]
    padded = b.Pad(g, [0, 0, *before, 0, 0, *after]) if any(pads) else g
    spans = [
        h + p + q - (k - 1) * d
        for h, p, q, k, d in zip(image, before, after, block, dilations, strict=True)
    ]
    taps = [[i * d for i, d in zip(tap, dilations, strict=True)] for tap in np.ndindex(*block)]
    parts = [
        b.Slice(padded, tap, [t + s for t, s in zip(tap, spans, strict=True)], spatial_axes(g),
                [*strides])
        for tap in taps
    ]  # fmt: skip
    images, channels = extents(b, g)[:2]
    rows = [b.Reshape(part, [images, channels, 1, -1]) for part in parts]
    return b.Reshape(b.Concat(*rows, axis=2), list(extents(b, x))), None, None
