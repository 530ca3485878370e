"""Depthwise convolutions of small images as products, with a Toeplitz matrix for each channel.

The runtime convolves each channel of each image by itself, which takes longer than its few elements
do. Of the matrix (elements of the input, elements of the output), each tap fills a diagonal.
"""

import functools
import math

import numpy as np

from flow2onnx.graph.dimension import is_known

__all__ = ["has_small_images", "is_fast", "tap_masks", "tap_masks_along"]

_LARGEST_MASKS = 1 << 16  # numbers of a constant in the model
# of the matrix of a channel, up to which it was measured to be faster: at all, and for each image
_MOST_PAIRS, _PAIRS_AN_IMAGE = 4096, 324


def has_small_images(s, *_):
    """True if the convolution is depthwise, of images of few elements."""
    if not (s.is_depthwise and s.has_known_sizes):
        return False
    return math.prod(s.kernel) * math.prod(s.extents) * s.spread <= _LARGEST_MASKS


def is_fast(s):
    """True where the products are faster than the runtime: small images, or many of them."""
    if not (has_small_images(s) and is_known(s.n)):
        return False
    return math.prod(s.extents) * s.spread <= min(_PAIRS_AN_IMAGE * s.n, _MOST_PAIRS)


def tap_masks(s, dtype):
    """(taps, elements of the input, elements of the output): 1 where the tap joins both, or 0."""
    axes = [tap_masks_along(s, axis) for axis in range(len(s.kernel))]
    return functools.reduce(_combine, axes).astype(dtype.numpy)


def _combine(first, second):
    """The masks of two axes as one, of which the second counts faster."""
    sizes = [m * n for m, n in zip(first.shape, second.shape, strict=True)]
    return np.einsum("tio,kjp->tkijop", first, second).reshape(sizes)


def tap_masks_along(s, axis):
    """`tap_masks` of one axis alone, as truth values."""
    tap, into, out = np.ogrid[: s.kernel[axis], : s.extents[axis], : s.outputs[axis]]
    return out * s.strides[axis] + tap * s.dilations[axis] - s.before[axis] == into
