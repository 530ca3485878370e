"""YOLOv3 (Redmon and Farhadi, arXiv:1804.02767): Darknet-53, three heads, and their loss."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from models.blocks import Layers
from models.jobs import Jobs
from models.yolov3_loss import ANCHORS, Head, decoded, loss_of

# the residual blocks of each stage, and the channels between its two convolutions
STAGES = ((1, 32), (2, 64), (8, 128), (8, 256), (4, 512))
HEADS = (512, 256, 128)


@dataclass(frozen=True)
class Net:
    """The network under construction: how it makes layers, and the numbers it gives them.

    Shortcuts, upsamplings and concatenations count too, so that layers are called as in the zoo:
    ``yolo-layer1-conv-weight`` … ``yolo-layer106-conv-weight``.
    """

    layers: Layers
    numbers: Iterator[int]

    def conv(self, x: Blob, channels: int, size: int, strides: int = 1) -> Blob:
        """A convolution, normalised, with a leaky ReLU."""
        name = f"yolo-layer{next(self.numbers)}"
        channels = self.layers.scaled(channels)
        y = self.layers.conv(x, channels, size, strides, name=f"{name}-conv")
        return flow.nn.leaky_relu(self.layers.norm(y, f"{name}-bn"), alpha=0.1)

    def backbone(self, images: Blob) -> list[Blob]:
        """Darknet-53: the features of every stage, each half as high and wide as the one before."""
        x, features = self.conv(images, 32, 3), []
        for count, channels in STAGES:
            x = self.conv(x, 2 * channels, 3, strides=2)
            for _ in range(count):
                x = x + self.conv(self.conv(x, channels, 1), 2 * channels, 3)
                next(self.numbers)
            features.append(x)
        return features

    def head(self, x: Blob, channels: int, classes: int) -> tuple[Blob, Blob]:
        """Features for the next head, and what this one says, (batch, 3 * (5 + classes), h, w)."""
        for _ in range(2):
            x = self.conv(self.conv(x, channels, 1), 2 * channels, 3)
        x = self.conv(x, channels, 1)
        y = self.conv(x, 2 * channels, 3)
        name = f"yolo-layer{next(self.numbers)}-conv"
        next(self.numbers)
        return x, self.layers.conv(y, 3 * (5 + classes), 1, use_bias=True, name=name)

    def enlarged(self, x: Blob, channels: int, features: Blob) -> Blob:
        """`x` twice as high and wide, beside `features` of the backbone."""
        next(self.numbers)
        x = self.conv(x, channels, 1)
        number = next(self.numbers)
        x = flow.layers.upsample_2d(x, (2, 2), name=f"yolo-layer{number}-upsample")
        next(self.numbers)
        return flow.concat([x, features], axis=1)


def yolov3(
    images: Blob, classes: int = 80, is_training: bool = True, multiplier: float = 1.0
) -> list[Head]:
    """The outputs of the three heads for images (batch, 3, side, side), side a multiple of 32.

    61,949,149 parameters with 80 classes; the published weights, yolov3.weights of 248,007,048
    bytes, hold these, 52,608 moving statistics and 20 bytes of header.
    """
    layers = Layers(momentum=0.99, epsilon=1.0001e-5, is_training=is_training,
                    multiplier=multiplier)  # fmt: skip
    net = Net(layers, itertools.count(1))
    *_, fine, middle, x = net.backbone(images)
    heads = []
    for i, channels in enumerate(HEADS):
        if i:
            x = net.enlarged(x, channels, (middle, fine)[i - 1])
        x, y = net.head(x, channels, classes)
        anchors = ANCHORS[6 - 3 * i : 9 - 3 * i]
        heads.append(Head.of(y, anchors, side=images.shape[2], name=f"head{i}"))
    return heads


def jobs(
    batch: int = 8, size: int = 416, boxes: int = 32, classes: int = 80,
    multiplier: float = 1.0, optimizer: Optimizer | None = None,
) -> Jobs:  # fmt: skip
    """The jobs: `train` and `evaluate` give the loss of each image, `predict` boxes and scores.

    `train` takes images, boxes (batch, boxes, 4) as centre, width and height in parts of the image,
    and labels (batch, boxes), -1 in rows that only fill up. `predict` gives all boxes as corners,
    (batch, places, 4), and scores, (batch, places, classes): thresholds and suppression of doubles
    are the caller's.
    """
    images_type = tp.Numpy.Placeholder((batch, 3, size, size), dtype=flow.float)
    boxes_type = tp.Numpy.Placeholder((batch, boxes, 4), dtype=flow.float)
    labels_type = tp.Numpy.Placeholder((batch, boxes), dtype=flow.int32)
    rate = flow.optimizer.PiecewiseConstantScheduler([], [1e-3])
    chosen = optimizer or flow.optimizer.SGD(rate, momentum=0.9)

    @flow.global_function(type="train")
    def train_job(images: images_type, gt_boxes: boxes_type, gt_labels: labels_type) -> tp.Numpy:
        loss = loss_of(yolov3(images, classes, multiplier=multiplier), gt_boxes, gt_labels, size)
        chosen.minimize(loss)
        return loss

    @flow.global_function(type="predict")
    def eval_job(images: images_type, gt_boxes: boxes_type, gt_labels: labels_type) -> tp.Numpy:
        return loss_of(yolov3(images, classes, multiplier=multiplier), gt_boxes, gt_labels, size)

    @flow.global_function(type="predict")
    def predict_job(images: images_type) -> tuple[tp.Numpy, tp.Numpy]:
        return decoded(yolov3(images, classes, multiplier=multiplier))

    return Jobs(train_job, eval_job, predict_job)
