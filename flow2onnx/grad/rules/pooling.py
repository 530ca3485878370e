"""Pools."""

import numpy as np

from flow2onnx.grad.registry import attribute, vjp
from flow2onnx.graph import dims, dtype_of, rank_of, size_of


@vjp("MaxPool")
def _(b, n, g, _indices_g=None):
    # the first of equal elements gets all, as in OneFlow; an Equal mask would give it to each
    x = n.inputs[0]
    indices = b.another_output(n) if len(n.outputs) == 1 else n.outputs[1]
    zeros = b.ConstantOfShape([size_of(x)], value=np.zeros(1, dtype_of(x).numpy))
    windows_overlap = attribute(n, "kernel_shape") > attribute(n, "strides")
    flat = b.ScatterElements(
        zeros, b.Reshape(indices, [-1]), b.Reshape(g, [-1]), axis=0,
        reduction="add" if windows_overlap else "none",
    )  # fmt: skip
    return b.Reshape(flat, list(dims(x)))


@vjp("AveragePool")
def _(b, n, g):
    x = n.inputs[0]
    axes = rank_of(x) - 2
    kernel = list(attribute(n, "kernel_shape"))
    strides = list(attribute(n, "strides", [1] * axes))
    pads = list(attribute(n, "pads", [0] * 2 * axes))
    counts = _counts(
        dims(x)[2:], dims(g)[2:], kernel, strides, pads, attribute(n, "count_include_pad", 0)
    )
    share = b.Div(g, b.const(counts.astype(dtype_of(g).numpy)))
    left_over = [
        h - ((o - 1) * s - pads[i] - pads[i + axes] + k)
        for i, (h, o, s, k) in enumerate(
            zip(dims(x)[2:], dims(g)[2:], strides, kernel, strict=True)
        )
    ]
    # every channel of every image is an image of one channel: one kernel of ones serves all
    images = b.Reshape(share, [-1, 1, *dims(g)[2:]])
    ones = b.const(np.ones((1, 1, *kernel), dtype_of(g).numpy))
    spread = b.ConvTranspose(images, ones, strides=strides, pads=pads, output_padding=left_over)
    return b.Reshape(spread, list(dims(x)))


def _counts(extents, outputs, kernel, strides, pads, includes_pad):
    """The number of elements that each window averages."""
    if includes_pad:
        return np.full(outputs, np.prod(kernel))
    total = np.ones(())
    for i, (h, o, k, s) in enumerate(zip(extents, outputs, kernel, strides, strict=True)):
        start = np.arange(o) * s - pads[i]
        inside = np.minimum(start + k, h) - np.maximum(start, 0)
        total = total[..., None] * inside
    return total
