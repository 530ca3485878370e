"""Which forms the gradients of a convolution take on a GPU, by what each moves and launches.

Computed, and measured on no GPU: `config.runtime.autotune` measures, and has the last word. The
numbers are those of an H200, and only their ratios count.
"""

import math
from dataclasses import dataclass

from flow2onnx.dtypes import bfloat16
from flow2onnx.graph.dimension import is_known
from flow2onnx.graph.types import dtype_of

__all__ = ["input_form", "weight_form"]

_BYTES_PER_SECOND = 4.2e12
_FLOPS = 330e12  # of products in TF32
_LAUNCH = 2.5e-6  # seconds, between two kernels of a captured graph
_PROCESSORS, _TILE = 132, 128
# Longer kernels than any network has, which the gradient's image would be: cuDNN may refuse them
# when they first run, and dilated ones too.
_LONGEST_KERNEL = 32
_WIDEST_JOIN = 32  # more are joined in groups before, for a CUDA graph


@dataclass(frozen=True)
class _Work:
    """Elements read and written, kernels launched, and seconds besides."""

    elements: int
    launches: int
    seconds: float = 0.0

    def time(self, size):
        """The least seconds, for elements of so many bytes."""
        moved = self.elements * size / _BYTES_PER_SECOND
        return moved + self.launches * _LAUNCH + self.seconds


def weight_form(s, x, g):
    """The form of the gradient in the kernel: of those that no library refuses, the fastest."""
    sizes = (s.n, s.ci, s.co, *s.extents, *s.outputs, *s.before, *s.after)
    if not is_known(*sizes):
        return "swapped_conv" if not is_known(s.ci, s.co) or not s.is_dense else "nhwc_taps"
    size = dtype_of(g).numpy.itemsize
    work = _weight_forms(s)
    return min(work, key=lambda form: work[form].time(size))


def input_form(s, w, g):
    """The form of the gradient in the image: cuDNN's own, which has no bfloat16."""
    if not is_known(s.ci, s.co):
        return "conv_transpose"
    if s.is_pointwise and s.is_unit_stride:
        return "conv"
    reaches = is_known(*s.before, *s.after) and all(
        max(p, q) <= r for r, p, q in zip(s.reach, s.before, s.after, strict=True)
    )
    is_conv = s.is_unit_stride and reaches
    return "conv" if is_conv and dtype_of(g) == bfloat16 else "conv_transpose"


def _weight_forms(s):
    """The work of each form that is valid here, and that cuDNN takes."""
    sizes = _Sizes.of(s)
    if s.is_pointwise:
        return {"batched_product": sizes.batched_product(), "flat_product": sizes.flat_product()}
    if not s.is_dense:
        found = {"grouped_taps": sizes.nhwc_taps()}
        if s.is_depthwise:
            found["tap_sums"] = sizes.tap_sums()
        return found
    found = {
        "nhwc_taps": sizes.nhwc_taps(),
        "nchw_taps": sizes.nchw_taps(),
        "im2col": sizes.im2col(),
        "im2col_by_image": sizes.im2col_by_image(),
    }
    if _is_taken_as_kernel(s):
        found["swapped_conv"] = sizes.swapped_conv()
    return found


def _is_taken_as_kernel(s):
    """True if cuDNN takes the gradient's image as a kernel; strides become dilations there."""
    return len(s.kernel) == 2 and s.is_unit_stride and max(s.outputs) <= _LONGEST_KERNEL


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    """Elements of the image, padded and not, of the gradient, of one tap's windows and of the
    kernel; `taps` in it, `images`, whether there are pads; `rows` and `columns` of the product.
    """

    image: int
    padded: int
    gradient: int
    windows: int
    kernel: int
    taps: int
    images: int
    is_padded: bool
    is_strided: bool
    rows: int
    columns: int

    @classmethod
    def of(cls, s):
        """The sizes of a convolution."""
        pads = [p + q for p, q in zip(s.before, s.after, strict=True)]
        outputs, taps = math.prod(s.outputs), math.prod(s.kernel)
        lengths = [h + p for h, p in zip(s.extents, pads, strict=True)]
        return cls(
            image=s.n * s.ci * math.prod(s.extents),
            padded=s.n * s.ci * math.prod(lengths),
            gradient=s.n * s.co * outputs,
            windows=s.n * s.ci * outputs,
            kernel=s.co * (s.ci // s.groups) * taps,
            taps=taps,
            images=s.n,
            is_padded=any(pads),
            is_strided=not s.is_unit_stride,
            rows=s.co,
            columns=(s.ci // s.groups) * taps,
        )

    @property
    def pad(self):
        """Elements moved to pad the image."""
        return self.image + self.padded if self.is_padded else 0

    @property
    def copies(self):
        """Elements moved to cut out the windows of every tap."""
        return 2 * self.taps * self.windows

    @property
    def joined(self):
        """Elements moved to cut out the windows of every tap, and join them."""
        return (2 if self.taps <= _WIDEST_JOIN else 3) * self.copies

    def batched_product(self):
        """A product for each image, added up; the runtime takes the transpose into it."""
        cut = 2 * self.windows if self.is_strided else 0
        partial = self.images * self.kernel
        moved = cut + self.windows + self.gradient + 2 * partial + self.kernel
        return _Work(moved, 2 + self.is_strided)

    def flat_product(self):
        """One product of both, their channels in front."""
        cut = 2 * self.windows if self.is_strided else 0
        moved = cut + 3 * (self.windows + self.gradient) + self.kernel
        return _Work(moved, 3 + self.is_strided)

    def nhwc_taps(self):
        """A product for each tap."""
        moved = 2 * self.image + self.pad + 2 * self.gradient + self.copies
        moved += self.taps * (self.windows + self.gradient) + 5 * self.kernel
        return _Work(moved, 4 + self.is_padded + 2 * self.taps)

    def nchw_taps(self):
        """A product for each tap and image, added up."""
        moved = self.pad + self.copies + self.taps * (self.windows + self.gradient)
        moved += 2 * self.images * self.kernel + 5 * self.kernel
        return _Work(moved, 2 + self.is_padded + 3 * self.taps)

    def im2col(self):
        """One product over all windows, which are joined before."""
        moved = 2 * self.image + self.pad + 2 * self.gradient + self.joined
        moved += self.taps * self.windows + self.gradient + 3 * self.kernel
        return _Work(moved, 5 + self.is_padded + self.taps)

    def im2col_by_image(self):
        """The same for each image, added up."""
        moved = self.pad + self.joined + self.taps * self.windows + self.gradient
        moved += 2 * self.images * self.kernel + 3 * self.kernel
        return _Work(moved, 4 + self.is_padded + self.taps)

    def tap_sums(self):
        """A product of elements and a sum for each tap."""
        moved = self.pad + self.copies + self.taps * (self.windows + 3 * self.gradient)
        return _Work(moved + 4 * self.kernel, 1 + self.is_padded + 3 * self.taps)

    def swapped_conv(self):
        """A convolution, which has no more tiles than its result: few occupy few processors."""
        moved = 3 * (self.image + self.gradient) + 3 * self.kernel
        tiles = math.ceil(self.rows / _TILE) * math.ceil(self.columns / _TILE)
        idle = max(1.0, _PROCESSORS / tiles) - 1
        product = 2 * self.gradient * self.columns / _FLOPS
        return _Work(moved, 4, product * idle)
