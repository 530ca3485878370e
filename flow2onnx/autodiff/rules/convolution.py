"""Convolutions and their transposes: their shape, by which the forms of gradients are picked."""

import math
from dataclasses import dataclass

import numpy as np

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.autodiff.rules.convolution_input import input_gradient
from flow2onnx.autodiff.rules.convolution_weight import weight_gradient
from flow2onnx.autodiff.rules.windows import Windows, split_padding, windows
from flow2onnx.graph.dimension import Extent, at_least, extents, is_known
from flow2onnx.graph.types import dims, sizes_of
from flow2onnx.lowering.sums import channel_sum


@vjp("Conv")
def _(b, n, g):
    x, w, *bias = n.inputs
    s = convolution_of(b, n)
    return input_gradient(b, s, w, g), weight_gradient(b, s, x, g), *_bias_gradient(b, bias, g)


@vjp("ConvTranspose")
def _(b, n, g):
    # the gradient in the input is the convolution that the node transposes
    x, w, *bias = n.inputs
    s = transposed_of(b, n, g)
    gx = _cover_windows(b, s, g, w)
    if extents(b, gx)[2:] != s.outputs:  # output_padding or output_shape made room for more
        gx = b.Slice(gx, [0] * len(s.kernel), list(s.outputs), s.axes)
    return gx, weight_gradient(b, s, g, x), *_bias_gradient(b, bias, g)


def _cover_windows(b, s, g, w):
    """The convolution of `g`, padded before where its pads are known only at run time."""
    pads = s.before + s.after
    if not is_known(*pads):
        g, pads = b.Pad(g, [0, 0, *s.before, 0, 0, *s.after]), (0,) * len(pads)
    return b.Conv(g, w, strides=s.strides, dilations=s.dilations, pads=pads, group=s.groups)


def _bias_gradient(b, bias, g):
    if not bias or bias[0] is None:
        return []
    return [channel_sum(b, None, g)]


@dataclass(frozen=True, kw_only=True)
class Convolution(Windows):
    """One convolution: its windows, the images, channels in and out, groups."""

    n: Extent
    ci: Extent
    co: Extent
    groups: int

    @property
    def axes(self):
        """The axes of an image."""
        return list(range(2, 2 + len(self.kernel)))

    @property
    def reach(self):
        """The distance of a window's last tap from its first."""
        return [(k - 1) * d for k, d in zip(self.kernel, self.dilations, strict=True)]

    @property
    def is_dense(self):
        return self.groups == 1

    @property
    def is_depthwise(self):
        return self.groups == self.ci == self.co

    @property
    def has_known_sizes(self):
        """True if the sizes of images, of outputs and of pads are numbers."""
        return is_known(*self.extents, *self.outputs, *self.before, *self.after)

    @property
    def is_unit_stride(self):
        return set(self.strides) == {1}

    @property
    def is_pointwise(self):
        return self.is_dense and set(self.kernel) == {1} and not any(self.before + self.after)

    @property
    def spread(self):
        """Elements of one output channel of one image."""
        return math.prod(self.outputs)

    def taps(self):
        """Start and end of each tap's slice of the padded input, the last axis fastest."""
        spans = [(o - 1) * s + 1 for o, s in zip(self.outputs, self.strides, strict=True)]
        for tap in np.ndindex(*self.kernel):
            low = [i * d for i, d in zip(tap, self.dilations, strict=True)]
            yield low, [at + span for at, span in zip(low, spans, strict=True)]


def _kernel(w):
    """The lengths of a kernel, which have to be known; its channels need not."""
    found = sizes_of(w)[2:]
    return found if is_known(*found) else dims(w)


def convolution_of(b, n):
    """The convolution that a node is."""
    x, w = n.inputs[:2]
    at = windows(b, n, _kernel(w))
    groups, (co, ci) = attribute(n, "group", 1), extents(b, w)[:2]
    return Convolution(**vars(at), n=extents(b, x)[0], ci=ci * groups, co=co, groups=groups)


def transposed_of(b, n, g):
    """The convolution that a node transposes: from its output's gradient to its input."""
    x, w = n.inputs[:2]
    outputs, kernel = extents(b, x)[2:], _kernel(w)
    lengths, groups = extents(b, g)[2:], attribute(n, "group", 1)
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
            for h, k, s, d, m in zip(outputs, kernel, strides, dilations, more, strict=True)
        ]
        totals = [at_least(t - o, 0) for t, o in zip(natural, lengths, strict=True)]
        before, after = split_padding(totals, is_upper=how == "SAME_UPPER")
    return Convolution(
        extents=lengths, outputs=outputs, kernel=kernel, strides=strides, dilations=dilations,
        before=tuple(before), after=tuple(after),
        n=extents(b, x)[0], ci=extents(b, w)[1] * groups, co=extents(b, w)[0], groups=groups,
    )  # fmt: skip
