"""VGG-16 (Simonyan and Zisserman, arXiv:1409.1556) with batch normalization."""

import functools
import itertools

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from models.blocks import KAIMING_OUT, Layers, flat
from models.classifier import classifier_jobs

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
DENSE = flow.random_normal_initializer(stddev=0.01)


def vgg16(
    images: Blob, classes: int = 1000, is_training: bool = True, decay: float = 0.0,
    multiplier: float = 1.0,
) -> Blob:  # fmt: skip
    """Logits, shape (batch, classes), of images, shape (batch, 3, height, width).

    138,365,992 parameters at 224 × 224, as torchvision's vgg16_bn. Convolutions keep their biases
    before the normalization, and their variables are called ``conv0_weight``, as in the zoo.
    """
    layers = Layers(KAIMING_OUT, decay, 0.997, 1.001e-5, is_training, multiplier)
    x, numbers = images, itertools.count()
    for stage, (channels, count) in enumerate(STAGES, 1):
        for _ in range(count):
            x = _conv(layers, x, channels, f"conv{next(numbers)}")
        x = flow.nn.max_pool2d(x, 2, 2, "VALID", name=f"pool{stage}")
    x = flat(x)
    for name in ("dense0", "dense1"):
        x = layers.dense(x, layers.scaled(4096), name, DENSE, is_hidden=True)
        x = flow.nn.dropout(x, rate=0.5)
    return layers.dense(x, classes, "dense2", DENSE)


def _conv(layers: Layers, x: Blob, channels: int, name: str) -> Blob:
    y = layers.conv(x, layers.scaled(channels), 3, use_bias=True, name=name, separator="_")
    return flow.nn.relu(layers.norm(y, f"{name}_bn"))


jobs = functools.partial(classifier_jobs, vgg16)
