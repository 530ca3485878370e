"""Rules by which gradients take other forms on a GPU: valid everywhere, and the same numbers."""

import numpy as np
import pytest
from flow2onnx_runtime import open_session

from flow2onnx.autodiff.rules.convolution import Convolution
from flow2onnx.autodiff.rules.convolution_gpu import input_form, weight_form
from flow2onnx.autodiff.rules.convolution_weight import weight_gradient
from flow2onnx.autodiff.walk import gradients
from flow2onnx.dtypes import bfloat16, float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.lowering.forms import Picks, choose_forms

# images, channels in, channels out, image, kernel, stride, groups, before, after
SHAPES = {
    "first": (64, 3, 64, 224, 7, 2, 1, 3, 2),
    "early": (64, 64, 64, 56, 3, 1, 1, 1, 1),
    "late": (64, 512, 512, 7, 3, 1, 1, 1, 1),
    "strided": (64, 256, 256, 28, 3, 2, 1, 1, 0),
    "point": (64, 512, 2048, 7, 1, 1, 1, 0, 0),
    "point wide": (64, 64, 256, 56, 1, 1, 1, 0, 0),
    "point strided": (64, 256, 512, 56, 1, 2, 1, 0, 0),
    "depthwise": (64, 96, 96, 112, 3, 2, 96, 1, 1),
    "grouped": (64, 128, 128, 56, 3, 1, 32, 1, 1),
    "one image": (1, 8, 4, 9, 5, 1, 1, 2, 2),
}


def convolution(images, ci, co, size, kernel, stride, groups, before, after):
    out = (size + before + after - kernel) // stride + 1
    return Convolution(
        n=images, ci=ci, co=co, groups=groups, extents=(size, size), outputs=(out, out),
        kernel=(kernel, kernel), strides=(stride, stride), dilations=(1, 1),
        before=(before, before), after=(after, after),
    )  # fmt: skip


def gradient(dtype=float32):
    return Builder(22).input("g", (1,), dtype)


@pytest.mark.parametrize("name", SHAPES)
def test_the_form_is_valid_and_no_library_refuses_it(name):
    s = convolution(*SHAPES[name])
    form = weight_form(s, None, gradient())
    assert form in weight_gradient.valid(s, None, None)
    if form == "swapped_conv":
        assert s.is_unit_stride
        assert max(s.outputs) <= 32


def test_forms_by_shape():
    found = {name: weight_form(convolution(*shape), None, gradient()) for name, shape in
             SHAPES.items()}  # fmt: skip
    assert found["late"] == "swapped_conv", "its result has tiles for every processor"
    assert found["early"] != "swapped_conv", "its result has five tiles, for 132 processors"
    assert found["point wide"] == "batched_product"
    assert found["depthwise"] in ("tap_sums", "grouped_taps")


def test_the_gradient_of_an_image_is_cudnns_own_but_in_bfloat16():
    unit, strided = convolution(*SHAPES["early"]), convolution(*SHAPES["strided"])
    assert input_form(unit, None, gradient()) == "conv_transpose"
    assert input_form(unit, None, gradient(bfloat16)) == "conv"
    assert input_form(strided, None, gradient(bfloat16)) == "conv_transpose"
    assert input_form(convolution(*SHAPES["point"]), None, gradient()) == "conv"


@pytest.mark.parametrize(
    ("image", "kernel", "options"),
    [
        ((2, 3, 9, 8), (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((2, 3, 9, 8), (4, 3, 3, 2), {"strides": [2, 2], "pads": [1, 0, 2, 1]}),
        ((2, 8, 5, 5), (6, 8, 1, 1), {"strides": [2, 1]}),
        ((2, 4, 9, 9), (4, 1, 3, 3), {"group": 4}),
        ((2, 6, 9), (4, 3, 3), {"group": 2, "dilations": [2]}),
        ((1, 2, 5, 5, 5), (3, 2, 2, 2, 2), {}),
    ],
)
def test_gradients_on_a_gpu_are_those_on_the_cpu(image, kernel, options):
    feeds = {
        "x": np.random.default_rng(0).normal(size=image).astype(np.float32),
        "w": np.random.default_rng(1).normal(size=kernel).astype(np.float32),
    }
    made = []
    for provider in ("cpu", "cuda"):
        b = Builder(21)
        x, w = b.input("x", image, float32), b.input("w", kernel, float32)
        with choose_forms(Picks(provider=provider)):
            loss = b.ReduceSum(b.Relu(b.Conv(x, w, **options)), keepdims=0)
            found = gradients(b, {loss: b.const(np.float32(1))}, [x, w])
        for name, value in (("gx", found[x]), ("gw", found[w])):
            b.output(value, name)
        made.append(open_session(model_bytes(model_of(b.graph))).run(None, feeds))
    for here, there in zip(*made, strict=True):
        np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-4)
