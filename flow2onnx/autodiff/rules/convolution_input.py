"""The gradient of a convolution in its input, in several forms.

The rule between them is measured on the CPU provider, of one thread; that for GPUs is computed.
"""

import itertools
import math

import numpy as np

from flow2onnx.autodiff.rules.convolution_gpu import input_form
from flow2onnx.autodiff.rules.depthwise_toeplitz import has_small_images, is_fast, tap_masks
from flow2onnx.autodiff.rules.windows import spread_windows
from flow2onnx.graph.dimension import is_known
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.lowering.forms import Lowering


def _pick_form(s, w, g):
    if not is_known(s.ci, s.co):
        return "conv_transpose"
    if s.is_pointwise and s.is_unit_stride:
        return "conv"
    if _has_product(s) and s.co >= 128 and is_known(s.spread) and s.spread <= 64:
        return "nhwc_product" if s.spread < 64 else "conv"
    if _has_product(s) and max(s.kernel) <= 3 and (min(s.ci, s.co) >= 64 or _is_large(s)):
        return "conv"
    if is_fast(s):
        return "toeplitz"
    if s.is_depthwise and _is_convolution(s) and max(s.kernel) <= 5:
        return "conv"
    if _has_phases(s) and s.spread < 64 and _has_large_kernel(s):
        return "phases"
    return "conv_transpose"


def _has_large_kernel(s):
    """True if a kernel leaves the caches, which is read once for each image, or once for all."""
    return s.ci * s.co * math.prod(s.kernel) >= 1 << 20 and is_known(s.n) and s.n > 1


def _is_large(s):
    """True if the windows of an image leave the caches, which transposing a convolution makes."""
    return is_known(s.spread) and s.ci * math.prod(s.kernel) * s.spread >= 1 << 20


def _is_convolution(s, *_):
    """True if the gradient is a convolution: no strides, and no pads wider than the kernel."""
    if not (s.is_unit_stride and is_known(*s.before, *s.after)):
        return False
    return all(max(p, q) <= r for r, p, q in zip(s.reach, s.before, s.after, strict=True))


def _has_product(s, *_):
    return s.is_dense and _is_convolution(s)


def _has_phases(s, *_):
    """True if strides leave no element of the image without a tap."""
    has_strides = s.is_dense and not s.is_unit_stride
    return has_strides and s.has_known_sizes and all(map(all, _phases(s)))


def _phases(s):
    """Axis by axis, for each element up to the stride: the taps that reach it, and from how far.

    A tap (index, distance) reaches it, and those strides further, from so many outputs further.
    """
    return [
        [
            [(i, (at + p - i * d) // step) for i in range(k) if (at + p - i * d) % step == 0]
            for at in range(step)
        ]
        for step, k, d, p in zip(s.strides, s.kernel, s.dilations, s.before, strict=True)
    ]


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


@input_gradient.form("phases", when=_has_phases)
def _(b, s, w, g):
    """One product for each place between two strides, over the taps that reach it, channels last.

    A transposed convolution multiplies each image by itself, and adds windows up.
    """
    phases, rank = _phases(s), len(s.kernel)
    lengths = [-(-h // step) for h, step in zip(s.extents, s.strides, strict=True)]
    low, high = _pads(s, phases, lengths)
    last = b.Transpose(g, perm=[0, *s.axes, 1])
    if any(low + high):
        last = b.Pad(last, [0, *low, 0, 0, *high, 0])
    by_tap = b.Reshape(b.Transpose(w, perm=[*s.axes, 0, 1]), [-1, s.co, s.ci])
    parts = []
    for phase in itertools.product(*phases):
        taps = [*itertools.product(*phase)]
        starts = [[p + far for p, (_, far) in zip(low, tap, strict=True)] for tap in taps]
        moved = [
            b.Slice(last, at, [a + n for a, n in zip(at, lengths, strict=True)], [*_image_axes(s)])
            for at in starts
        ]
        joined = moved[0] if len(moved) == 1 else b.Concat(*moved, axis=rank + 1)
        places = [np.ravel_multi_index([i for i, _ in tap], s.kernel) for tap in taps]
        rows = b.Reshape(b.Gather(by_tap, np.asarray(places, np.int64), axis=0), [-1, s.ci])
        parts.append(b.MatMul(b.Reshape(joined, [-1, len(taps) * s.co]), rows))
    placed = b.Reshape(b.Concat(*parts, axis=1), [s.n, *lengths, *s.strides, s.ci])
    pairs = [axis for i in _image_axes(s) for axis in (i, i + rank)]
    y = b.Transpose(placed, perm=[0, 2 * rank + 1, *pairs])
    covered = tuple(n * step for n, step in zip(lengths, s.strides, strict=True))
    y = b.Reshape(y, [s.n, s.ci, *covered])
    return y if covered == s.extents else b.Slice(y, [0] * rank, [*s.extents], s.axes)


def _pads(s, phases, lengths):
    """The pads before and behind the outputs, axis by axis, that the taps reach."""
    far = [[f for taps in axis for _, f in taps] for axis in phases]
    low = [max(0, -min(fs)) for fs in far]
    ends = zip(lengths, far, s.outputs, strict=True)
    return low, [max(0, n + max(fs) - o) for n, fs, o in ends]


@input_gradient.form("toeplitz", when=has_small_images)
def _(b, s, w, g):
    """A product with the matrix of each channel, whose diagonals are its taps."""
    across = tap_masks(s, dtype_of(g)).transpose(0, 2, 1).reshape(math.prod(s.kernel), -1)
    matrices = b.MatMul(b.Reshape(w, [s.co, -1]), b.const(across))
    matrices = b.Reshape(matrices, [s.co, s.spread, math.prod(s.extents)])
    rows = b.Reshape(b.Transpose(g, perm=[1, 0, *s.axes]), [s.co, s.n, s.spread])
    y = b.Reshape(b.MatMul(rows, matrices), [s.co, s.n, *s.extents])
    return b.Transpose(y, perm=[1, 0, *s.axes])


def _image_axes(s):
    """The axes of an image whose channels come last."""
    return range(1, 1 + len(s.kernel))
