"""Windows that slide over the axes of an image: their pads, and what adds them up again."""

from dataclasses import dataclass

import numpy as np

from flow2onnx.autodiff.registry import attribute
from flow2onnx.graph.types import dims, dtype_of, rank_of


@dataclass(frozen=True, kw_only=True)
class Windows:
    """The windows of one node, axis by axis, with every pad a number."""

    extents: tuple[int, ...]
    outputs: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def left_over(self):
        """The number of elements of each padded axis behind the last window; with ceil_mode < 0."""
        return [
            h - ((o - 1) * s - p - q + (k - 1) * d + 1)
            for h, o, k, s, d, p, q in zip(
                self.extents, self.outputs, self.kernel, self.strides, self.dilations,
                self.before, self.after, strict=True,
            )
        ]  # fmt: skip


def windows(n, kernel):
    """The windows of a convolution or pool."""
    extents, outputs = dims(n.inputs[0])[2:], dims(n.outputs[0])[2:]
    ones = [1] * len(extents)
    strides, dilations = (tuple(attribute(n, k, ones)) for k in ("strides", "dilations"))
    how = attribute(n, "auto_pad", "NOTSET")
    pads = list(attribute(n, "pads", [0] * 2 * len(extents))) if how == "NOTSET" else []
    before, after = pads[: len(extents)], pads[len(extents) :]
    if how == "VALID":
        before = after = [0] * len(extents)
    elif how != "NOTSET":
        needed = [
            max((o - 1) * s + (k - 1) * d + 1 - h, 0)
            for h, o, k, s, d in zip(extents, outputs, kernel, strides, dilations, strict=True)
        ]
        before, after = split_padding(needed, is_upper=how == "SAME_UPPER")
    return Windows(
        extents=extents,
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
    images = b.Reshape(g, [-1, 1, *dims(g)[2:]])
    ones = b.const(np.ones((1, 1, *w.kernel), dtype_of(g).numpy))
    # with ceil_mode the last window reaches beyond the padding: that much more is cut off
    after = [q - min(more, 0) for q, more in zip(w.after, w.left_over, strict=True)]
    total = b.ConvTranspose(
        images, ones, strides=w.strides, dilations=w.dilations, pads=[*w.before, *after],
        output_padding=[max(more, 0) for more in w.left_over],
    )  # fmt: skip
    return b.Reshape(total, list(dims(x)))


def spatial_axes(x):
    """The axes of an image."""
    return list(range(2, rank_of(x)))
