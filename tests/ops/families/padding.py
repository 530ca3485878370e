"""Padding and broadcasting."""

import numpy as np

from tests.ops.row import FLOATS, NUMBERS, Row

IMAGE = [(2, 3, 4, 5)]
PADDED = (*FLOATS, "int32", "int64", "int8", "uint8")


def _framed(mode, left, right, top, bottom, **options):
    frame = [(0, 0), (0, 0), (top, bottom), (left, right)]
    return lambda x: np.pad(x, frame, mode, **options)


def _frames(name, mode, **options):
    args = {"constant_value": 2} if options else {}
    return [
        Row(
            name,
            _framed(mode, 1, 2, 3, 1, **options),
            IMAGE,
            args={"padding": [1, 2, 3, 1], **args},
            dtypes=PADDED,
        ),
        Row(name, _framed(mode, 2, 2, 2, 2, **options), IMAGE, {"padding": 2, **args}, note="all"),
        Row(name, lambda x: x, IMAGE, {"padding": (0, 0, 0, 0)}, note="none"),
    ]


def _same(name, ref, pads, **args):
    return Row("same_padding", lambda x: np.pad(x, pads), [ref], args=args, note=name)


ROWS = [
    Row(
        "pad",
        lambda x: np.pad(x, [(0, 0), (1, 1), (0, 2)], constant_values=-1.5),
        [(2, 3, 4)],
        args={"paddings": [(0, 0), (1, 1), (0, 2)], "constant_value": -1.5},
    ),
    Row(
        "pad",
        lambda x: np.pad(x, [(2, 0), (0, 1)]),
        [(1, 3)],
        args={"paddings": [[2, 0], [0, 1]]},
        dtypes=PADDED,
        note="zeros",
    ),
    Row(
        "pad_grad",
        lambda x: x[:, 1:-1, :-2],
        [(2, 3, 4)],
        args={"paddings": [(0, 0), (1, 1), (0, 2)]},
        dtypes=NUMBERS,
    ),
    *_frames("constant_pad2d", "constant", constant_values=2),
    *_frames("zero_pad2d", "constant"),
    *_frames("replication_pad2d", "edge"),
    *_frames("reflection_pad2d", "reflect"),
    _same(
        "lower",
        (1, 2, 5, 6),
        [(0, 0), (0, 0), (1, 1), (1, 0)],
        padding="SAME_LOWER",
        data_format="NCHW",
        kernel_size=3,
        strides=[1, 2],
        dilation_rate=1,
    ),
    _same(
        "upper-last",
        (1, 5, 6, 2),
        [(0, 0), (1, 1), (0, 1), (0, 0)],
        padding="same_upper",
        data_format="NHWC",
        kernel_size=[3, 2],
        strides=[1, 1],
        dilation_rate=[1, 1],
    ),
    _same(
        "dilated",
        (1, 2, 7),
        [(0, 0), (0, 0), (2, 2)],
        padding="SAME_LOWER",
        data_format="NCW",
        kernel_size=3,
        strides=1,
        dilation_rate=2,
    ),
    Row("broadcast_like", lambda x, y: x + 0 * y, [(3, 1), (2, 3, 4)], grad=(0,)),
    Row(
        "broadcast_like",
        lambda x, y: x[:, None] + 0 * y,
        [(2, 4), (2, 3, 4)],
        args={"broadcast_axes": [-2]},
        grad=(0,),
        note="axes",
    ),
    Row(
        "broadcast_like",
        lambda x, y: x + 0 * y,
        [(1, 3), (2, 3)],
        args={"broadcast_axes": (0,)},
        grad=(0,),
        note="full",
    ),
    Row("broadcast_like", lambda x, y: x, [(2, 3), (2, 3)], grad=(0,), note="same"),
    Row(
        "broadcast_to_compatible_with",
        lambda x, y, z: np.broadcast_to(x, (2, 3, 4)),
        [(3, 1), (2, 1, 1), (4,)],
        grad=(0,),
        how=lambda f, x, y, z: f(x, [y, z]),
    ),
    Row(
        "expand",
        lambda x: np.broadcast_to(x, (2, 3, 4)),
        [(3, 1)],
        args={"expand_size": [2, -1, 4]},
        dtypes=NUMBERS,
    ),
    Row("expand", lambda x: x, [(3, 2)], args={"expand_size": [3, -1]}, note="same"),
    Row("reverse", lambda x: x[:, ::-1], [(2, 3, 4)], args={"axis": 1}, dtypes=NUMBERS),
    Row(
        "reverse",
        lambda x: x[::-1, :, ::-1],
        [(2, 3, 4)],
        args={"axis": [-1, 0]},
        note="axes",
    ),
    Row("range", lambda: np.arange(5), [], args={"start": 5}, dtypes=("int64",)),
    Row(
        "range",
        lambda: np.arange(7, -2, -3),
        [],
        args={"start": 7, "limit": -2, "delta": -3, "dtype": "flow.int32"},
        dtypes=("int32",),
        note="down",
    ),
    Row(
        "range",
        lambda: np.arange(1, 4.0),
        [],
        args={"start": 1, "limit": 4, "dtype": "flow.float32", "name": "numbers"},
        dtypes=("float32",),
        note="real",
    ),
    Row("sleep_identity", lambda x: x, [(2, 3)], args={"seconds": 3}),
    Row("dynamic_reshape", lambda x: x.reshape(3, 4), [(2, 6)], args={"shape": [-1, 4]}),
]
