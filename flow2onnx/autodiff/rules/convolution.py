"""Convolutions. Shapes are static, so each gradient takes the form measured fastest for its shape.

The forms and the thresholds between them are measurements on the CPU provider with one thread.
"""

from dataclasses import dataclass

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.autodiff.rules.windows import Windows, halves, windows
from flow2onnx.graph import dims, rank_of


@dataclass(frozen=True)
class Shape(Windows):
    """One convolution: its windows, the images, channels in and out, groups."""

    n: int
    ci: int
    co: int
    groups: int

    @property
    def is_plain(self):
        """Two axes, one group, no dilation: where the measured forms apply."""
        return len(self.kernel) == 2 and self.groups == 1 and set(self.dilations) == {1}

    @property
    def is_pointwise(self):
        return self.is_plain and set(self.kernel) == {1} and not any(self.before + self.after)

    @property
    def spread(self):
        """Elements of one output channel of one image."""
        return self.outputs[0] * self.outputs[1]


def _shape(n):
    x, w = n.inputs[:2]
    at = windows(n, dims(w)[2:])
    groups = attribute(n, "group", 1)
    return Shape(**vars(at), n=dims(x)[0], ci=dims(x)[1], co=dims(w)[0], groups=groups)


@vjp("Conv")
def _(b, n, g):
    x, w, *bias = n.inputs
    shape = _shape(n)
    gx, gw = _input_gradient(b, shape, w, g), weight_gradient(b, shape, x, g)
    if not bias or bias[0] is None:
        return gx, gw
    return gx, gw, b.ReduceSum(g, [0, *range(2, rank_of(g))], keepdims=0)


def _input_gradient(b, s, w, g):
    if s.is_pointwise and set(s.strides) == {1}:
        return b.Conv(g, b.Transpose(w, perm=[1, 0, 2, 3]))
    if s.is_plain and set(s.strides) == {1} and s.spread <= 64 and s.co >= 128:
        return _input_by_product(b, s, w, g)
    left_over = [
        h - ((o - 1) * st - p - q + (k - 1) * d + 1)
        for h, o, st, p, q, k, d in zip(
            s.extents, s.outputs, s.strides, s.before, s.after, s.kernel, s.dilations, strict=True
        )
    ]
    return b.ConvTranspose(
        g, w, strides=s.strides, dilations=s.dilations, group=s.groups,
        pads=s.before + s.after, output_padding=left_over,
    )  # fmt: skip


def _input_by_product(b, s, w, g):
    """One matrix product over all taps; taps in reverse order stand for the flipped kernel."""
    kh, kw = s.kernel
    low = [k - 1 - p for k, p in zip(s.kernel, s.before, strict=True)]
    high = [k - 1 - q for k, q in zip(s.kernel, s.after, strict=True)]
    padded = b.Pad(b.Transpose(g, perm=[0, 2, 3, 1]), [0, *low, 0, 0, *high, 0])
    h, wd = s.extents
    taps = [
        b.Slice(padded, [i, j], [i + h, j + wd], [1, 2])
        for i in reversed(range(kh))
        for j in reversed(range(kw))
    ]
    rows = b.Reshape(b.Transpose(w, perm=[2, 3, 0, 1]), [kh * kw * s.co, s.ci])
    return b.Transpose(b.MatMul(b.Concat(*taps, axis=3), rows), perm=[0, 3, 1, 2])


def weight_gradient(b, s, x, g):
    if s.is_pointwise:
        return _weight_pointwise(b, s, x, g)
    if s.is_plain and s.ci > 4:
        return _weight_by_taps(b, s, x, g)
    if s.is_plain and set(s.strides) == {1}:
        return _weight_by_image(b, s, x, g)
    return _weight_by_convolution(b, s, x, g)


def _weight_pointwise(b, s, x, g):
    if set(s.strides) != {1}:
        ends = [(o - 1) * st + 1 for o, st in zip(s.outputs, s.strides, strict=True)]
        x = b.Slice(x, [0, 0], ends, [2, 3], list(s.strides))
    if s.spread > 256:
        gs, xs = b.Reshape(g, [s.n, s.co, -1]), b.Reshape(x, [s.n, s.ci, -1])
        per_image = b.MatMul(gs, b.Transpose(xs, perm=[0, 2, 1]))
        flat = b.ReduceSum(per_image, [0], keepdims=0)
    else:
        gs = b.Reshape(b.Transpose(g, perm=[1, 0, 2, 3]), [s.co, -1])
        xs = b.Reshape(b.Transpose(x, perm=[0, 2, 3, 1]), [-1, s.ci])
        flat = b.MatMul(gs, xs)
    return b.Reshape(flat, [s.co, s.ci, 1, 1])


