"""The gradient of a convolution in its kernel, in several forms.

The rule between them is measured on the CPU provider, of one thread; that for GPUs is computed.
"""

import math

import numpy as np

from flow2onnx.autodiff.rules.convolution_gpu import weight_form
from flow2onnx.autodiff.rules.depthwise_toeplitz import (
    has_small_images,
    is_fast,
    tap_masks,
    tap_masks_along,
)
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import dtype_of
from flow2onnx.lowering.forms import Lowering


def _pick_form(s, x, g):
    if not is_known(s.ci, s.co):
        return "swapped_conv"
    if s.is_pointwise:
        return "flat_product" if is_known(s.spread) and s.spread < 256 else "batched_product"
    if s.is_dense and s.ci > 4:
        return "row_stack" if _is_wide(s) else "nhwc_taps"
    if s.is_dense and s.is_unit_stride:
        return "im2col_by_image"
    if is_fast(s):
        return "toeplitz"
    if s.is_dense or len(s.kernel) != 2:
        return "swapped_conv"
    if s.ci // s.groups >= 16:
        return "grouped_taps"
    if _has_bands(s) and s.extents[-1] <= 64:
        return "bands"
    is_slow_swap = s.is_depthwise and s.is_unit_stride and math.prod(s.kernel) <= 9
    return "tap_sums" if is_slow_swap else "swapped_conv"


def _is_wide(s):
    """True for batches of large images, of no more channels behind: products of few rows."""
    if not (_has_rows(s) and is_known(s.n, s.spread)):
        return False
    return s.co <= min(s.ci, 128) and s.spread >= 1024 and s.n * s.ci * s.spread >= 1 << 20


def _is_dense(s, *_):
    return s.is_dense


def _has_rows(s, *_):
    """True if the rows of images are known, and windows begin at each."""
    return s.has_known_sizes and s.is_dense and s.is_unit_stride and s.before[0] <= s.reach[0]


def _is_pointwise(s, *_):
    return s.is_pointwise


weight_gradient = Lowering("Conv.dW", _pick_form, on_cuda=weight_form)


# --- one tap -------------------------------------------------------------------------------------
def _strided_input(b, s, x):
    """The elements of the input that the windows of a pointwise convolution hold."""
    if s.is_unit_stride:
        return x
    ends = [(o - 1) * st + 1 for o, st in zip(s.outputs, s.strides, strict=True)]
    return b.Slice(x, [0] * len(ends), ends, s.axes, list(s.strides))


@weight_gradient.form("batched_product", when=_is_pointwise)
def _(b, s, x, g):
    gs, xs = b.Reshape(g, [s.n, s.co, -1]), b.Reshape(_strided_input(b, s, x), [s.n, s.ci, -1])
    per_image = b.MatMul(gs, b.Transpose(xs, perm=[0, 2, 1]))
    return b.Reshape(b.ReduceSum(per_image, [0], keepdims=0), [s.co, s.ci, *s.kernel])


@weight_gradient.form("flat_product", when=_is_pointwise)
def _(b, s, x, g):
    rows = b.Reshape(b.Transpose(_strided_input(b, s, x), perm=[0, *s.axes, 1]), [-1, s.ci])
    return b.Reshape(b.MatMul(_channel_rows(b, s, g), rows), [s.co, s.ci, *s.kernel])


# --- many taps -----------------------------------------------------------------------------------
def _channel_rows(b, s, g):
    """(channel out, elements of all images)"""
    return b.Reshape(b.Transpose(g, perm=[1, 0, *s.axes]), [s.co, -1])


def _channels_last(b, s, x):
    last = b.Transpose(x, perm=[0, *s.axes, 1])
    return b.Pad(last, [0, *s.before, 0, 0, *s.after, 0]) if any(s.before + s.after) else last


def _pad_input(b, s, x):
    return b.Pad(x, [0, 0, *s.before, 0, 0, *s.after]) if any(s.before + s.after) else x


