"""Inception v3 (Szegedy and others, arXiv:1512.00567), without its auxiliary classifier."""

import functools
from collections.abc import Sequence

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from models.blocks import Layers, pooled
from models.classifier import classifier_jobs

DECAY = 0.00005
KERNEL = flow.variance_scaling_initializer(distribution="random_normal")
DENSE = flow.truncated_normal(0.816496580927726)
# A convolution: channels, kernel, and the stride where it is 2, which goes without padding.
Conv = tuple[int, int | Sequence[int]] | tuple[int, int | Sequence[int], int]
WIDE, TALL = (1, 7), (7, 1)


class Inception:
    """The parts of one network: chains of convolutions, and modules of parallel chains."""

    def __init__(self, layers: Layers, is_normalised: bool) -> None:
        self.layers, self.is_normalised = layers, is_normalised

    def conv(self, x: Blob, name: str, conv: Conv, padding: str | None = None) -> Blob:
        """A convolution with ReLU, and with biases or batch normalization before it."""
        channels, size, *rest = conv
        strides = rest[0] if rest else 1
        padding = padding or ("VALID" if strides == 2 else "SAME")
        y = self.layers.conv(
            x, self.layers.scaled(channels), size, strides, padding,
            use_bias=not self.is_normalised, name=name,
        )  # fmt: skip
        return flow.nn.relu(self.layers.norm(y, f"{name}_bn") if self.is_normalised else y)

    def chain(self, x: Blob, name: str, *convs: Conv) -> Blob:
        """Convolutions one after another, ``conv0``, ``conv1`` … below `name`."""
        with flow.scope.namespace(name):
            for i, conv in enumerate(convs):
                x = self.conv(x, f"conv{i}", conv)
            return x

    def fork(self, x: Blob, name: str, *convs: Conv) -> Blob:
        """As a chain, but the last two convolutions stand side by side."""
        with flow.scope.namespace(name):
            for i, conv in enumerate(convs[:-2]):
                x = self.conv(x, f"conv{i}", conv)
            pair = [self.conv(x, f"conv{len(convs) - 2 + i}", convs[i - 2]) for i in range(2)]
            return flow.concat(pair, axis=1)

    def pooled(self, x: Blob, channels: int, pool: str = "avg") -> Blob:
        """A pool that keeps height and width, and a 1 × 1 convolution."""
        with flow.scope.namespace("branch_pool"):
            pools = {"avg": flow.nn.avg_pool2d, "max": flow.nn.max_pool2d}
            return self.conv(pools[pool](x, 3, 1, "SAME", name="pool"), "conv", (channels, 1))

    def a(self, x: Blob, channels: int) -> Blob:
        """35 × 35: two convolutions of 3 × 3 in place of a 5 × 5."""
        return flow.concat([
            self.chain(x, "branch1x1", (64, 1)),
            self.chain(x, "branch5x5", (48, 1), (64, 5)),
            self.chain(x, "branch3x3dbl", (64, 1), (96, 3), (96, 3)),
            self.pooled(x, channels),
        ], axis=1)  # fmt: skip

    def b(self, x: Blob) -> Blob:
        """From 35 × 35 to 17 × 17."""
        return flow.concat([
            self.chain(x, "branch3x3", (384, 3, 2)),
            self.chain(x, "branch3x3dbl", (64, 1), (96, 3), (96, 3, 2)),
            halved(x),
        ], axis=1)  # fmt: skip

    def c(self, x: Blob, inner: int) -> Blob:
        """17 × 17: 7 × 7 factorised."""
        return flow.concat([
            self.chain(x, "branch1x1", (192, 1)),
            self.chain(x, "branch7x7", (inner, 1), (inner, WIDE), (192, TALL)),
            self.chain(x, "branch7x7dbl", (inner, 1), (inner, TALL), (inner, WIDE), (inner, TALL),
                       (192, WIDE)),
            self.pooled(x, 192),
        ], axis=1)  # fmt: skip

    def d(self, x: Blob) -> Blob:
        """From 17 × 17 to 8 × 8."""
        return flow.concat([
            self.chain(x, "branch3x3", (192, 1), (320, 3, 2)),
            self.chain(x, "branch7x7x3", (192, 1), (192, WIDE), (192, TALL), (192, 3, 2)),
            halved(x),
        ], axis=1)  # fmt: skip

    def e(self, x: Blob, pool: str) -> Blob:
        """8 × 8: the widest."""
        return flow.concat([
            self.chain(x, "branch1x1", (320, 1)),
            self.fork(x, "branch3x3", (384, 1), (384, (1, 3)), (384, (3, 1))),
            self.fork(x, "branch3x3dbl", (448, 1), (384, 3), (384, (1, 3)), (384, (3, 1))),
            self.pooled(x, 192, pool),
        ], axis=1)  # fmt: skip


def halved(x: Blob) -> Blob:
    """The largest of 3 × 3, at every second place."""
    return flow.nn.max_pool2d(x, 3, 2, "VALID")


def inception_v3(
    images: Blob, classes: int = 1000, is_training: bool = True, decay: float = DECAY,
    multiplier: float = 1.0, is_normalised: bool = False,
) -> Blob:  # fmt: skip
    """Logits, shape (batch, classes), of images, shape (batch, 3, height, width), 299 in the paper.

    The zoo's network has biases and no normalization: 23,817,352 parameters, as many as are
    trainable in Keras's InceptionV3. `is_normalised` gives the paper's: 23,834,568, torchvision's
    inception_v3 without its auxiliary classifier. Variables are called
    ``InceptionV3-mixed_0-branch1x1-conv0-weight``, as in the zoo.
    """
    layers = Layers(KERNEL, decay, 0.997, 1.001e-5, is_training, multiplier)
    net = Inception(layers, is_normalised)
    with flow.scope.namespace("InceptionV3"):
        x = net.conv(images, "conv0", (32, 3, 2))
        x = net.conv(x, "conv1", (32, 3), "VALID")
        x = halved(net.conv(x, "conv2", (64, 3)))
        x = net.conv(x, "conv3", (80, 1))
        x = halved(net.conv(x, "conv4", (192, 3), "VALID"))
        modules = [
            *(functools.partial(net.a, channels=n) for n in (32, 64, 64)), net.b,
            *(functools.partial(net.c, inner=n) for n in (128, 160, 160, 192)), net.d,
            *(functools.partial(net.e, pool=p) for p in ("avg", "max")),
        ]  # fmt: skip
        for i, module in enumerate(modules):
            with flow.scope.namespace(f"mixed_{i}"):
                x = module(x)
        return layers.dense(pooled(x), classes, "fc1", DENSE)


jobs = functools.partial(classifier_jobs, inception_v3, size=299)