def _windows(s):
    """Start and end of each tap's slice of the padded input, row by row."""
    spans = [(o - 1) * st + 1 for o, st in zip(s.outputs, s.strides, strict=True)]
    for i in range(s.kernel[0]):
        for j in range(s.kernel[1]):
            yield [i, j], [i + spans[0], j + spans[1]]


def _weight_by_taps(b, s, x, g):
    """One product for each tap over a channels-last input."""
    kh, kw = s.kernel
    last = b.Transpose(x, perm=[0, 2, 3, 1])
    if any(s.before + s.after):
        last = b.Pad(last, [0, *s.before, 0, 0, *s.after, 0])
    rows = b.Reshape(b.Transpose(g, perm=[1, 0, 2, 3]), [s.co, -1])
    taps = [
        b.MatMul(rows, b.Reshape(b.Slice(last, lo, hi, [1, 2], list(s.strides)), [-1, s.ci]))
        for lo, hi in _windows(s)
    ]
    stacked = b.Reshape(b.Concat(*taps, axis=1), [s.co, kh, kw, s.ci])
    return b.Transpose(stacked, perm=[0, 3, 1, 2])


def _weight_by_image(b, s, x, g):
    """One product for each image over its windows: for few input channels."""
    kh, kw = s.kernel
    padded = b.Pad(x, [0, 0, *s.before, 0, 0, *s.after]) if any(s.before + s.after) else x
    windows = b.Concat(*(b.Slice(padded, lo, hi, [2, 3]) for lo, hi in _windows(s)), axis=1)
    columns = b.Transpose(b.Reshape(windows, [s.n, kh * kw * s.ci, -1]), perm=[0, 2, 1])
    per_image = b.MatMul(b.Reshape(g, [s.n, s.co, -1]), columns)
    flat = b.Reshape(b.ReduceSum(per_image, [0], keepdims=0), [s.co, kh, kw, s.ci])
    return b.Transpose(flat, perm=[0, 3, 1, 2])


def _weight_by_convolution(b, s, x, g):
    """Input and gradient with batch and channel axes swapped: strides become dilations."""
    axes = list(range(2, rank_of(x)))
    per_group = s.ci // s.groups
    grouped = b.Reshape(x, [s.n, s.groups, per_group, *s.extents])
    images = b.Transpose(grouped, perm=[2, 1, 0, *(a + 1 for a in axes)])
    images = b.Reshape(images, [per_group, s.groups * s.n, *s.extents])
    kernels = b.Transpose(g, perm=[1, 0, *axes])
    y = b.Conv(
        images, kernels, strides=s.dilations, dilations=s.strides, group=s.groups,
        pads=s.before + s.after,
    )  # fmt: skip
    if dims(y)[2:] != s.kernel:
        y = b.Slice(y, [0] * len(axes), list(s.kernel), axes)
    return b.Transpose(y, perm=[1, 0, *axes])


@vjp("ConvTranspose")
def _(b, n, g):
    # the gradient in the input is the convolution that the node transposes
    x, w, *bias = n.inputs
    s = _transposed_shape(n, g)
    gx = b.Conv(
        g, w, strides=s.strides, dilations=s.dilations, pads=s.before + s.after, group=s.groups
    )
    if dims(gx) != dims(x):  # output_padding or output_shape made room for more windows
        gx = b.Slice(gx, [0] * len(s.kernel), list(s.outputs), list(range(2, rank_of(x))))
    gw = weight_gradient(b, s, g, x)
    if not bias or bias[0] is None:
        return gx, gw
    return gx, gw, b.ReduceSum(g, [0, *range(2, rank_of(g))], keepdims=0)


def _transposed_shape(n, g):
    """The convolution that a node transposes: from its output's gradient to its input."""
    x, w = n.inputs[:2]
    extents, kernel = dims(x)[2:], dims(w)[2:]
    ones = [1] * len(kernel)
    strides, dilations = (tuple(attribute(n, k, ones)) for k in ("strides", "dilations"))
    how = attribute(n, "auto_pad", "NOTSET")
    pads = list(attribute(n, "pads", [0] * 2 * len(kernel)))
    before, after = pads[: len(kernel)], pads[len(kernel) :]
    if how == "VALID":
        before = after = [0] * len(kernel)
    elif how != "NOTSET" or "output_shape" in n.attributes:
        more = attribute(n, "output_padding", [0] * len(kernel))
        natural = [
            (h - 1) * s + (k - 1) * d + 1 + m
            for h, k, s, d, m in zip(extents, kernel, strides, dilations, more, strict=True)
        ]
        totals = [max(t - o, 0) for t, o in zip(natural, dims(g)[2:], strict=True)]
        before, after = halves(totals, is_upper=how == "SAME_UPPER")
    return Shape(
        dims(g)[2:], extents, kernel, strides, dilations, tuple(before), tuple(after),
        n=dims(x)[0], ci=dims(g)[1], co=dims(x)[1], groups=attribute(n, "group", 1),
    )  # fmt: skip
