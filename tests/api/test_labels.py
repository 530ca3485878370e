"""Labels outside [0, classes): refused before the step, with argument, value, layer and line."""

import numpy as np
import pytest

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.errors import ArgumentError

CLASSES = 5


def job(dtype, *, shape=(4,)):
    """A train job on labels of a type, which counts its steps in `w`."""

    @flow.global_function(type="train")
    def train_job(
        x: tp.Numpy.Placeholder((4, 3)), labels: tp.Numpy.Placeholder(shape, dtype=dtype)
    ) -> tp.Numpy:
        logits = flow.layers.dense(x, CLASSES, name="fc")
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="loss")
        rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
        flow.optimizer.SGD(rate, momentum=0).minimize(loss)
        return loss

    return train_job


X = np.ones((4, 3), np.float32)


@pytest.mark.parametrize("dtype", [flow.int8, flow.int32, flow.int64])
@pytest.mark.parametrize("wrong", [-1, -100, CLASSES, 100])
def test_labels_that_are_no_classes(dtype, wrong):
    train_job = job(dtype)
    good = np.array([0, 1, 2, CLASSES - 1], dtype.numpy)
    bad = good.copy()
    bad[2] = wrong
    train_job(X, good)
    before = train_job(X, good)
    words = rf"argument labels: the label {wrong} at \[2\] is none of the 5 classes, 0 to 4"
    with pytest.raises(ArgumentError, match=words) as found:
        train_job(X, bad)
    assert found.value.job == "train_job"
    assert "loss" in str(found.value.op)
    assert "test_labels.py:" in str(found.value.source)
    after = train_job(X, good)
    assert (after < before).all()


def test_labels_as_a_column():
    train_job = job(flow.int32, shape=(4, 1))
    with pytest.raises(ArgumentError, match=r"the label 5 at \[3, 0\]"):
        train_job(X, np.array([[0], [1], [2], [5]], np.int32))


def test_more_classes_than_a_type_counts():
    @flow.global_function()
    def predict_job(
        x: tp.Numpy.Placeholder((2, 300)), labels: tp.Numpy.Placeholder((2,), dtype=flow.int8)
    ) -> tp.Numpy:
        return flow.nn.sparse_cross_entropy(labels, flow.nn.softmax(x))

    x = np.zeros((2, 300), np.float32)
    np.testing.assert_allclose(predict_job(x, np.array([0, 127], np.int8)), np.log(300), rtol=1e-5)
    with pytest.raises(ArgumentError, match=r"the label -1 at \[1\] is none of the 300 classes"):
        predict_job(x, np.array([0, -1], np.int8))
