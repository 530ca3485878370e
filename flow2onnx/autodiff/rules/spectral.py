"""Fourier transforms: the gradient is the adjoint transform."""

import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, no_gradient, vjp
from flow2onnx.graph.types import constant_of, dims, dtype_of, rank_of


@vjp("DFT")
def _(b, n, g):
    x, axis = n.inputs[0], _axis(b, n)
    is_inverse, is_onesided = (bool(attribute(n, k, 0)) for k in ("inverse", "onesided"))
    length = _length(n, axis, is_inverse and is_onesided)
    if is_inverse and is_onesided:
        return _one_sided_inverse(b, x, g, axis, length), None, None
    if is_onesided:
        g = _resize_axis(b, g, axis, length)
    # the adjoint has the other sign of the exponent, and the same factor
    back = _transform(b, g, axis, inverse=not is_inverse)
    whole = b.Div(back, float(length)) if is_inverse else b.Mul(back, float(length))
    whole = _resize_axis(b, whole, axis, dims(x)[axis])
    return b.Slice(whole, [0], [dims(x)[-1]], [rank_of(x) - 1]), None, None


def _axis(b, n):
    rank = rank_of(n.inputs[0])
    if b.opset < 20:
        return attribute(n, "axis", 1) % rank
    given = n.inputs[2] if len(n.inputs) > 2 else None
    place = np.asarray(-2) if given is None else constant_of(given)
    if place is None:
        raise no_gradient(n, "along an axis known only at run time")
    return int(place) % rank


def _length(n, axis, is_half):
    given = n.inputs[1] if len(n.inputs) > 1 else None
    if given is None:
        extent = dims(n.inputs[0])[axis]
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
    have, rank = dims(x)[axis], rank_of(x)
    if have > extent:
        return b.Slice(x, [0], [extent], [axis])
    pads = [0] * (2 * rank)
    pads[rank + axis] = extent - have
    return b.Pad(x, pads) if have < extent else x


def _one_sided_inverse(b, x, g, axis, length):
    """Of real numbers from half a spectrum: what stood for two conjugates counts twice."""
    half = _resize_axis(b, _transform(b, g, axis, inverse=False), axis, length // 2 + 1)
    weight = np.full(length // 2 + 1, 2.0 / length)
    weight[0] /= 2
    if length % 2 == 0:
        weight[-1] /= 2
    shape = [-1 if i == axis else 1 for i in range(rank_of(x))]
    weighted = b.Mul(half, weight.reshape(shape).astype(dtype_of(x).numpy))
    return _resize_axis(b, weighted, axis, dims(x)[axis])


@expansion("STFT")
def _(b, n):
    signal, step, window, length = [*n.inputs, None, None][:4]
    size = dims(window)[0] if window is not None else _constant(n, length)
    count = (dims(signal)[1] - size) // _constant(n, step) + 1
    places = np.arange(count)[:, None] * _constant(n, step) + np.arange(size)
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
