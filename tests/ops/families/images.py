"""Transposed convolutions, upsampling, shuffled pixels, and TensorFlow's padding."""

import numpy as np

from tests.ops.reference import conv, last
from tests.ops.row import NO_DOUBLE, NUMBERS, Row


def transposed(x, w, strides, before, shape, dilations=(1, 1)):
    """A transposed convolution, channels first, by adding every tap where it falls."""
    rows = np.zeros((x.shape[0], w.shape[1], *(n + 20 for n in shape)))
    for i, j in np.ndindex(*w.shape[2:]):
        a, c = i * dilations[0] - before[0] + 10, j * dilations[1] - before[1] + 10
        ends = a + x.shape[2] * strides[0], c + x.shape[3] * strides[1]
        tap = np.einsum("nchw,ck->nkhw", x, w[:, :, i, j])
        rows[:, :, a : ends[0] : strides[0], c : ends[1] : strides[1]] += tap
    return rows[:, :, 10 : 10 + shape[0], 10 : 10 + shape[1]]


def _repeated(x, h, w):
    return x.repeat(h, 2).repeat(w, 3)


def _between(x, length, axis, coordinates):
    """Linear interpolation along an axis."""
    x = np.moveaxis(x, axis, -1)
    at = np.clip(coordinates, 0, x.shape[-1] - 1)
    low = np.minimum(at.astype(int), x.shape[-1] - 2)
    y = x[..., low] * (1 - (at - low)) + x[..., low + 1] * (at - low)
    return np.moveaxis(y, -1, axis)


def _bilinear(x, h, w, corners=False):
    for axis, k in ((2, h), (3, w)):
        n, length = x.shape[axis], x.shape[axis] * k
        i = np.arange(length)
        at = i * (n - 1) / (length - 1) if corners else (i + 0.5) / k - 0.5
        x = _between(x, length, axis, at)
    return x


def _shuffled(x, r, s):
    n, c, h, w = x.shape
    y = np.zeros((n, c // (r * s), h * r, w * s))
    for i in range(r):
        for j in range(s):
            y[:, :, i::r, j::s] = x[:, i * s + j :: r * s]
    return y


IMAGE = [(2, 3, 3, 4)]


def _deconv(note, x, w, ref, name="nn.conv2d_transpose", /, **args):
    return Row(name, ref, [x, w], args, lacks=NO_DOUBLE, note=note)


ROWS = [
    _deconv(
        "",
        (2, 3, 4, 3),
        (3, 2, 3, 3),
        lambda x, w: transposed(x, w, (2, 2), (0, 0), (9, 7)),
        output_shape=(2, 2, 9, 7),
        strides=2,
    ),
    _deconv(
        "longer",
        (2, 3, 4, 3),
        (3, 2, 3, 2),
        lambda x, w: transposed(x, w, (2, 3), (0, 0), (10, 10)),
        output_shape=(2, 2, 10, 10),
        strides=[2, 3],
    ),
    _deconv(
        "same",
        (1, 3, 4, 4),
        (3, 2, 3, 3),
        lambda x, w: transposed(x, w, (2, 2), (0, 1), (8, 7)),
        output_shape=(1, 2, 8, 7),
        strides=2,
        padding="SAME",
    ),
    _deconv(
        "last",
        (1, 4, 3, 3),
        (3, 3, 2, 2),
        last(lambda x, w: transposed(x, w, (1, 1), (0, 0), (6, 4))),
        output_shape=(1, 6, 4, 2),
        strides=1,
        data_format="NHWC",
    ),
    _deconv(
        "",
        (2, 3, 4, 3),
        (3, 2, 3, 3),
        lambda x, w: transposed(x, w, (2, 2), (1, 0), (8, 8)),
        "nn.torch_conv2d_transpose",
        output_padding=[1, 1],
        strides=2,
        padding_needed=[2, 0],
    ),
    _deconv(
        "bare",
        (2, 3, 4, 3),
        (3, 2, 3, 3),
        lambda x, w: transposed(x, w, (1, 1), (0, 0), (8, 7), (2, 2)),
        "nn.torch_conv2d_transpose",
        dilations=2,
    ),
    Row(
        "nn.compat_conv2d",
        lambda x, w: conv(x, w, (1, 1), (0, 0), (1, 1), (1, 1)),
        [(2, 3, 6, 5), (4, 3, 2, 2)],
        {"strides": 1, "padding": "SAME"},
        lacks=NO_DOUBLE,
    ),
    Row(
        "nn.compat_conv2d",
        last(lambda x, w: conv(x, w, (1, 1), (1, 1), (0, 0), (1, 1))),
        [(2, 6, 5, 3), (4, 2, 2, 3)],
        {"strides": 1, "padding": "SAME_LOWER", "data_format": "NHWC"},
        lacks=NO_DOUBLE,
        note="lower",
    ),
    Row("layers.upsample_2d", lambda x: _repeated(x, 2, 2), IMAGE, lacks=NO_DOUBLE),
    Row(
        "layers.upsample_2d",
        lambda x: _repeated(x, 3, 2),
        IMAGE,
        {"size": (3, 2)},
        lacks=NO_DOUBLE,
        note="size",
    ),
    Row(
        "layers.upsample_2d",
        last(lambda x: _repeated(x, 2, 2)),
        IMAGE,
        {"size": 2, "data_format": "NHWC"},
        lacks=NO_DOUBLE,
        note="last",
    ),
    Row(
        "layers.upsample_2d",
        lambda x: _bilinear(x, 2, 3),
        IMAGE,
        {"size": (2, 3), "interpolation": "bilinear"},
        lacks=NO_DOUBLE,
        note="bilinear",
    ),
    Row(
        "layers.upsample_2d",
        lambda x: _bilinear(x, 2, 3, True),
        IMAGE,
        {"size": (2, 3), "interpolation": "bilinear", "align_corners": True},
        lacks=NO_DOUBLE,
        note="corners",
    ),
    Row(
        "nn.PixelShuffle",
        lambda x: _shuffled(x, 2, 2),
        [(2, 8, 2, 3)],
        {"upscale_factor": 2},
        dtypes=NUMBERS,
    ),
    Row(
        "nn.PixelShufflev2",
        lambda x: _shuffled(x, 2, 3),
        [(1, 12, 2, 3)],
        {"h_upscale_factor": 2, "w_upscale_factor": 3},
    ),
    Row(
        "layers.prelu",
        lambda x, a: np.where(x > 0, x, a * x),
        [(2, 3, 4)],
        dtypes=("float32",),
        avoid=(0,),
        owns={"PRelu-alpha": (3, 4)},
    ),
    Row(
        "layers.prelu",
        lambda x, a: np.where(x > 0, x, a * x),
        [(2, 3, 4, 2)],
        {"shared_axes": [2, 3], "name": "p"},
        dtypes=("float32",),
        avoid=(0,),
        owns={"p-alpha": (3, 1, 1)},
        note="shared",
    ),
]
