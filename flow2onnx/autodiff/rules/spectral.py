"""Fourier transforms: the gradient is the adjoint transform."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, no_gradient, vjp
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dims, dtype_of, rank_of
from flow2onnx.lowering.dimensions import check_constant, divide, multiply, positions


@vjp("DFT")
def _(b, n, g):
    x, axis = n.inputs[0], _axis(b, n)
    is_inverse, is_onesided = (bool(attribute(n, k, 0)) for k in ("inverse", "onesided"))
    length = _length(b, n, axis, is_inverse and is_onesided)
    if is_inverse and is_onesided:
        return _one_sided_inverse(b, x, g, axis, length), None, None
    if is_onesided:
        g = _resize_axis(b, g, axis, length)
    # the adjoint has the other sign of the exponent, and the same factor
    back = _transform(b, g, axis, inverse=not is_inverse)
    if is_inverse:
        whole = b.Div(back, float(length)) if is_known(length) else divide(b, back, length)
    else:
        whole = multiply(b, back, length)
    whole = _resize_axis(b, whole, axis, extents(b, x)[axis])
    return b.Slice(whole, [0], [extents(b, x)[-1]], [rank_of(x) - 1]), None, None


def _axis(b, n):
    rank = rank_of(n.inputs[0])
    if b.opset < 20:
        return attribute(n, "axis", 1) % rank
    given = n.inputs[2] if len(n.inputs) > 2 else None
    place = np.asarray(-2) if given is None else constant_of(given)
    if place is None:
        raise no_gradient(n, "along an axis known only at run time")
    return int(place) % rank


def _length(b, n, axis, is_half):
    given = n.inputs[1] if len(n.inputs) > 1 else None
    if given is None:
        extent = extents(b, n.inputs[0])[axis]
        return 2 * (extent - 1) if is_half else extent
    length = constant_of(given)
    if length is None:
        raise no_gradient(n, "of a length known only at run time")
    return int(length)


def _transform(b, x, axis, inverse):
    # the place of the axis in the operator changed in opset 20
    if b.opset < 20:
        return b.DFT(x, axis=axis, inverse=int(inverse))
    return b.DFT(x, None, np.int64(axis), inverse=int(inverse))


def _resize_axis(b, x, axis, extent):
    """`x` cut off, or filled with zeros, to `extent` along `axis`."""
    have, rank = extents(b, x)[axis], rank_of(x)
    if have == extent:
        return x
    if not is_known(have, extent):
        # as many zeros as are wanted, then cut
        pads = [0] * (2 * rank)
        pads[rank + axis] = extent
        return b.Slice(b.Pad(x, pads), [0], [extent], [axis])
    if have > extent:
        return b.Slice(x, [0], [extent], [axis])
    pads = [0] * (2 * rank)
    pads[rank + axis] = extent - have
    return b.Pad(x, pads) if have < extent else x


def _one_sided_inverse(b, x, g, axis, length):
    """Of real numbers from half a spectrum: what stood for two conjugates counts twice."""
    half = _resize_axis(b, _transform(b, g, axis, inverse=False), axis, length // 2 + 1)
    shape = [-1 if i == axis else 1 for i in range(rank_of(x))]
    weight = _spectrum_weights(b, length, dtype_of(x))
    beside = weight.reshape(shape) if is_known(length) else b.Reshape(weight, shape)
    return _resize_axis(b, b.Mul(half, beside), axis, extents(b, x)[axis])


def _spectrum_weights(b, length, dtype):
    """How often, divided by the length, each element of half a spectrum counts."""
    if not is_known(length):
        places = positions(b, length // 2 + 1)
        is_alone = b.Or(b.Equal(places, 0), b.Equal(b.Mul(places, 2), length))
        counts = b.Where(is_alone, b.const(1.0, dtype), b.const(2.0, dtype))
        return divide(b, counts, length)
    check_constant(length)
    weight = np.full(length // 2 + 1, 2.0 / length)
    weight[0] /= 2
    if length % 2 == 0:
        weight[-1] /= 2
    return weight.astype(dtype.numpy)


@expansion("STFT")
def _(b, n):
    signal, step, window, length = [*n.inputs, None, None][:4]
    size = dims(window)[0] if window is not None else _constant(n, length)
    jump = _constant(n, step)
    count = (extents(b, signal)[1] - size) // jump + 1
    if is_known(count):
        check_constant(count, size)
        places = b.const(np.arange(count)[:, None] * jump + np.arange(size))
    else:
        places = b.Add(b.Mul(b.Unsqueeze(positions(b, count), [1]), jump), np.arange(size))
    frames = b.Gather(signal, places, axis=1)
    if window is not None:
        frames = b.Mul(frames, b.Unsqueeze(window, [1]))
    options = {"onesided": attribute(n, "onesided", 1)}
    if b.opset < 20:
        return b.DFT(frames, axis=2, **options)
    return b.DFT(frames, None, np.int64(2), **options)


def _constant(n, value):
    found = constant_of(value)
    if found is None:
        raise no_gradient(n, "of frames known only at run time")
    return int(found)
