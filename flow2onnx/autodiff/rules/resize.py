"""Resizing, and blocks of an image as channels."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.dtypes import float32
from flow2onnx.errors import UnknownShapeError
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dtype_of, rank_of, sizes_of
from flow2onnx.lowering.dimensions import check_constant, positions


@vjp("Resize", "Upsample")
def _(b, n, g):
    # every axis is a product with a matrix: its transpose takes the gradient back
    for axis, weights in enumerate(_matrices(b, n)):
        if isinstance(weights, np.ndarray):
            g = _multiply_along(b, g, axis, weights.astype(dtype_of(g).numpy))
        elif weights is not None:
            g = _multiply_last(b, g, axis, b.Cast(weights, to=dtype_of(g)))
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
        shape = extents(b, g)
        split = b.Reshape(g, [*shape[:axis], extent, k, *shape[axis + 1 :]])
        return b.ReduceSum(split, [axis + 1], keepdims=0)
    if axis == rank_of(g) - 1:
        return b.MatMul(g, weights)
    if axis == rank_of(g) - 2:
        return b.MatMul(np.ascontiguousarray(weights.T), g)
    order = [i for i in range(rank_of(g)) if i != axis] + [axis]
    product = b.MatMul(b.Transpose(g, perm=order), weights)
    return b.Transpose(product, perm=[int(i) for i in np.argsort(order)])


def _multiply_last(b, g, axis, weights):
    """The product of `axis` of `g` with `weights` (length, extent), known at run time only."""
    order = [i for i in range(rank_of(g)) if i != axis] + [axis]
    product = b.MatMul(b.Transpose(g, perm=order), weights)
    return b.Transpose(product, perm=[int(i) for i in np.argsort(order)])


def _matrices(b, n):
    """For each axis how much of each element is in each element of the result; None if all is.

    An array, or a value of the graph where that depends on what is known at run time only.
    """
    x, y = n.inputs[0], n.outputs[0]
    axes = [int(a) % rank_of(x) for a in attribute(n, "axes", range(rank_of(x)))]
    scales, regions = _scales(n, axes), _regions(n, axes)
    for axis, (extent, length) in enumerate(zip(extents(b, x), extents(b, y), strict=True)):
        scale = scales.get(axis, 1.0)
        # the runtime leaves an axis of scale 1 alone, also where a region is cut out
        if scale == 1 or (scale == _BY_SIZE and extent == length):
            yield None
        elif is_known(extent, length) and isinstance(scale, float) and regions is not None:
            yield _matrix(n, scale, extent, length, regions.get(axis))
        else:
            yield _matrix_at_run_time(b, n, axes.index(axis), extent, length)


# What stands for a factor that sizes known at run time decide on, or that is given only then.
_BY_SIZE = "by size"
_GIVEN = "given"


def _scales(n, axes):
    """The factor of each axis as the runtime computes it, which the shapes alone do not tell."""
    position = 1 if n.op_type == "Upsample" else 2
    scales, sizes = [*n.inputs[position:], None, None][:2]
    if sizes is None:
        known = constant_of(scales)
        if known is None:
            return dict.fromkeys(axes, _GIVEN)
        return dict(zip(axes, map(float, known), strict=True))
    have, wanted = sizes_of(n.inputs[0]), _known_sizes(sizes, len(axes))
    factors = [
        float(w) / have[a] if isinstance(w, int) and isinstance(have[a], int) else _BY_SIZE
        for a, w in zip(axes, wanted, strict=True)
    ]
    policy = attribute(n, "keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        if _BY_SIZE in factors:
            raise UnknownShapeError(f"the one factor of {policy} depends on free sizes")
        one = min(factors) if policy == "not_larger" else max(factors)
        factors = [one] * len(axes)
    return dict(zip(axes, factors, strict=True))


def _known_sizes(operand, count):
    """The sizes asked for: numbers, and names or None for those known at run time only."""
    content = constant_of(operand)
    if content is not None:
        return [int(d) for d in content]
    return operand.meta.get("sizes", (None,) * count)


def _regions(n, axes):
    """The cut of each axis that is resized, for the one mode that cuts; None if not known."""
    if attribute(n, "coordinate_transformation_mode", "half_pixel") != "tf_crop_and_resize":
        return {}
    region = constant_of(n.inputs[1])
    if region is None:
        return None
    ends = np.reshape(region, (2, len(axes))).astype(float)
    return {a: (float(p), float(q)) for a, p, q in zip(axes, *ends, strict=True)}


def _matrix_at_run_time(b, n, place, extent, length):
    """The node along one axis of its `axes`, applied to each element alone: (length, extent)."""
    if n.op_type == "Upsample":
        raise no_gradient(n, "over an axis known only at run time")
    every = positions(b, extent)
    alone = b.Cast(b.Equal(b.Unsqueeze(every, [0]), b.Unsqueeze(every, [1])), to=float32)
    region, scales, sizes = [*n.inputs[1:], None, None, None][:3]
    operands = [None, None, None]
    kept = {k: a.value for k, a in n.attributes.items() if k not in _NOT_ALONG_ONE_AXIS}
    if kept.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        count = b.Div(b.Size(region), np.int64(2))
        last = b.Add(b.Reshape(count, [1]), np.int64(place))
        ends = b.Slice(region, [place], [place + 1]), b.Gather(region, last)
        none, all_ = (b.like(np.full(3, v), region) for v in (0.0, 1.0))
        operands[0] = b.Cast(b.Concat(none, ends[0], all_, ends[1], axis=0), to=float32)
    if sizes is not None:
        operands[2] = b.vector([1, 1, extent, length])
    else:
        factor = b.Slice(scales, [place], [place + 1])
        operands[1] = b.Concat(b.const(np.ones(3, np.float32)), factor, axis=0)
    made = b.emit("Resize", (b.Unsqueeze(alone, [0, 1]), *operands), kept)[0]
    return b.Transpose(b.Squeeze(made, [0, 1]), perm=[1, 0])


# A number in the place of what lies outside is in no element; the other two are of all axes.
_NOT_ALONG_ONE_AXIS = ("axes", "extrapolation_value", "keep_aspect_ratio_policy")


def _matrix(n, scale, extent, length, region):
    is_upsample = n.op_type == "Upsample"
    how = attribute(
        n, "coordinate_transformation_mode", "asymmetric" if is_upsample else "half_pixel"
    )
    check_constant(extent, length)
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
    mode = attribute(n, "mode", "DCR")  # of opset 28; before it there was this one
    order = {} if mode == "DCR" else {"mode": mode}
    return b.DepthToSpace(g, blocksize=attribute(n, "blocksize"), **order)


@vjp("DepthToSpace")
def _(b, n, g):
    k = attribute(n, "blocksize")
    if attribute(n, "mode", "DCR") == "DCR":
        return b.SpaceToDepth(g, blocksize=k)
    images, channels = extents(b, g)[:2]
    h, w = extents(b, n.inputs[0])[2:]
    blocks = b.Reshape(g, [images, channels, h, k, w, k])
    blocks = b.Transpose(blocks, perm=[0, 1, 3, 5, 2, 4])
    return b.Reshape(blocks, list(extents(b, n.inputs[0])))
