"""Transposed convolutions and resizing."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.autodiff.rules.convolution import Shape, weight_gradient
from flow2onnx.graph import constant_of, dims, dtype_of, rank_of


@vjp("ConvTranspose")
def _(b, n, g):
    # the gradient in the input is the convolution that the node transposes
    x, w, *bias = n.inputs
    axes = rank_of(x) - 2
    if attribute(n, "auto_pad", "NOTSET") != "NOTSET" or "output_shape" in n.attributes:
        raise no_gradient(n, "without explicit pads")
    ones = [1] * axes
    strides, dilations = (attribute(n, k, ones) for k in ("strides", "dilations"))
    pads, groups = attribute(n, "pads", [0] * 2 * axes), attribute(n, "group", 1)
    gx = b.Conv(g, w, strides=strides, dilations=dilations, pads=pads, group=groups)
    shape = Shape(
        dims(x)[0], dims(g)[1], dims(x)[1], dims(g)[2:], dims(x)[2:], dims(w)[2:],
        tuple(strides), tuple(dilations), tuple(pads[:axes]), tuple(pads[axes:]), groups,
    )  # fmt: skip
    gw = weight_gradient(b, shape, g, x)
    if not bias or bias[0] is None:
        return gx, gw
    return gx, gw, b.ReduceSum(g, [0, *range(2, rank_of(g))], keepdims=0)


@vjp("Resize")
def _(b, n, g):
    # every axis is a product with a constant matrix: its transpose takes the gradient back
    x = n.inputs[0]
    for axis, (extent, length) in enumerate(zip(dims(x), dims(n.outputs[0]), strict=True)):
        if extent != length:
            weights = _weights(n, axis, extent, length).astype(dtype_of(g).numpy)
            g = _along(b, g, axis, weights)
    return (g,)


def _along(b, g, axis, weights):
    """The product of `weights` (length, extent) with `axis` of `g`."""
    length, extent = weights.shape
    k = length // extent
    if np.array_equal(weights, np.repeat(np.eye(extent), k, 0)[:length]) and k * extent == length:
        shape = dims(g)
        split = b.Reshape(g, [*shape[:axis], extent, k, *shape[axis + 1 :]])
        return b.ReduceSum(split, [axis + 1], keepdims=0)
    if axis == rank_of(g) - 1:
        return b.MatMul(g, weights)
    order = [i for i in range(rank_of(g)) if i != axis] + [axis]
    product = b.MatMul(b.Transpose(g, perm=order), weights)
    return b.Transpose(product, perm=[int(i) for i in np.argsort(order)])


def _weights(n, axis, extent, length):
    """How much of each element of an axis is in each element of the result."""
    how = attribute(n, "coordinate_transformation_mode", "half_pixel")
    mode = attribute(n, "mode", "nearest")
    if how not in _COORDINATES or mode not in ("nearest", "linear"):
        raise no_gradient(n, f"in mode {mode}, {how}")
    scale = _scale(n, axis, extent, length)
    at = _COORDINATES[how](np.arange(length), scale, extent, length)
    weights = np.zeros((length, extent))
    rows = np.arange(length)
    if mode == "nearest":
        nearest = _ROUND[attribute(n, "nearest_mode", "round_prefer_floor")](at)
        weights[rows, np.clip(nearest, 0, extent - 1).astype(int)] = 1
        return weights
    at = np.clip(at, 0, extent - 1)
    low = np.minimum(np.floor(at).astype(int), max(extent - 2, 0))
    np.add.at(weights, (rows, low), 1 - (at - low))
    np.add.at(weights, (rows, np.minimum(low + 1, extent - 1)), at - low)
    return weights


def _scale(n, axis, extent, length):
    scales = constant_of(n.inputs[2]) if len(n.inputs) > 2 else None
    return length / extent if scales is None or not scales.size else float(scales[axis])


_COORDINATES = {
    "half_pixel": lambda i, scale, extent, length: (i + 0.5) / scale - 0.5,
    "pytorch_half_pixel": lambda i, scale, extent, length: (
        (i + 0.5) / scale - 0.5 if length > 1 else i * 0.0
    ),
    "asymmetric": lambda i, scale, extent, length: i / scale,
    "align_corners": lambda i, scale, extent, length: (
        i * (extent - 1) / (length - 1) if length > 1 else i * 0.0
    ),
}
_ROUND = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}
