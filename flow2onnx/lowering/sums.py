"""Sums over all but one axis: of the rows of a matrix, and of each channel of images."""

import math

import numpy as np

from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, is_static, rank_of
from flow2onnx.lowering.forms import Lowering

__all__ = ["channel_sum", "row_sum"]


_MOST_ROWS = 1 << 16  # the ones are a constant of the model


def _is_matrix(lead: int, x: Value) -> bool:
    """True if the sum can be a product with ones, of more than one column and some rows."""
    if dtype_of(x) != float32 or not is_static(x):
        return False
    return 0 < math.prod(dims(x)[:lead]) <= _MOST_ROWS and math.prod(dims(x)[lead:]) > 1


# row_sum(b, lead, x): the sum of `x` over its first `lead` axes.
row_sum = Lowering(
    "Sum.rows",
    lambda *at: "ones_product" if _is_matrix(*at) else "reduce_sum",
    on_cuda=lambda *_: "reduce_sum",  # a product rounds what it adds up to TF32
)


@row_sum.form("reduce_sum")
def _(b: Builder, lead: int, x: Value) -> Value:
    made: Value = b.ReduceSum(x, list(range(lead)), keepdims=0)
    return made


@row_sum.form("ones_product", when=_is_matrix)
def _(b: Builder, lead: int, x: Value) -> Value:
    """The runtime's product of a row and a matrix is vectorised better than its sum."""
    rows, rest = math.prod(dims(x)[:lead]), dims(x)[lead:]
    flat = x if (lead, rank_of(x)) == (1, 2) else b.Reshape(x, [rows, math.prod(rest)])
    made: Value = b.Reshape(b.MatMul(b.const(np.ones((1, rows), np.float32)), flat), list(rest))
    return made


def _has_images(at: None, x: Value) -> bool:
    return rank_of(x) > 2 and is_static(x) and math.prod(dims(x)) > 0


# channel_sum(b, None, x): the sum of `x` over all axes but the second.
channel_sum = Lowering("Sum.channels", lambda *at: "by_image" if _has_images(*at) else "at_once")


@channel_sum.form("at_once")
def _(b: Builder, at: None, x: Value) -> Value:
    made: Value = b.ReduceSum(x, [0, *range(2, rank_of(x))], keepdims=0)
    return made


@channel_sum.form("by_image", when=_has_images)
def _(b: Builder, at: None, x: Value) -> Value:
    """First over each image, then over the images: neither skips elements."""
    images, channels, *extents = dims(x)
    flat = b.Reshape(x, [images, channels, math.prod(extents)])
    made: Value = b.ReduceSum(b.ReduceSum(flat, [2], keepdims=0), [0], keepdims=0)
    return made