def _to_kernel(b, s, taps_first):
    """(channel out, taps, channel in) as the kernel."""
    stacked = b.Reshape(taps_first, [s.co, *s.kernel, s.ci])
    return b.Transpose(stacked, perm=[0, len(s.kernel) + 1, *range(1, len(s.kernel) + 1)])


@weight_gradient.form("nhwc_taps", when=_is_dense)
def _(b, s, x, g):
    """One product for each tap over a channels-last input."""
    last, rows = _channels_last(b, s, x), _channel_rows(b, s, g)
    axes, steps = [a - 1 for a in s.axes], list(s.strides)
    taps = [
        b.MatMul(rows, b.Reshape(b.Slice(last, lo, hi, axes, steps), [-1, s.ci]))
        for lo, hi in s.taps()
    ]
    return _to_kernel(b, s, taps[0] if len(taps) == 1 else b.Concat(*taps, axis=1))


@weight_gradient.form("nchw_taps", when=_is_dense)
def _(b, s, x, g):
    """One product for each tap and image."""
    padded, gs, steps = _pad_input(b, s, x), b.Reshape(g, [s.n, s.co, -1]), list(s.strides)
    taps = []
    for lo, hi in s.taps():
        tap = b.Reshape(b.Slice(padded, lo, hi, s.axes, steps), [s.n, s.ci, -1])
        per_image = b.MatMul(gs, b.Transpose(tap, perm=[0, 2, 1]))
        taps.append(b.ReduceSum(per_image, [0], keepdims=0))
    return _to_kernel(b, s, taps[0] if len(taps) == 1 else b.Concat(*taps, axis=1))


@weight_gradient.form("im2col", when=_is_dense)
def _(b, s, x, g):
    """One product over the windows of all images."""
    last, axes, steps = _channels_last(b, s, x), [a - 1 for a in s.axes], list(s.strides)
    taps = [b.Slice(last, lo, hi, axes, steps) for lo, hi in s.taps()]
    joined = taps[0] if len(taps) == 1 else b.Concat(*taps, axis=len(s.kernel) + 1)
    columns = b.Reshape(joined, [-1, math.prod(s.kernel) * s.ci])
    return _to_kernel(b, s, b.MatMul(_channel_rows(b, s, g), columns))


@weight_gradient.form("im2col_by_image", when=_is_dense)
def _(b, s, x, g):
    """One product for each image over its windows: for few input channels."""
    padded, steps = _pad_input(b, s, x), list(s.strides)
    taps = [b.Slice(padded, lo, hi, s.axes, steps) for lo, hi in s.taps()]
    joined = taps[0] if len(taps) == 1 else b.Concat(*taps, axis=1)
    columns = b.Reshape(joined, [s.n, math.prod(s.kernel) * s.ci, -1])
    per_image = b.MatMul(b.Reshape(g, [s.n, s.co, -1]), b.Transpose(columns, perm=[0, 2, 1]))
    return _to_kernel(b, s, b.ReduceSum(per_image, [0], keepdims=0))


@weight_gradient.form("row_stack", when=_has_rows)
def _(b, s, x, g):
    """The gradient once for each row of taps, moved by so many rows, the copies as one matrix.

    A product for each of the other taps has so many more rows that packing its operands is cheap.
    """
    h, (ho, *outputs), (rows, *others) = s.extents[0], s.outputs, s.kernel
    above, width = s.reach[0] - s.before[0], math.prod(outputs)
    below = h - 1 + s.before[0] - (ho - 1)
    rest = [0] * len(others)
    wide = b.Pad(g, [0, 0, above, *rest, 0, 0, below, *rest]) if above or below else g
    wide = b.Reshape(wide, [s.n, s.co, -1])
    starts = [(s.reach[0] - i * s.dilations[0]) * width for i in range(rows)]
    moved = [b.Slice(wide, [at], [at + h * width], [2]) for at in starts]
    stack = moved[0] if rows == 1 else b.Concat(*moved, axis=1)
    if any(s.before[1:] + s.after[1:]):
        x = b.Pad(x, [0, 0, 0, *s.before[1:], 0, 0, 0, *s.after[1:]])
    parts = []
    for tap in np.ndindex(*others):
        part = x
        if others:
            low = [i * d for i, d in zip(tap, s.dilations[1:], strict=True)]
            part = b.Slice(x, low, [a + o for a, o in zip(low, outputs, strict=True)], s.axes[1:])
        part = b.Transpose(b.Reshape(part, [s.n, s.ci, -1]), perm=[0, 2, 1])
        part = b.ReduceSum(b.MatMul(stack, part), [0], keepdims=0)
        parts.append(b.Reshape(part, [rows, s.co, 1, s.ci]))
    joined = parts[0] if len(parts) == 1 else b.Concat(*parts, axis=2)
    return b.Reshape(b.Transpose(joined, perm=[1, 3, 0, 2]), [s.co, s.ci, *s.kernel])


