"""Tensor buffers of what the graph computes: of one size, so a view of the whole array."""

import numpy as np
import onnx
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError, DTypeError, GradientError, ShapeError
from tests.ops.jobs import define, predict

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def through(dims, dtype=flow.float, times=1.5):
    """A body that puts the last axes of its input into buffers and takes them out again."""

    def body(x):
        buffers = flow.tensor_to_tensor_buffer(x * times, dims)
        assert (buffers.dtype, buffers.shape) == (flow.tensor_buffer, X.shape[: 3 - dims])
        return flow.tensor_buffer_to_tensor(buffers, dtype, X.shape[3 - dims :])

    return body


@pytest.mark.parametrize("dims", [0, 1, 2])
def test_they_are_taken_out_as_they_were_put_in(dims):
    (found,) = predict(through(dims), X)
    np.testing.assert_array_equal(found, X * 1.5)


def test_as_another_element_type():
    (found,) = predict(through(1, flow.int32), X)
    assert found.dtype == np.int32
    np.testing.assert_array_equal(found, (X * 1.5).astype(np.int32))


def test_no_node_makes_them(tmp_path):
    flow.clear_default_session()
    define(lambda x: flow.nn.relu(through(2)(x)), [X]).export(tmp_path / "model.onnx")
    model = onnx.load(tmp_path / "model.onnx")
    assert [node.op_type for node in model.graph.node] == ["Mul", "Relu"]


def buffers(x, dims=1):
    return flow.tensor_to_tensor_buffer(x * 2, dims)


@pytest.mark.parametrize(
    ("body", "kind", "says"),
    [
        (lambda x: buffers(x, 3), ShapeError, "instance_dims is 3"),
        (lambda x: buffers(x, -1), ShapeError, "an int from 0"),
        (lambda x: buffers(x, 1.0), ShapeError, "instance_dims is 1.0"),
        (lambda x: buffers(x) + 1, DTypeError, "flow.tensor_buffer_to_tensor gives the tensor"),
        (lambda x: flow.image.flip(buffers(x, 2), 1), DTypeError, "a reader or a decoder made"),
        (
            lambda x: flow.tensor_buffer_to_tensor(buffers(x), flow.float, (3,)),
            ShapeError,
            r"buffers of shape \(4,\), \(3,\) is asked for",
        ),
        (
            lambda x: flow.tensor_buffer_to_tensor(buffers(x), flow.float, (0,)),
            ArgumentError,
            "positive ints",
        ),
    ],
)
def test_what_they_cannot_be_used_for_names_the_line(body, kind, says):
    with pytest.raises(kind, match=says) as caught:
        predict(body, X)
    assert "test_tensor_buffers.py:" in caught.value.source


def test_a_job_that_returns_them():
    with pytest.raises(DTypeError, match="tensor_buffer_to_tensor"):
        predict(buffers, X)


def test_no_gradient_passes_through_them():
    @flow.global_function(type="train")
    def job(x: tp.Numpy.Placeholder((2, 3, 4))) -> tp.Numpy:
        w = flow.get_variable("w", (4,), initializer=flow.ones_initializer())
        loss = through(1)(x * w)
        flow.optimizer.SGD(0.1).minimize(loss)
        return loss

    with pytest.raises(GradientError, match="tensor_to_tensor_buffer has no gradient"):
        job(X)
