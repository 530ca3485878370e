"""Gradients of what resizes and cuts where operands are known at run time only."""

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import by_numpy, float32
from flow2onnx.errors import GradientError
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dtype_of, sizes_of
from tests.autodiff.graphs import open_graph

IMAGE = (1, 2, 4, 4)
SCALES = np.asarray([1, 1, 1.5, 2], np.float32)
REGION = np.asarray([0, 0, 0.1, 0.2, 1, 1, 0.8, 0.9], np.float32)


def cropped(b, x, region):
    return b.Resize(
        x, region, None, [1, 2, 3, 3], coordinate_transformation_mode="tf_crop_and_resize",
        mode="linear",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("make", "shape", "content"),
    [
        (lambda b, x, v: b.Resize(x, None, v, mode="linear"), IMAGE, SCALES),
        (lambda b, x, v: b.Resize(x, None, None, v), IMAGE, np.asarray([1, 2, 7, 3])),
        (lambda b, x, v: b.Resize(x, None, v, axes=[3, 2]), IMAGE, SCALES[2:]),
        (cropped, IMAGE, REGION),
        (lambda b, x, v: b.AffineGrid(x, v), (1, 2, 3), np.asarray([1, 2, 3, 4])),
        (lambda b, x, v: b.AffineGrid(x, v, align_corners=1), (1, 2, 3), np.asarray([1, 2, 1, 4])),
        (lambda b, x, v: b.Col2Im(x, v, [2, 2]), (1, 8, 9), np.asarray([4, 4])),
    ],
)
def test_an_operand_given_at_run_time(make, shape, content):
    """The gradient is that of the same operand as a constant."""
    random, found = np.random.default_rng(4), []
    x = random.normal(size=shape).astype(np.float32)
    for is_constant in (True, False):
        b = Builder()
        point = b.input("x", shape, float32)
        given = content
        if not is_constant:
            given = b.input("v", content.shape, by_numpy(content.dtype))
        y = make(b, point, given)
        seed = b.input("dy", sizes_of(y), dtype_of(y))
        b.output(y, "y")
        b.output(gradients(b, {y: seed}, [point])[point], "dx")
        run, fed = open_graph(b), [] if is_constant else [content]
        if is_constant:
            weight = random.uniform(0.5, 1.5, [d for d in sizes_of(y)]).astype(np.float32)
        found.append(run(x, *fed, weight))
    for known, free in zip(*found, strict=True):
        np.testing.assert_allclose(free, known, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("make", "shapes", "reason"),
    [
        (lambda b, x, v: b.RoiAlign(x, v, np.asarray([0]), mode="max"), [IMAGE, (1, 4)],
         "in mode max, with regions known only at run time and no sampling_ratio"),
        (lambda b, x, v: b.Resize(x, None, None, [8, 8], axes=[2, 3],
                                  keep_aspect_ratio_policy="not_larger"),
         [(1, 2, "height", 4), ()], "the one factor of not_larger depends on free sizes"),
        (lambda b, x, v: b.Det(x), [("size", "size"), ()],
         r"the size of its matrices \(size\) is free"),
        (lambda b, x, v: b.Conv(x, v), [(1, 2, "length"), (3, 2, "kernel")], "kernel"),
        (lambda b, x, v: b.LSTM(x, v, v), [(5, 2, 3), (1, 4, "width")], "width"),
    ],
)  # fmt: skip
def test_what_has_to_be_known_says_so(make, shapes, reason):
    b = Builder()
    x, other = (b.input(n, s, float32) for n, s in zip("xv", shapes, strict=True))
    with b.under("layer", "train.py:41"):
        y = make(b, x, other)
    y = y[0] if isinstance(y, tuple) else y
    with pytest.raises(GradientError, match=reason) as e:
        gradients(b, {y: y}, [x])
    assert e.value.source == "train.py:41"
    assert e.value.hint
