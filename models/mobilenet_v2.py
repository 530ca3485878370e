"""MobileNetV2 (Sandler and others, arXiv:1801.04381): inverted residuals, linear bottlenecks."""

import functools

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from models.blocks import KAIMING_OUT, Layers, pooled
from models.classifier import classifier_jobs

DECAY = 0.00004
DENSE = flow.random_normal_initializer(0, 0.01)
# expansion, channels, blocks, stride of the first block
STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
    (6, 320, 1, 1),
)  # fmt: skip
NAME = "MobilenetV2"


def mobilenet_v2(
    images: Blob, classes: int = 1000, is_training: bool = True, decay: float = DECAY,
    multiplier: float = 1.0,
) -> Blob:  # fmt: skip
    """Logits, shape (batch, classes), of images, shape (batch, 3, height, width).

    3,503,872 parameters: torchvision's mobilenet_v2 has 3,504,872, the zoo leaves out the 1000
    biases of the last layer. Variables are called ``MobilenetV2-Conv-weight``,
    ``MobilenetV2-expanded_conv_1-expand-weight``, as there.
    """
    layers = Layers(KAIMING_OUT, decay, is_training=is_training, multiplier=multiplier)
    x = _relu6(_conv(layers, images, layers.scaled(32), 3, f"{NAME}-Conv", strides=2))
    blocks = [(t, c, s if i == 0 else 1) for t, c, count, s in STAGES for i in range(count)]
    for i, (expansion, channels, strides) in enumerate(blocks):
        name = f"{NAME}-expanded_conv_{i}" if i else f"{NAME}-expanded_conv"
        x = _block(layers, x, expansion, layers.scaled(channels), strides, name)
    last = max(1280, layers.scaled(1280)) if multiplier >= 1 else layers.scaled(1280)
    x = _relu6(_conv(layers, x, last, 1, f"{NAME}-Conv_1"))
    return layers.dense(pooled(x), classes, f"{NAME}-fc", DENSE, use_bias=False)


def _block(layers: Layers, x: Blob, expansion: int, channels: int, strides: int, name: str) -> Blob:
    """Wider, each channel by itself, narrower; added to the input where shapes allow."""
    wide = expansion * x.shape[1]
    y = x if expansion == 1 else _relu6(_conv(layers, x, wide, 1, f"{name}-expand"))
    y = _relu6(_conv(layers, y, wide, 3, f"{name}-depthwise", strides, groups=wide))
    y = _conv(layers, y, channels, 1, f"{name}-project")
    return x + y if x.shape == y.shape else y


def _conv(
    layers: Layers, x: Blob, channels: int, size: int, name: str, strides: int = 1, groups: int = 1
) -> Blob:
    y = layers.conv(x, channels, size, strides, groups=groups, name=name)
    return layers.norm(y, f"{name}-BatchNorm")


def _relu6(x: Blob) -> Blob:
    return flow.clip_by_value(x, 0, 6)


jobs = functools.partial(classifier_jobs, mobilenet_v2)