@weight_gradient.form("swapped_conv")
def _(b, s, x, g):
    """Input and gradient with batch and channel axes swapped: strides become dilations."""
    per_group = s.ci // s.groups
    grouped = b.Reshape(x, [s.n, s.groups, per_group, *s.extents])
    images = b.Transpose(grouped, perm=[2, 1, 0, *(a + 1 for a in s.axes)])
    images = b.Reshape(images, [per_group, s.groups * s.n, *s.extents])
    kernels = b.Transpose(_hide_pad(b, g), perm=[1, 0, *s.axes])
    pads = s.before + s.after
    if not is_known(*pads):
        images, pads = _pad_input(b, s, images), (0,) * len(pads)
    y = b.Conv(images, kernels, strides=s.dilations, dilations=s.strides, group=s.groups, pads=pads)
    if extents(b, y)[2:] != s.kernel:
        y = b.Slice(y, [0] * len(s.axes), list(s.kernel), s.axes)
    return b.Transpose(y, perm=[1, 0, *s.axes])


def _hide_pad(b, g):
    """`g`, from behind a reshape if it was padded: the runtime takes pads into a convolution.

    It does so at the kernel too, where that gives a graph which it then refuses.
    """
    maker = g.producer()
    while maker is not None and maker.op_type == "Transpose":
        maker = maker.inputs[0].producer()
    if maker is None or maker.op_type != "Pad":
        return g
    return b.Reshape(b.Reshape(g, [-1]), list(extents(b, g)))


