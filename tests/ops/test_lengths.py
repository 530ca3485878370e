"""Lengths and their gradients where everything is 0."""

import numpy as np

from flow2onnx.autodiff import gradients
from flow2onnx.dtypes import float32
from flow2onnx.graph import Builder
from flow2onnx.graph.model import model_bytes, model_of


def test_the_gradient_of_a_length_of_0_is_0():
    from flow2onnx_runtime import open_session

    b = Builder()
    x = b.input("x", (2, 2), float32)
    y = b.ReduceL2(x, [1], keepdims=0)
    grads = gradients(b, {y: b.const(np.ones(2, np.float32))}, [x])
    b.output(grads[x], "g")
    session = open_session(model_bytes(model_of(b.graph)))
    (found,) = session.run(None, {"x": np.array([[3, 4], [0, 0]], np.float32)})
    np.testing.assert_allclose(found, [[0.6, 0.8], [0, 0]], 1e-6)
