"""The perceptron of OneFlow's documentation: 784 pixels, 512 hidden units, 10 digits."""

from typing import Annotated

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.trace.blob import Blob

BATCH = 100
Images = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float)]
Labels = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH,), dtype=flow.int32)]


def network(images: Blob) -> Blob:
    """Logits, shape (batch, 10), of images, shape (batch, 1, 28, 28)."""
    initializer = flow.truncated_normal(0.1)
    pixels = flow.reshape(images, [images.shape[0], -1])
    hidden = flow.layers.dense(
        pixels, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="hidden"
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="output")


@flow.global_function(type="train")
def train_job(images: Images, labels: Labels) -> tp.Numpy:
    """One step of gradient descent at rate 0.1; the loss of each image."""
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images), name="loss")
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.1])
    flow.optimizer.SGD(rate, momentum=0).minimize(loss)
    return loss


@flow.global_function(type="predict")
def predict_job(images: Images) -> tp.Numpy:
    """The probability of each digit, shape (100, 10)."""
    return flow.nn.softmax(network(images))