# --- groups --------------------------------------------------------------------------------------
@weight_gradient.form("grouped_taps", when=lambda s, *_: not s.is_dense)
def _(b, s, x, g):
    """One product for each tap and group over a channels-last input."""
    per_in, axes = s.ci // s.groups, [*range(2, 2 + len(s.kernel))]
    grouped = b.Reshape(x, [s.n, s.groups, per_in, *s.extents])
    last = b.Transpose(grouped, perm=[1, 0, *(a + 1 for a in s.axes), 2])
    if any(s.before + s.after):
        last = b.Pad(last, [0, 0, *s.before, 0, 0, 0, *s.after, 0])
    rows = b.Reshape(b.Transpose(g, perm=[1, 0, *s.axes]), [s.groups, s.co // s.groups, -1])
    steps = list(s.strides)
    taps = [
        b.MatMul(rows, b.Reshape(b.Slice(last, lo, hi, axes, steps), [s.groups, -1, per_in]))
        for lo, hi in s.taps()
    ]
    joined = taps[0] if len(taps) == 1 else b.Concat(*taps, axis=2)
    stacked = b.Reshape(joined, [s.co, *s.kernel, per_in])
    return b.Transpose(stacked, perm=[0, len(s.kernel) + 1, *range(1, len(s.kernel) + 1)])


def _is_depthwise(s, *_):
    return s.is_depthwise


@weight_gradient.form("tap_sums", when=_is_depthwise)
def _(b, s, x, g):
    """One elementwise product and sum for each tap."""
    padded, steps = _pad_input(b, s, x), list(s.strides)
    taps = [
        b.ReduceSum(b.Mul(b.Slice(padded, lo, hi, s.axes, steps), g), [0, *s.axes], keepdims=0)
        for lo, hi in s.taps()
    ]
    stacked = b.Concat(*(b.Reshape(t, [s.co, 1]) for t in taps), axis=1)
    return b.Reshape(stacked, [s.co, 1, *s.kernel])


def _has_bands(s, *_):
    # the products of the last axes, of which all but a band is thrown away, are held at once
    sizes = (s.ci, s.co, *s.extents, *s.outputs, *s.before, *s.after)
    if len(s.kernel) != 2 or not is_known(*sizes):
        return False
    held = s.co * (s.ci // s.groups) * s.outputs[-1] * s.extents[-1]
    return held <= _LARGEST_PRODUCT


_LARGEST_PRODUCT = 1 << 24


@weight_gradient.form("bands", when=_has_bands)
def _(b, s, x, g):
    """Products of whole rows in each group, of which the diagonals that are taps are summed.

    More work than there need be, but as matrix products.
    """
    (_, wo), (h, w), (kh, kw) = s.outputs, s.extents, s.kernel
    per_in, per_out = s.ci // s.groups, s.co // s.groups
    wide = b.Pad(x, [0, 0, s.before[0], 0, 0, 0, s.after[0], 0]) if any(_row_pads(s)) else x
    xs = b.Reshape(wide, [s.n, s.groups, per_in, h + sum(_row_pads(s)), w])
    xs = b.Transpose(xs, perm=[1, 0, 3, 2, 4])  # group, image, row, channel in, column
    gs = b.Transpose(b.Reshape(g, [s.n, s.groups, per_out, -1, wo]), perm=[1, 0, 3, 2, 4])
    # the runtime takes a swap of the last axes into the product
    gs = b.Transpose(b.Reshape(gs, [s.groups, -1, per_out * wo]), perm=[0, 2, 1])
    span = (s.outputs[0] - 1) * s.strides[0] + 1
    rows = [
        b.MatMul(gs, b.Reshape(_rows(b, s, xs, i * s.dilations[0], span),
                               [s.groups, -1, per_in * w]))
        for i in range(kh)
    ]  # fmt: skip
    pairs = b.Concat(*(b.Unsqueeze(r, [1]) for r in rows), axis=1) if kh > 1 else rows[0]
    pairs = b.Reshape(pairs, [s.groups * kh, per_out, wo, per_in, w])
    pairs = b.Transpose(pairs, perm=[0, 1, 3, 2, 4])
    taps = b.MatMul(b.Reshape(pairs, [-1, wo * w]), b.const(_diagonals(s, dtype_of(g))))
    taps = b.Reshape(taps, [s.groups, kh, per_out, per_in, kw])
    return b.Reshape(b.Transpose(taps, perm=[0, 2, 3, 1, 4]), [s.co, per_in, kh, kw])


def _row_pads(s):
    return s.before[0], s.after[0]


def _rows(b, s, xs, first, span):
    """Of each window the rows that one row of taps meets."""
    return b.Slice(xs, [first], [first + span], [2], [s.strides[0]])


def _diagonals(s, dtype):
    """For each pair of columns, out and in, the tap that joins them."""
    found = tap_masks_along(s, 1).transpose(2, 1, 0)
    return found.reshape(-1, s.kernel[1]).astype(dtype.numpy)


@weight_gradient.form("toeplitz", when=has_small_images)
def _(b, s, x, g):
    """Products of all elements of the images with all of the gradient, of which taps are sums."""
    columns = b.Reshape(b.Transpose(x, perm=[1, *s.axes, 0]), [s.co, -1, s.n])
    rows = b.Reshape(b.Transpose(g, perm=[1, 0, *s.axes]), [s.co, s.n, -1])
    pairs = b.Reshape(b.MatMul(columns, rows), [s.co, -1])
    of_taps = tap_masks(s, dtype_of(g)).reshape(math.prod(s.kernel), -1).T
    return b.Reshape(b.MatMul(pairs, b.const(np.ascontiguousarray(of_taps))), [s.co, 1, *s.kernel])
