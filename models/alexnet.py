"""AlexNet in one tower (Krizhevsky, arXiv:1404.5997), as OneFlow's benchmark zoo has it."""

import functools

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from models.blocks import Layers, flat
from models.classifier import classifier_jobs

DECAY = 0.00005
KERNEL = flow.variance_scaling_initializer(distribution="random_normal")


def alexnet(
    images: Blob, classes: int = 1000, decay: float = DECAY, multiplier: float = 1.0
) -> Blob:
    """Logits, shape (batch, classes), of images, shape (batch, 3, height, width).

    50,302,912 parameters at 224 × 224, where 5 × 5 places are left for the first dense layer: as
    its sizes make them. They are those of TF-Slim's alexnet_v2, but for the biases of the last
    layer, which the zoo does without. The zoo pools by means, not by maxima as in the paper.
    """
    layers = Layers(KERNEL, decay, multiplier=multiplier)
    x = _conv(layers, images, 64, 11, 1, strides=4, padding="VALID")
    x = _conv(layers, _pool(x, 1), 192, 5, 2)
    x = _conv(layers, _pool(x, 2), 384, 3, 3)
    x = _conv(layers, x, 384, 3, 4)
    x = _conv(layers, x, 256, 3, 5)
    x = flat(_pool(x, 5))
    for name in ("fc1", "fc2"):
        x = layers.dense(x, layers.scaled(4096), name, KERNEL, is_hidden=True)
        x = flow.nn.dropout(x, rate=0.5)
    return layers.dense(x, classes, "fc3", KERNEL, use_bias=False)


def _conv(
    layers: Layers, x: Blob, channels: int, size: int, index: int, strides: int = 1,
    padding: str = "SAME",
) -> Blob:  # fmt: skip
    y = layers.conv(
        x, layers.scaled(channels), size, strides, padding, use_bias=True, name=f"conv{index}"
    )
    return flow.nn.relu(y)


def _pool(x: Blob, index: int) -> Blob:
    return flow.nn.avg_pool2d(x, 3, 2, "VALID", name=f"pool{index}")


jobs = functools.partial(classifier_jobs, alexnet)
