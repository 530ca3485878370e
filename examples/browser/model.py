"""The network of the page: two convolutions on images of 8 by 8 pixels, a hidden layer."""

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.trace.blob import Blob

BATCH = 16
Images = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH, 1, 8, 8), dtype=flow.float)]
Labels = Annotated[flow.Blob, tp.Numpy.Placeholder((BATCH,), dtype=flow.int32)]
One = Annotated[flow.Blob, tp.Numpy.Placeholder((1, 1, 8, 8), dtype=flow.float)]


def stage(x: Blob, channels: int, index: int) -> Blob:
    """A 3×3 convolution with ReLU, and a pool that halves height and width."""
    x = flow.layers.conv2d(
        x, channels, 3, padding="SAME", activation=flow.nn.relu, name=f"conv{index}",
        kernel_initializer=flow.truncated_normal(0.15),
    )  # fmt: skip
    return flow.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID", name=f"pool{index}")


def network(images: Blob) -> Blob:
    """Logits, shape (batch, 10), of images, shape (batch, 1, 8, 8)."""
    initializer = flow.truncated_normal(0.1)
    features = stage(stage(images, 16, 1), 32, 2)
    flat = flow.reshape(features, [features.shape[0], -1])
    hidden = flow.layers.dense(
        flat, 64, activation=flow.nn.relu, kernel_initializer=initializer, name="dense1"
    )
    return flow.layers.dense(hidden, 10, kernel_initializer=initializer, name="dense2")


@flow.global_function(type="train")
def train_job(images: Images, labels: Labels) -> tp.Numpy:
    """One step of gradient descent with momentum; the loss of each image."""
    loss = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, network(images), name="loss")
    rate = flow.optimizer.PiecewiseConstantScheduler([], [0.02])
    flow.optimizer.SGD(rate, momentum=0.9).minimize(loss)
    return loss


@flow.global_function(type="predict")
def predict_job(image: One) -> tp.Numpy:
    """The probability of each digit, shape (1, 10)."""
    return flow.nn.softmax(network(image))


def digits() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """scikit-learn's handwritten digits, in 0..1, in random order."""
    from sklearn.datasets import load_digits

    pixels, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(classes))
    images = (pixels.reshape(-1, 1, 8, 8)[order] / 16).astype(np.float32)
    return images, classes[order].astype(np.int32)


def shifted(images: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """The images, each moved by up to one pixel: nobody draws quite in the middle."""
    wide = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    places = rng.choice(3, (len(images), 2), p=(0.15, 0.7, 0.15))
    moved = [image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(wide, places, strict=True)]
    return np.stack(moved)


def train(epochs: int) -> float:
    """Train on all digits but the last 297; the share of those that it recognises."""
    images, labels = digits()
    rng, count = np.random.default_rng(1), 1500
    for _ in range(epochs):
        order = rng.permutation(count)[: count // BATCH * BATCH].reshape(-1, BATCH)
        for rows in order:
            train_job(shifted(images[rows], rng), labels[rows])
    tests = zip(images[count:], labels[count:], strict=True)
    return float(np.mean([predict_job(x[None]).argmax() == y for x, y in tests]))
