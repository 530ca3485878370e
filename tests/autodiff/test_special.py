"""Gradients beyond difference quotients: ties, edges, drawn masks, and forms without any."""

import numpy as np
import pytest

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import bool_, float32, int64
from flow2onnx.errors import GradientError
from flow2onnx.graph import Builder
from flow2onnx.graph.types import dims
from tests.autodiff.graphs import as_tuple, open_graph


def gradient(make, *arrays, extra=()):
    """The gradients of the sum of `make(b, *inputs)`, and the values of its outputs `extra`."""
    b = Builder()
    inputs = [b.input(f"x{i}", a.shape, float32) for i, a in enumerate(arrays)]
    outputs = as_tuple(make(b, *inputs))
    y = outputs[0]
    found = gradients(b, {y: b.const(np.ones(dims(y), np.float32))}, inputs)
    for i, x in enumerate(inputs):
        b.output(found[x], f"dx{i}")
    for i, position in enumerate(extra):
        b.output(outputs[position], f"y{i}")
    return open_graph(b)(*arrays)


def array(*content):
    return np.asarray(content, np.float32)


@pytest.mark.parametrize(
    ("x", "attrs", "wanted"),
    [
        # tiles: by marks; overlapping or with something left over: by positions
        (np.ones((1, 1, 2, 4)), {"strides": [2, 2]}, [[1, 0, 1, 0], [0, 0, 0, 0]]),
        (np.ones((1, 1, 2, 3)), {"strides": [1, 1]}, [[1, 1, 0], [0, 0, 0]]),
        (np.ones((1, 1, 3, 3)), {"strides": [2, 2]}, [[1, 0, 0], [0, 0, 0], [0, 0, 0]]),
        (
            np.asarray([[[[0, 5, 5], [5, 5, 0]]]]),
            {"strides": [1, 1]},
            [[0, 2, 0], [0, 0, 0]],
        ),
        (
            np.asarray([[[[0, 5, 7, 7], [5, 5, 7, 1]]]]),
            {"strides": [2, 2]},
            [[0, 1, 1, 0], [0, 0, 0, 0]],
        ),
    ],
)
def test_the_first_maximum_of_a_window_gets_all(x, attrs, wanted):
    (dx,) = gradient(lambda b, x: b.MaxPool(x, kernel_shape=[2, 2], **attrs), x.astype(np.float32))
    np.testing.assert_array_equal(dx[0, 0], wanted)


@pytest.mark.parametrize("op_type", ["Max", "Min"])
def test_equal_operands_share(op_type):
    x, y = array(1, 2, 3), array(1, 2, 4 if op_type == "Max" else 1)
    dx, dy = gradient(lambda b, x, y: b.emit(op_type, (x, y))[0], x, y)
    np.testing.assert_array_equal(dx, [0.5, 0.5, 0])
    np.testing.assert_array_equal(dy, [0.5, 0.5, 1])


@pytest.mark.parametrize("op_type", ["ReduceMax", "ReduceMin"])
def test_equal_elements_share(op_type):
    x = array([2, 2, 1], [1, 1, 1]) * (1 if op_type == "ReduceMax" else -1)
    (dx,) = gradient(lambda b, x: b.emit(op_type, (x, np.asarray([1])))[0], x)
    np.testing.assert_allclose(dx, [[0.5, 0.5, 0], [1 / 3] * 3], rtol=1e-6)


def test_clip_passes_on_its_ends():
    (dx,) = gradient(lambda b, x: b.Clip(x, -1.0, 1.0), array(-2, -1, 0, 1, 2))
    np.testing.assert_array_equal(dx, [0, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("op_type", "at_zero"), [("Relu", 0), ("LeakyRelu", np.float32(0.01)), ("Abs", 0)]
)
def test_at_zero(op_type, at_zero):
    (dx,) = gradient(lambda b, x: b.emit(op_type, (x,))[0], array(0))
    np.testing.assert_array_equal(dx, [at_zero])


def test_powers_of_zero_are_numbers():
    powers = array(0, 1, 2, 3)
    dx, dy = gradient(lambda b, x, y: b.Pow(x, y), array(0, 0, 0, 0), powers)
    np.testing.assert_array_equal(dx, [0, 1, 0, 0])
    np.testing.assert_array_equal(dy, [0, 0, 0, 0])


@pytest.mark.parametrize("given", ["mask", "no mask", "no ratio"])
def test_dropout_passes_what_it_kept(given):
    def make(b, x):
        ratio = None if given == "no ratio" else 0.25
        outputs = 2 if given == "mask" else 1
        on = b.const(True, bool_)
        return b.several("Dropout", x, ratio, on, outputs=outputs, seed=7)

    dx, *rest = gradient(
        make, np.ones((50, 40), np.float32), extra=(0, 1) if given == "mask" else (0,)
    )
    kept = rest[0]  # a one where dropped is 0, elsewhere 1 / (1 - ratio)
    scale = 1 / (1 - (0.5 if given == "no ratio" else 0.25))
    np.testing.assert_allclose(np.unique(kept), [0, scale], rtol=1e-6)
    np.testing.assert_allclose(dx, kept, rtol=1e-6)
    if given == "mask":
        np.testing.assert_array_equal(rest[1], kept != 0)


@pytest.mark.parametrize(
    ("make", "shape", "form"),
    [
        (
            lambda b, x: b.Compress(x, b.input("kept", (4,), bool_), axis=0),
            (4,),
            "Compress by a condition known only at run time",
        ),
    ],
)
def test_what_has_no_gradient_says_so(make, shape, form):
    b = Builder()
    x = b.input("x", shape, float32)
    with b.under("layer", "train.py:41"):
        y = make(b, x)
    with pytest.raises(
        GradientError, match=f"GradientFunctionNotFound: {form} has no gradient"
    ) as e:
        gradients(b, {y: y}, [x])
    assert e.value.op.startswith("layer/")
    assert e.value.source == "train.py:41"
    assert e.value.hint


def test_no_gradient_to_whole_numbers():
    b = Builder()
    x, i = b.input("x", (3,), float32), b.input("i", (2,), int64)
    y = b.Gather(x, b.Add(i, 1))
    assert set(gradients(b, {y: y}, [x])) >= {x, y}
    assert i not in gradients(b, {y: y}, [x, i])
