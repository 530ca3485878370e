"""Resizing, and blocks of an image as channels."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.graph.types import constant_of, dims, dtype_of, rank_of


@vjp("Resize", "Upsample")
def _(b, n, g):
    # every axis is a product with a constant matrix: its transpose takes the gradient back
    for axis, weights in enumerate(_matrices(n)):
        if weights is not None:
            g = _multiply_along(b, g, axis, weights.astype(dtype_of(g).numpy))
    return (g,)


def _multiply_along(b, g, axis, weights):
    """The product of `weights` (length, extent) with `axis` of `g`."""
    length, extent = weights.shape
    k = length // extent
    # only Upsample is of opsets whose ReduceSum takes its axes otherwise
    if (
        b.opset >= 13
        and k * extent == length
        and np.array_equal(weights, np.repeat(np.eye(extent), k, 0))
    ):
        shape = dims(g)
        split = b.Reshape(g, [*shape[:axis], extent, k, *shape[axis + 1 :]])
        return b.ReduceSum(split, [axis + 1], keepdims=0)
    if axis == rank_of(g) - 1:
        return b.MatMul(g, weights)
    if axis == rank_of(g) - 2:
        return b.MatMul(np.ascontiguousarray(weights.T), g)
    order = [i for i in range(rank_of(g)) if i != axis] + [axis]
    product = b.MatMul(b.Transpose(g, perm=order), weights)
    return b.Transpose(product, perm=[int(i) for i in np.argsort(order)])


def _matrices(n):
    """For each axis how much of each element is in each element of the result; None if all is."""
    extents = dims(n.inputs[0])
    axes = [a % len(extents) for a in attribute(n, "axes", range(len(extents)))]
    scales, regions = _scales(n, axes, extents), _regions(n, axes)
    for axis, (extent, length) in enumerate(zip(extents, dims(n.outputs[0]), strict=True)):
        scale = scales.get(axis, 1.0)
        # the runtime leaves an axis of scale 1 alone, also where a region is cut out
        yield None if scale == 1 else _matrix(n, scale, extent, length, regions.get(axis))


def _scales(n, axes, extents):
    """The factor of each axis as the runtime computes it, which the shapes alone do not tell."""
    position = 1 if n.op_type == "Upsample" else 2
    scales, sizes = [*n.inputs[position:], None, None][:2]
    if sizes is None:
        known = constant_of(scales)
        if known is None:
            raise no_gradient(n, "with scales known only at run time")
        return dict(zip(axes, map(float, known), strict=True))
    wanted = constant_of(sizes)
    if wanted is None:
        raise no_gradient(n, "to sizes known only at run time")
    policy = attribute(n, "keep_aspect_ratio_policy", "stretch")
    factors = [float(w) / extents[a] for a, w in zip(axes, wanted, strict=True)]
    if policy != "stretch":
        one = min(factors) if policy == "not_larger" else max(factors)
        factors = [one] * len(axes)
    return dict(zip(axes, factors, strict=True))


def _regions(n, axes):
    """The cut of each axis that is resized, for the one mode that cuts."""
    if attribute(n, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return {}
    region = constant_of(n.inputs[1])
    if region is None:
        raise no_gradient(n, "with a region known only at run time")
    ends = np.reshape(region, (2, len(axes))).astype(float)
    return {a: (float(p), float(q)) for a, p, q in zip(axes, *ends, strict=True)}


def _matrix(n, scale, extent, length, region):
    is_upsample = n.op_type == "Upsample"
    how = attribute(
        n, "coordinate_transformation_mode", "asymmetric" if is_upsample else "half_pixel"
    )
    at = _coordinates(how, np.arange(length, dtype=np.float32), scale, extent, length, region)
    mode, a = attribute(n, "mode", "nearest"), attribute(n, "cubic_coeff_a", -0.75)
    is_strict = attribute(n, "exclude_outside", 0)
    if mode == "nearest":
        # Upsample rounds towards what it has more of
        default = ("floor" if scale >= 1 else "ceil") if is_upsample else "round_prefer_floor"
        nearest = _ROUND[attribute(n, "nearest_mode", default)](at)
        weights = _weights_by_element(nearest[:, None], np.ones((length, 1)), extent, False)
    elif attribute(n, "antialias", 0):
        kernel, reach = (_triangle, 1.0) if mode == "linear" else (lambda x: _cubic(x, a), 2.0)
        stretch = max(1.0 / scale, 1.0)
        taps = np.floor(at - reach * stretch)[:, None] + np.arange(2 * reach * stretch + 3)
        parts = kernel((taps - at[:, None]) / stretch)
        weights = _weights_by_element(taps, parts, extent, is_strict)
    elif mode == "linear":
        at_inside = np.clip(at, 0, extent - 1)
        taps = np.floor(at_inside)[:, None] + np.arange(2)
        weights = _weights_by_element(taps, _triangle(taps - at_inside[:, None]), extent, False)
    else:
        taps = np.floor(at)[:, None] + np.arange(-1, 3)
        weights = _weights_by_element(taps, _cubic(taps - at[:, None], a), extent, is_strict)
    if region is not None:
        weights[(at < 0) | (at > extent - 1)] = 0  # a number takes their place
    return weights


def _weights_by_element(taps, parts, extent, is_strict):
    """Weights by element: what lies outside is left out, or counts for the nearest inside."""
    if is_strict:
        parts = parts * ((taps >= 0) & (taps < extent))
    parts = parts / parts.sum(1, keepdims=True)
    weights = np.zeros((len(taps), extent))
    rows = np.broadcast_to(np.arange(len(taps))[:, None], taps.shape)
    np.add.at(weights, (rows, np.clip(taps, 0, extent - 1).astype(int)), parts)
    return weights


def _triangle(x):
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x, a):
    """The cubic convolution kernel with slope `a` at distance 1."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = a * (((x - 5) * x + 8) * x - 4)
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


def _coordinates(how, i, scale, extent, length, region):
    """The place of each element of the result on the axis, in the runtime's single precision."""
    scale = np.float32(scale)
    centre = (i + np.float32(0.5)) / scale - np.float32(0.5)
    if how == "half_pixel" or (how == "pytorch_half_pixel" and length > 1):
        return centre
    if how == "half_pixel_symmetric":
        return centre + np.float32(extent / 2 * (1 - length / (float(scale) * extent)))
    if how == "asymmetric":
        return i / scale
    if how == "tf_half_pixel_for_nn":
        return centre + np.float32(0.5)
    if how == "tf_crop_and_resize":
        first, last = (p * (extent - 1) for p in region)
        if length == 1:
            return i + np.float32((first + last) / 2)
        return (first + i * (last - first) / (length - 1)).astype(np.float32)
    if length == 1:
        return i * 0
    return i * np.float32(extent - 1) / np.float32(length - 1)


_ROUND = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round_prefer_floor": lambda at: np.ceil(at - 0.5),
    "round_prefer_ceil": lambda at: np.floor(at + 0.5),
}


@vjp("SpaceToDepth")
def _(b, n, g):
    return b.DepthToSpace(g, blocksize=attribute(n, "blocksize"))


@vjp("DepthToSpace")
def _(b, n, g):
    k = attribute(n, "blocksize")
    if attribute(n, "mode", "DCR") == "DCR":
        return b.SpaceToDepth(g, blocksize=k)
    images, channels, h, w = dims(g)
    blocks = b.Reshape(g, [images, channels, h // k, k, w // k, k])
    return b.Reshape(b.Transpose(blocks, perm=[0, 1, 3, 5, 2, 4]), list(dims(n.inputs[0])))
