"""Windows that slide over the axes of an image: their pads, and what adds them up again."""

from dataclasses import dataclass

import numpy as np

from flow2onnx.autodiff.registry import attribute
from flow2onnx.graph.dimension import Extent, at_least, extents, is_known
from flow2onnx.graph.types import dtype_of, rank_of
from flow2onnx.lowering.dimensions import check_constant


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows of one node, axis by axis; pads are known only at run time where auto_pad is
    over an axis that is.
    """

    extents: tuple[Extent, ...]
    outputs: tuple[Extent, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[Extent, ...]
    after: tuple[Extent, ...]

    @property
    def left_over(self):
        """The number of elements of each padded axis behind the last window; with ceil_mode < 0."""
        return [
            0 if s == 1 else h - ((o - 1) * s - p - q + (k - 1) * d + 1)
            for h, o, k, s, d, p, q in zip(
                self.extents, self.outputs, self.kernel, self.strides, self.dilations,
                self.before, self.after, strict=True,
            )
        ]  # fmt: skip


def windows(b, n, kernel):
    """The windows of a convolution or pool."""
    lengths, outputs = extents(b, n.inputs[0])[2:], extents(b, n.outputs[0])[2:]
    ones = [1] * len(lengths)
    strides, dilations = (tuple(attribute(n, k, ones)) for k in ("strides", "dilations"))
    how = attribute(n, "auto_pad", "NOTSET")
    pads = list(attribute(n, "pads", [0] * 2 * len(lengths))) if how == "NOTSET" else []
    before, after = pads[: len(lengths)], pads[len(lengths) :]
    if how == "VALID":
        before = after = [0] * len(lengths)
    elif how != "NOTSET":
        needed = [
            (k - 1) * d if s == 1 else at_least((o - 1) * s + (k - 1) * d + 1 - h, 0)
            for h, o, k, s, d in zip(lengths, outputs, kernel, strides, dilations, strict=True)
        ]
        before, after = split_padding(needed, is_upper=how == "SAME_UPPER")
    return Windows(
        extents=lengths,
        outputs=outputs,
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        before=tuple(before),
        after=tuple(after),
    )


def split_padding(totals, *, is_upper):
    """Each total as what stands before and what after; an odd element goes to the upper side."""
    small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (small, large) if is_upper else (large, small)


def sum_windows(b, w, g, x):
    """The sum, at each element of `x`, of the `g` of all windows that hold it."""
    # every channel of every image is an image of one channel: one kernel of ones serves all
    images = b.Reshape(g, [-1, 1, *extents(b, g)[2:]])
    check_constant(*w.kernel)
    ones = b.const(np.ones((1, 1, *w.kernel), dtype_of(g).numpy))
    return b.Reshape(spread_windows(b, w, images, ones), list(extents(b, x)))


def spread_windows(b, w, g, kernel, **group):
    """The transposed convolution of `g`, of the windows' outputs, in the windows' extents."""
    steps = {"strides": w.strides, "dilations": w.dilations, **group}
    if is_known(*w.before, *w.after, *w.left_over):
        # with ceil_mode the last window reaches beyond the padding: that much more is cut off
        after = [q - min(more, 0) for q, more in zip(w.after, w.left_over, strict=True)]
        padding = [max(more, 0) for more in w.left_over]
        return b.ConvTranspose(g, kernel, **steps, pads=[*w.before, *after], output_padding=padding)
    # all that the windows reach, and what may be left over, from which the axes are cut
    whole = b.ConvTranspose(g, kernel, **steps, output_padding=[s - 1 for s in w.strides])
    ends = [p + h for p, h in zip(w.before, w.extents, strict=True)]
    return b.Slice(whole, list(w.before), ends, spatial_axes(g))


def spatial_axes(x):
    """The axes of an image."""
    return list(range(2, rank_of(x)))
