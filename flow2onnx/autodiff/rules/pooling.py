"""Pools."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.dtypes import float32
from flow2onnx.graph import added_up, dims, dtype_of, rank_of, size_of, zeros


@vjp("MaxPool")
def _(b, n, g, _indices_g=None):
    # the first of equal elements gets all, as in OneFlow
    return _by_marks(b, n, g) if _tiles(n) else _by_indices(b, n, g)


def _tiles(n):
    """Whether the windows tile an image exactly, so that its windows need no positions."""
    kernel = attribute(n, "kernel_shape")
    return (
        len(kernel) == 2
        and len(n.outputs) == 1
        and dtype_of(n.inputs[0]).name == "float32"
        and attribute(n, "strides") == kernel
        and not any(attribute(n, "pads", [0]))
        and all(
            h == o * k
            for h, o, k in zip(_extents(n.inputs[0]), _extents(n.outputs[0]), kernel, strict=True)
        )
    )


def _extents(x):
    return dims(x)[2:]


def _by_marks(b, n, g):
    """Mark the maxima of each window, number the marks, and keep the highest number.

    The runtime finds positions with a slow scalar loop; nearest Resize, Equal and a second pool are
    vectorised, and together take two thirds of its time.
    """
    x, y = n.inputs[0], n.outputs[0]
    kh, kw = kernel = attribute(n, "kernel_shape")
    order = np.arange(kh * kw, 0, -1, dtype=np.float32).reshape(kh, kw)
    numbers = np.tile(order, [d // k for d, k in zip(_extents(x), kernel, strict=True)])
    marks = b.Mul(b.Cast(b.Equal(x, _spread(b, n, y)), to=float32), numbers[None, None])
    first = b.MaxPool(marks, kernel_shape=kernel, strides=kernel)
    chosen = b.Cast(b.Equal(marks, _spread(b, n, first)), to=float32)
    return b.Mul(chosen, _spread(b, n, g))


def _spread(b, n, value):
    """The value of each window at all of its elements."""
    scales = np.array([1, 1, *attribute(n, "kernel_shape")], np.float32)
    how = {
        "mode": "nearest",
        "coordinate_transformation_mode": "asymmetric",
        "nearest_mode": "floor",
    }
    return b.Resize(value, None, scales, **how)


def _by_indices(b, n, g):
    """Scatter to the positions that the forward pool reports."""
    x = n.inputs[0]
    indices = b.another_output(n) if len(n.outputs) == 1 else n.outputs[1]
    size, places, parts = [size_of(x)], b.Reshape(indices, [-1]), b.Reshape(g, [-1])
    if _overlap(n):
        flat = added_up(b, "ScatterElements", size, places, parts, axis=0)
    else:
        flat = b.ScatterElements(zeros(b, size, dtype_of(x)), places, parts, axis=0)
    return b.Reshape(flat, list(dims(x)))


def _overlap(n):
    """Whether two windows may share an element."""
    kernel = attribute(n, "kernel_shape")
    ones = [1] * len(kernel)
    strides, dilations = attribute(n, "strides", ones), attribute(n, "dilations", ones)
    return any((k - 1) * d >= s for k, s, d in zip(kernel, strides, dilations, strict=True))


@vjp("AveragePool")
def _(b, n, g):
    x = n.inputs[0]
    axes = rank_of(x) - 2
    if attribute(n, "auto_pad", "NOTSET") != "NOTSET":
        raise no_gradient(n, "with auto_pad")
    kernel = list(attribute(n, "kernel_shape"))
    strides = list(attribute(n, "strides", [1] * axes))
    pads = list(attribute(n, "pads", [0] * 2 * axes))
    dilations = list(attribute(n, "dilations", [1] * axes))
    ends = pads[axes:]
    shape = list(
        zip(dims(x)[2:], dims(g)[2:], kernel, strides, dilations, pads[:axes], ends, strict=True)
    )
    counts = _counts(shape, attribute(n, "count_include_pad", 0))
    share = b.Div(g, b.const(counts.astype(dtype_of(g).numpy)))
    left_over = [
        h - ((o - 1) * s - first - last + (k - 1) * d + 1) for h, o, k, s, d, first, last in shape
    ]
    # with ceil_mode the last window reaches beyond the padding: that much more is cut off
    ends = [last - min(more, 0) for last, more in zip(ends, left_over, strict=True)]
    # every channel of every image is an image of one channel: one kernel of ones serves all
    images = b.Reshape(share, [-1, 1, *dims(g)[2:]])
    ones = b.const(np.ones((1, 1, *kernel), dtype_of(g).numpy))
    spread = b.ConvTranspose(
        images, ones, strides=strides, dilations=dilations, pads=pads[:axes] + ends,
        output_padding=[max(more, 0) for more in left_over],
    )  # fmt: skip
    return b.Reshape(spread, list(dims(x)))


def _counts(shape, includes_pad):
    """The number of elements that each window averages."""
    total = np.ones(())
    for extent, outputs, kernel, stride, dilation, first, last in shape:
        taps = np.arange(outputs)[:, None] * stride - first + np.arange(kernel) * dilation
        low, high = (-first, extent + last) if includes_pad else (0, extent)
        total = total[..., None] * ((taps >= low) & (taps < high)).sum(1)
    return total
