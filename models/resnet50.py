"""ResNet-50 (He and others, arXiv:1512.03385), strides in the 3 × 3 convolutions ("v1.5")."""

import functools

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from models.blocks import ONES, ZEROS, Layers, pooled
from models.classifier import classifier_jobs

DECAY = 1 / 32768
# the blocks of each stage, and the channels inside them
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))


def resnet50(
    images: Blob, classes: int = 1000, is_training: bool = True, decay: float = DECAY,
    multiplier: float = 1.0,
) -> Blob:  # fmt: skip
    """Logits, shape (batch, classes), of images, shape (batch, 3, height, width).

    25,557,032 parameters, as torchvision's resnet50. Variables are called ``Resnet-conv1-weight``,
    ``Resnet-res2_0_branch2a_bn-gamma``, as in the zoo.
    """
    layers = Layers(decay=decay, is_training=is_training, multiplier=multiplier)
    with flow.scope.namespace("Resnet"):
        x = _conv(layers, images, 64, 7, "conv1", strides=2)
        x = flow.nn.max_pool2d(flow.nn.relu(x), 3, 2, "SAME", name="pool1")
        for stage, (count, inner) in enumerate(STAGES, 2):
            for i in range(count):
                x = _block(layers, x, inner, 2 if stage > 2 and i == 0 else 1, f"res{stage}_{i}")
        return layers.dense(pooled(x), classes, "fc1001")


def _block(layers: Layers, x: Blob, inner: int, strides: int, name: str) -> Blob:
    """The input and three convolutions of it, added; a first block projects the input."""
    is_first = name.endswith("_0")
    shortcut = _conv(layers, x, 4 * inner, 1, f"{name}_branch1", strides) if is_first else x
    y = flow.nn.relu(_conv(layers, x, inner, 1, f"{name}_branch2a"))
    y = flow.nn.relu(_conv(layers, y, inner, 3, f"{name}_branch2b", strides))
    y = _conv(layers, y, 4 * inner, 1, f"{name}_branch2c", is_last=True)
    return flow.nn.relu(y + shortcut)


def _conv(
    layers: Layers, x: Blob, channels: int, size: int, name: str, strides: int = 1,
    is_last: bool = False,
) -> Blob:  # fmt: skip
    """A convolution, normalised; the last of a block adds nothing at first."""
    y = layers.conv(x, layers.scaled(channels), size, strides, name=name)
    return layers.norm(y, f"{name}_bn", gamma=ZEROS if is_last else ONES)


jobs = functools.partial(classifier_jobs, resnet50)
