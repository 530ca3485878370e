"""Bias, softmax, losses, and layers with their variables."""

import numpy as np

import flow2onnx as flow
from tests.ops.reference import biased, conv, last, log_softmax, picked, softmax
from tests.ops.row import Row

SHAPE = (3, 4)


NN = [
    Row("nn.bias_add", lambda x, b: biased(x, b, 1), [(2, 3, 4, 5), (3,)]),
    Row("nn.bias_add", lambda x, b: biased(x, b, 1), [(2, 3), (3,)], note="matrix"),
    Row(
        "nn.bias_add",
        lambda x, b: biased(x, b, 3),
        [(2, 3, 4, 5), (5,)],
        args={"data_format": "NHWC"},
        note="last",
    ),
    Row("nn.softmax", softmax, [(3, 5)]),
    Row("nn.softmax", lambda x: softmax(x, 1), [(2, 4, 3)], args={"axis": 1}, note="axis"),
    Row("nn.softmax", lambda x: softmax(x, 0), [(2, 3)], args={"axis": -2}, note="negative"),
    Row("nn.logsoftmax", log_softmax, [(3, 5)]),
    Row("nn.logsoftmax", lambda x: log_softmax(x, 1), [(2, 4, 3)], args={"axis": 1}, note="axis"),
    Row("nn.dropout", lambda x: x, [SHAPE], args={"rate": 0.0}, note="no-rate"),
    Row("nn.dropout", lambda x: x, [SHAPE], args={"rate": 0.5}, grad=(), note="predict"),
]

LOSSES = [
    Row(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda z, x: -picked(z, log_softmax(x)),
        [(6,), (6, 4)],
        ints={0: 4},
    ),
    Row(
        "nn.sparse_softmax_cross_entropy_with_logits",
        lambda z, x: -picked(z, log_softmax(x)),
        [(2, 3, 1), (2, 3, 4)],
        ints={0: 4},
        int_dtype="int8",
        note="column",
    ),
    Row(
        "nn.softmax_cross_entropy_with_logits",
        lambda z, x: -(z * log_softmax(x)).sum(-1),
        [(2, 3, 4), (2, 3, 4)],
        low=0,
        high=1,
        grad=(1,),
    ),
    Row(
        "nn.sigmoid_cross_entropy_with_logits",
        lambda z, x: np.log1p(np.exp(x)) - x * z,
        [SHAPE, SHAPE],
        avoid=(0,),
        grad=(1,),
    ),
    Row(
        "nn.sparse_cross_entropy",
        lambda z, p: -np.log(picked(z, p)),
        [(5,), (5, 3)],
        ints={0: 3},
        int_dtype="int64",
        low=0.2,
        high=1,
    ),
]


def _layer(layer, x, reference, owns, note="", /, **args):
    return Row(layer, reference, [x], args=args, dtypes=("float32",), owns=owns, note=note)


LAYERS = [
    _layer(
        "layers.dense",
        (3, 4),
        lambda x, w, b: x @ w.T + b,
        {"Dense-weight": (5, 4), "Dense-bias": (5,)},
        units=5,
    ),
    _layer(
        "layers.dense",
        (2, 3, 4),
        lambda x, w: np.tanh(x @ w.T),
        {"fc-weight": (5, 4)},
        "rank-3",
        units=5,
        use_bias=False,
        name="fc",
        activation=lambda x, name: flow.math.tanh(x, name=name),
    ),
    _layer(
        "layers.conv1d",
        (2, 3, 7),
        lambda x, w, b: biased(conv(x, w, (1,), (1,), (1,), (1,)), b, 1),
        {"Conv1d-weight": (4, 3, 3), "Conv1d-bias": (4,)},
        filters=4,
        kernel_size=3,
        padding="SAME",
    ),
    _layer(
        "layers.conv2d",
        (2, 4, 6, 5),
        lambda x, w, b: biased(conv(x, w, (2, 2), (0, 0), (0, 0), (1, 1), 2), b, 1),
        {"Conv2d-weight": (6, 2, 3, 3), "Conv2d-bias": (6,)},
        filters=6,
        kernel_size=3,
        strides=2,
        groups=2,
    ),
    _layer(
        "layers.conv2d",
        (2, 6, 5, 3),
        lambda x, w, b: biased(
            last(lambda x, w: conv(x, w, (1, 1), (0, 0), (0, 0), (2, 1)))(x, w), b, 3
        ),
        {"kernels": (4, 3, 2, 3), "offsets": (4,)},
        "last",
        filters=4,
        kernel_size=(3, 2),
        dilation_rate=(2, 1),
        data_format="NHWC",
        weight_name="kernels",
        bias_name="offsets",
    ),
    _layer(
        "layers.conv3d",
        (1, 2, 4, 3, 5),
        lambda x, w: conv(x, w, (1, 1, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1)),
        {"Conv3d-weight": (3, 2, 2, 2, 2)},
        filters=3,
        kernel_size=2,
        use_bias=False,
    ),
]


ROWS = [*NN, *LOSSES, *LAYERS]
