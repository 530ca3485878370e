"""What has to be known before a run, for the gradients of what resizes and cuts."""

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32, int64
from flow2onnx.errors import GradientError
from flow2onnx.graph import Builder

IMAGE = (1, 2, 4, 4)


def cropped(b, x, region):
    return b.Resize(
        x, region, None, [1, 2, 3, 3], coordinate_transformation_mode="tf_crop_and_resize"
    )


@pytest.mark.parametrize(
    ("make", "shape", "other", "form"),
    [
        (lambda b, x, v: b.Resize(x, None, v), IMAGE, ((4,), float32),
         "Resize with scales known only at run time"),
        (lambda b, x, v: b.Resize(x, None, None, v), IMAGE, ((4,), int64),
         "Resize to sizes known only at run time"),
        (cropped, IMAGE, ((8,), float32), "Resize with a region known only at run time"),
        (lambda b, x, v: b.AffineGrid(x, v), (1, 2, 3), ((4,), int64),
         "AffineGrid with a size known only at run time"),
        (lambda b, x, v: b.Col2Im(x, v, [2, 2]), (1, 8, 9), ((2,), int64),
         "Col2Im with a shape known only at run time"),
        (lambda b, x, v: b.RoiAlign(x, v, np.asarray([0]), mode="max"), IMAGE, ((1, 4), float32),
         "RoiAlign in mode max, with regions known only at run time and no sampling_ratio"),
    ],
)  # fmt: skip
def test_what_is_not_known_says_so(make, shape, other, form):
    b = Builder()
    x = b.input("x", shape, float32)
    with b.under("layer", "train.py:41"):
        y = make(b, x, b.input("v", *other))
    with pytest.raises(GradientError, match=f"{form} has no gradient") as e:
        gradients(b, {y: y}, [x])
    assert e.value.source == "train.py:41"
    assert e.value.hint
