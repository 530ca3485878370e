"""ResNeXt-50, 32 × 4d (Xie and others, arXiv:1611.05431): bottlenecks of grouped convolutions."""

import functools

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from models.blocks import KAIMING_OUT, Layers, pooled
from models.classifier import classifier_jobs

DECAY = 0.0001
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
DENSE = flow.variance_scaling_initializer(1 / 3, "fan_in", "random_uniform")
BIAS = flow.random_uniform_initializer(0, 0.01)


def resnext50(
    images: Blob, classes: int = 1000, is_training: bool = True, decay: float = DECAY,
    multiplier: float = 1.0, groups: int = 32,
) -> Blob:  # fmt: skip
    """Logits, shape (batch, classes), of images, shape (batch, 3, height, width).

    25,028,904 parameters, as torchvision's resnext50_32x4d. Variables are called ``conv1-weight``,
    ``layer1-0-conv1-weight``, ``layer1-0-downsample-1-gamma``, as in the zoo. `groups` divides
    128 × `multiplier`.
    """
    layers = Layers(KAIMING_OUT, decay, is_training=is_training, multiplier=multiplier)
    x = flow.nn.relu(_conv(layers, images, 64, 7, "conv1", "bn1", strides=2))
    x = flow.nn.max_pool2d(x, 3, 2, _around(1), name="max_pool")
    for stage, (count, channels) in enumerate(STAGES, 1):
        for i in range(count):
            strides = 2 if stage > 1 and i == 0 else 1
            x = _block(layers, x, channels, strides, groups, f"layer{stage}-{i}")
    return layers.dense(pooled(x), classes, "fc", DENSE, BIAS)


def _block(layers: Layers, x: Blob, channels: int, strides: int, groups: int, name: str) -> Blob:
    """The input and three convolutions of it, added; a first block projects the input."""
    inner, outer, shortcut = 2 * channels, 4 * channels, x
    if name.endswith("-0"):
        names = f"{name}-downsample-0", f"{name}-downsample-1"
        shortcut = _conv(layers, x, outer, 1, *names, strides=strides)
    y = flow.nn.relu(_conv(layers, x, inner, 1, f"{name}-conv1", f"{name}-bn1"))
    y = _conv(layers, y, inner, 3, f"{name}-conv2", f"{name}-bn2", strides, groups)
    y = _conv(layers, flow.nn.relu(y), outer, 1, f"{name}-conv3", f"{name}-bn3")
    return flow.nn.relu(y + shortcut)


def _conv(
    layers: Layers, x: Blob, channels: int, size: int, name: str, norm: str, strides: int = 1,
    groups: int = 1,
) -> Blob:  # fmt: skip
    padding = _around(size // 2)
    y = layers.conv(x, layers.scaled(channels), size, strides, padding, groups, name=name)
    return layers.norm(y, norm)


def _around(width: int) -> list[list[int]]:
    """Padding of as many zeros on all four sides."""
    return [[0, 0], [0, 0], [width, width], [width, width]]


jobs = functools.partial(classifier_jobs, resnext50)
