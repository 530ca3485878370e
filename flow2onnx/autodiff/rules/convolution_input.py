"""The gradient of a convolution in its input, in several forms.

The rule between them is measured on the CPU provider, of one thread; that for GPUs is computed.
"""

import math

from flow2onnx.autodiff.rules.convolution_gpu import input_form
from flow2onnx.autodiff.rules.windows import spread_windows
from flow2onnx.graph.dimension import is_known
from flow2onnx.graph.types import dims
from flow2onnx.lowering.forms import Lowering


def _pick_form(s, w, g):
    if not is_known(s.ci, s.co):
        return "conv_transpose"
    if s.is_pointwise and s.is_unit_stride:
        return "conv"
    if _has_product(s) and s.co >= 128 and is_known(s.spread) and s.spread <= 64:
        return "nhwc_product" if s.spread < 64 else "conv"
    if _has_product(s) and min(s.ci, s.co) >= 64 and max(s.kernel) <= 3:
        return "conv"
    return "conv_transpose"


def _is_convolution(s, *_):
    """True if the gradient is a convolution: no strides, and no pads wider than the kernel."""
    if not (s.is_unit_stride and is_known(*s.before, *s.after)):
        return False
    return all(max(p, q) <= r for r, p, q in zip(s.reach, s.before, s.after, strict=True))


def _has_product(s, *_):
    return s.is_dense and _is_convolution(s)


input_gradient = Lowering("Conv.dX", _pick_form, on_cuda=input_form)


@input_gradient.form("conv_transpose")
def _(b, s, w, g):
    return spread_windows(b, s, g, w, group=s.groups)


@input_gradient.form("conv", when=_is_convolution)
def _(b, s, w, g):
    """A convolution with the kernel turned around, its channel axes swapped in each group."""
    around = [i for i, k in enumerate(s.kernel, 2) if k > 1]
    if around:
        ends = [-dims(w)[a] - 1 for a in around]
        w = b.Slice(w, [-1] * len(around), ends, around, [-1] * len(around))
    kernel = b.Reshape(w, [s.groups, s.co // s.groups, s.ci // s.groups, *s.kernel])
    kernel = b.Transpose(kernel, perm=[0, 2, 1, *(a + 1 for a in s.axes)])
    kernel = b.Reshape(kernel, [s.ci, s.co // s.groups, *s.kernel])
    before, after = (
        [r - p for r, p in zip(s.reach, pads, strict=True)] for pads in (s.before, s.after)
    )
    return b.Conv(g, kernel, dilations=s.dilations, group=s.groups, pads=before + after)


@input_gradient.form("nhwc_product", when=_has_product)
def _(b, s, w, g):
    """One matrix product over all taps; taps in reverse order stand for the flipped kernel."""
    low, high = (
        [r - p for r, p in zip(s.reach, pads, strict=True)] for pads in (s.before, s.after)
    )
    last = b.Transpose(g, perm=[0, *s.axes, 1])
    if any(low + high):
        last = b.Pad(last, [0, *low, 0, 0, *high, 0])
    taps = [
        b.Slice(last, at, [a + h for a, h in zip(at, s.extents, strict=True)], [*_image_axes(s)])
        for at, _ in reversed([*s.taps()])
    ]
    joined = taps[0] if len(taps) == 1 else b.Concat(*taps, axis=len(s.kernel) + 1)
    rows = b.Transpose(w, perm=[*s.axes, 0, 1])
    rows = b.Reshape(rows, [math.prod(s.kernel) * s.co, s.ci])
    flat = b.Reshape(joined, [-1, math.prod(s.kernel) * s.co])
    product = b.Reshape(b.MatMul(flat, rows), [s.n, *s.extents, s.ci])
    return b.Transpose(product, perm=[0, len(s.kernel) + 1, *_image_axes(s)])


def _image_axes(s):
    """The axes of an image whose channels come last."""
    return range(1, 1 + len(s.kernel))
