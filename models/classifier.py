"""The jobs of an image classifier: any network from images to logits, trained, tested, asked."""

import math
from collections.abc import Callable

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from models.jobs import Jobs

IMAGES_OF_IMAGENET = 1281167


def sgd(batch: int, rate: float = 0.256, epochs: int = 90, warmup_epochs: int = 5) -> Optimizer:
    """The benchmark zoo's optimizer for ImageNet, meant for batches of 256.

    Momentum 0.875; the rate rises linearly for `warmup_epochs` and falls with a cosine.
    """
    steps = math.ceil(IMAGES_OF_IMAGENET / batch)
    warmup = flow.optimizer.warmup.linear(steps * warmup_epochs, 0)
    falling = flow.optimizer.CosineScheduler(rate, steps * (epochs - warmup_epochs), warmup=warmup)
    return flow.optimizer.SGD(falling, momentum=0.875)


def classifier_jobs(
    network: Callable[..., Blob],
    batch: int = 32,
    size: int = 224,
    classes: int = 1000,
    smoothing: float = 0.1,
    optimizer: Optimizer | None = None,
    **options: float,
) -> Jobs:
    """The jobs ``train_job``, ``eval_job`` and ``predict_job`` of `network`.

    Images have shape (batch, 3, size, size). A share of `smoothing` of each label is spread over
    all classes. The `options` go to the network; the default optimizer is `sgd`.
    """
    images_type = tp.Numpy.Placeholder((batch, 3, size, size), dtype=flow.float)
    labels_type = tp.Numpy.Placeholder((batch,), dtype=flow.int32)
    chosen = optimizer or sgd(batch)
    share = smoothing / classes

    def logits_of(images: Blob) -> Blob:
        return network(images, classes=classes, **options)

    @flow.global_function(type="train")
    def train_job(images: images_type, labels: labels_type) -> tp.Numpy:
        """One step; the mean loss of the batch, labels smoothed."""
        targets = flow.one_hot(labels, classes, 1 - smoothing + share, share, dtype=flow.float)
        losses = flow.nn.softmax_cross_entropy_with_logits(targets, logits_of(images), name="loss")
        loss = flow.math.reduce_mean(losses)
        chosen.minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def eval_job(images: images_type, labels: labels_type) -> tuple[tp.Numpy, tp.Numpy]:
        """The loss of each image, and whether the likeliest class is its label."""
        logits = logits_of(images)
        losses = flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits, name="loss")
        return losses, flow.math.equal(flow.math.argmax(logits), labels)

    @flow.global_function(type="predict")
    def predict_job(images: images_type) -> tp.Numpy:
        """The probability of each class, shape (batch, classes)."""
        return flow.nn.softmax(logits_of(images))

    return Jobs(train_job, eval_job, predict_job)
