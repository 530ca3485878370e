"""DCGAN (Radford and others, arXiv:1511.06434) for digits: one network draws, one tells."""

from dataclasses import dataclass

import flow2onnx as flow
import flow2onnx.typing as tp
from flow2onnx.api.job import JobFunction
from flow2onnx.optim.base import Optimizer
from flow2onnx.trace.blob import Blob
from models.blocks import Layers, flat

NOISE = 100
KERNEL = flow.random_normal_initializer(stddev=0.02)
LAYERS = Layers(KERNEL, momentum=0.99, epsilon=0.001)
GENERATOR = (
    "g_fc1-weight", "g_deconv1-weight", "g_deconv2-weight", "g_deconv3-weight",
    "g_bn1-gamma", "g_bn1-beta", "g_bn2-gamma", "g_bn2-beta", "g_bn3-gamma", "g_bn3-beta",
)  # fmt: skip
DISCRIMINATOR = (
    "d_conv1-weight", "d_conv1-bias", "d_conv2-weight", "d_conv2-bias", "d_fc-weight",
)  # fmt: skip


def generator(noise: Blob, channels: int = 256) -> Blob:
    """Images in -1 … 1, shape (batch, 1, 28, 28), of noise, shape (batch, 100).

    2,305,472 parameters: the trainable ones of the generator in TensorFlow's DCGAN tutorial.
    """
    x = LAYERS.dense(noise, 7 * 7 * channels, "g_fc1", KERNEL, use_bias=False)
    x = flow.reshape(_leaky(LAYERS.norm(x, "g_bn1")), (-1, channels, 7, 7))
    x = _leaky(LAYERS.norm(_deconv(x, channels // 2, 1, "g_deconv1"), "g_bn2"))
    x = _leaky(LAYERS.norm(_deconv(x, channels // 4, 2, "g_deconv2"), "g_bn3"))
    return flow.math.tanh(_deconv(x, 1, 2, "g_deconv3"))


def discriminator(images: Blob, channels: int = 256) -> Blob:
    """Logits, shape (batch, 1), of an image being real; called twice in a job it is the same one.

    212,864 parameters: those in TensorFlow's DCGAN tutorial less the bias of the last layer, which
    the zoo does without.
    """
    x = flow.nn.dropout(_leaky(_conv(images, channels // 4, "d_conv1")), rate=0.3)
    x = flat(flow.nn.dropout(_leaky(_conv(x, channels // 2, "d_conv2")), rate=0.3))
    weight = flow.get_variable("d_fc-weight", (1, x.shape[1]), initializer=KERNEL)
    return flow.matmul(x, weight, transpose_b=True)


def _leaky(x: Blob) -> Blob:
    return flow.nn.leaky_relu(x, 0.3)


def _deconv(x: Blob, channels: int, strides: int, name: str) -> Blob:
    """A transposed convolution, `strides` times as high and as wide."""
    batch, inner, height, width = x.shape
    weight = flow.get_variable(f"{name}-weight", (inner, channels, 5, 5), initializer=KERNEL)
    shape = (batch, channels, height * strides, width * strides)
    return flow.nn.conv2d_transpose(x, weight, shape, strides, "SAME")


def _conv(x: Blob, channels: int, name: str) -> Blob:
    # Variables by hand: a layer may not be made twice in a job, a variable may be read twice.
    weight = flow.get_variable(f"{name}-weight", (channels, x.shape[1], 5, 5), initializer=KERNEL)
    bias = flow.get_variable(f"{name}-bias", (channels,), initializer=flow.zeros_initializer())
    return flow.nn.bias_add(flow.nn.compat_conv2d(x, weight, 2, "same"), bias, "NCHW")


@dataclass(frozen=True)
class Jobs:
    """The jobs of both networks."""

    train_generator: JobFunction
    train_discriminator: JobFunction
    predict: JobFunction


def adam(variables: tuple[str, ...], rate: float = 1e-5) -> Optimizer:
    """The zoo's optimizer, for one of the two networks."""
    constant = flow.optimizer.PiecewiseConstantScheduler([], [rate])
    return flow.optimizer.Adam(constant, variables=variables)


def jobs(batch: int = 32, rate: float = 1e-5, channels: int = 256) -> Jobs:
    """The jobs, to be called in turn: each trains its own network by what the other one says.

    `train_generator` takes noise and gives its loss and the images drawn; `train_discriminator`
    takes noise and real images and gives its loss and the parts for drawn and real ones. `predict`
    draws images.
    """
    noise_type = tp.Numpy.Placeholder((batch, NOISE), dtype=flow.float)
    images_type = tp.Numpy.Placeholder((batch, 1, 28, 28), dtype=flow.float)

    def loss_of(logits: Blob, is_real: bool) -> Blob:
        target = flow.ones_like(logits) if is_real else flow.zeros_like(logits)
        return flow.nn.sigmoid_cross_entropy_with_logits(target, logits)

    @flow.global_function(type="train")
    def train_generator(z: noise_type) -> tuple[tp.Numpy, tp.Numpy]:
        drawn = generator(z, channels)
        loss = loss_of(discriminator(drawn, channels), True)
        adam(GENERATOR, rate).minimize(loss)
        return loss, drawn

    @flow.global_function(type="train")
    def train_discriminator(
        z: noise_type, images: images_type
    ) -> tuple[tp.Numpy, tp.Numpy, tp.Numpy]:
        on_drawn = loss_of(discriminator(generator(z, channels), channels), False)
        on_real = loss_of(discriminator(images, channels), True)
        loss = on_drawn + on_real
        adam(DISCRIMINATOR, rate).minimize(loss)
        return loss, on_drawn, on_real

    @flow.global_function(type="predict")
    def draw(z: noise_type) -> tp.Numpy:
        return generator(z, channels)

    return Jobs(train_generator, train_discriminator, draw)
