"""LeNet as in OneFlow's documentation: two convolutions with pools, a hidden layer, dropout."""

from typing import Annotated

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.trace.blob import Blob

BATCH = 100
Images = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH, 1, 28, 28), dtype=flow.float)]
Labels = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH,), dtype=flow.int32)]


def stage(x: Blob, channels: int, index: int) -> Blob:
    """A 5×5 convolution with ReLU, and a pool that halves height and width."""
    x = flow.layers.conv2d(
        x, channels, 5, padding="SAME", activation=flow.nn.relu, name=f"conv{index}",
        kernel_initializer=flow.truncated_normal(0.1),
    )  # fmt: skip
    return flow.nn.max_pool2d(x, ksize=2, strides=2, padding="SAME", name=f"pool{index}")


def network(images: Blob) -> Blob:
    """Logits, shape (batch, 10), of images, shape (batch, 1, 28, 28)."""
    initializer = flow.truncated_normal(0.1)
    features = stage(stage(images, 32, 1), 64, 2)
    flat = flow.reshape(features, [features.shape[0], -1])
    hidden = flow.layers.dense(
        flat, 512, activation=flow.nn.relu, kernel_initializer=initializer, name="dense1"
    )
    hidden = flow.nn.dropout(hidden, rate=0.5, name="dropout")
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="dense2")


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
