"""Jobs to export, defined in the session of the test that asks for them."""

import numpy as np

import flow2onnx as flow
import flow2onnx.typing as tp

BATCH = 6
CLASSES = 4


def net(images):
    flat = flow.reshape(images, [images.shape[0], -1])
    init = flow.random_normal_initializer(stddev=0.3)
    hidden = flow.layers.dense(
        flat, 8, activation=flow.nn.relu, kernel_initializer=init, name="hidden"
    )
    return flow.layers.dense(hidden, CLASSES, kernel_initializer=init, name="output")


def define(body=net, momentum=0.9, with_dropout=False):
    """A train job and a predict job that share variables."""

    @flow.global_function(type="train")
    def train_job(
        images: tp.Numpy.Placeholder((BATCH, 1, 3, 3), dtype=flow.float),
        labels: tp.Numpy.Placeholder((BATCH,), dtype=flow.int32),
    ) -> tp.Numpy:
        logits = body(images)
        if with_dropout:
            logits = flow.nn.dropout(logits, rate=0.5)
        loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        rate = flow.optimizer.PiecewiseConstantScheduler([2], [0.1, 0.05])
        flow.optimizer.SGD(rate, momentum=momentum).minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def predict_job(
        images: tp.Numpy.Placeholder((BATCH, 1, 3, 3), dtype=flow.float),
    ) -> tp.Numpy:
        return flow.nn.softmax(body(images))

    return train_job, predict_job


def predict(shape, body, *others, dtype=flow.float):
    """A predict job of inputs x, y, … whose body is `body`."""
    placeholders = [tp.Numpy.Placeholder(shape, dtype=dtype), *others]

    def job(x):
        return body(x)

    def job_of_two(x, y):
        return body(x, y)

    function = job_of_two if others else job
    function.__annotations__ = {
        **dict(zip("xy", placeholders, strict=False)),
        "return": tp.Numpy,
    }
    function.__name__ = "predict_job"
    return flow.global_function(type="predict")(function)


def batch(seed=0):
    rng = np.random.default_rng(seed)
    images = rng.random((BATCH, 1, 3, 3), dtype=np.float32)
    return images, rng.integers(0, CLASSES, BATCH).astype(np.int32)
