"""Blocks of convolutional networks; one `Layers` says how a network makes all of its own."""

from collections.abc import Sequence
from dataclasses import dataclass

import flow2onnx as flow
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.initializers import Initializer
from flow2onnx.trace.variables import Regularizer

Padding = str | Sequence[Sequence[int]]
ZEROS, ONES = flow.zeros_initializer(), flow.ones_initializer()
KAIMING = flow.variance_scaling_initializer(2.0, "fan_in", "random_normal")
KAIMING_OUT = flow.variance_scaling_initializer(2.0, "fan_out", "random_normal")


@dataclass(frozen=True)
class Layers:
    """How a network draws its kernels, decays its variables, normalises, and how wide it is.

    `decay` is L2 regularization of every variable. `momentum` and `epsilon` are those of batch
    normalization; without `is_training` it uses the moving statistics in train jobs too.
    """

    kernel: Initializer = KAIMING
    decay: float = 0.0
    momentum: float = 0.9
    epsilon: float = 1e-5
    is_training: bool = True
    multiplier: float = 1.0

    def scaled(self, channels: int) -> int:
        """The channels that a layer of the original's `channels` has here."""
        return max(1, round(channels * self.multiplier))

    def conv(
        self, x: Blob, channels: int, size: int | Sequence[int], strides: int = 1,
        padding: Padding = "SAME", groups: int = 1, use_bias: bool = False, name: str = "conv",
        separator: str = "-",
    ) -> Blob:  # fmt: skip
        """A convolution of as many channels as said, with variables ``name-weight``, ``-bias``."""
        return flow.layers.conv2d(
            x, channels, size, strides, padding, groups=groups, use_bias=use_bias,
            kernel_initializer=self.kernel, bias_initializer=ZEROS,
            kernel_regularizer=self._decayed(), bias_regularizer=self._decayed(), name=name,
            weight_name=f"{name}{separator}weight", bias_name=f"{name}{separator}bias",
        )  # fmt: skip

    def norm(self, x: Blob, name: str, gamma: Initializer = ONES) -> Blob:
        """Batch normalization; `gamma` says how the factors start."""
        return flow.layers.batch_normalization(
            x, axis=1, momentum=self.momentum, epsilon=self.epsilon, gamma_initializer=gamma,
            gamma_regularizer=self._decayed(), beta_regularizer=self._decayed(),
            training=self.is_training, name=name,
        )  # fmt: skip

    def dense(
        self, x: Blob, units: int, name: str, kernel: Initializer = KAIMING,
        bias: Initializer = ZEROS, use_bias: bool = True, is_hidden: bool = False,
    ) -> Blob:  # fmt: skip
        """A dense layer, with ReLU where it `is_hidden`."""
        return flow.layers.dense(
            x, units, flow.nn.relu if is_hidden else None, use_bias, kernel, bias,
            self._decayed(), self._decayed() if use_bias else None, name=name,
        )  # fmt: skip

    def _decayed(self) -> Regularizer | None:
        return flow.regularizers.l2(self.decay) if self.decay else None


def flat(x: Blob) -> Blob:
    """One row for each sample."""
    return flow.reshape(x, (x.shape[0], -1))


def pooled(x: Blob) -> Blob:
    """The mean of each channel over height and width, shape (batch, channels)."""
    return flow.math.reduce_mean(x, axis=[2, 3])
