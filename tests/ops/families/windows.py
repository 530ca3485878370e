"""Convolutions and pools."""

import numpy as np

from tests.ops.reference import conv, last, pool
from tests.ops.row import NO_DOUBLE, Row


def _conv_row(name, shapes, reference, note="", /, **args):
    return Row(name, reference, shapes, args=args, lacks=NO_DOUBLE, note=note)


def _pool_cases(axes, extents):
    """(note, arguments, kernel, strides, padding before and after) of each case of a pool."""
    ones, twos, threes, none = (1,) * axes, (2,) * axes, (3,) * axes, (0,) * axes
    pairs = [[0, 0], [0, 0], *[[1, 0]] * axes]
    upper = [(-n) % 2 for n in extents]  # what stride 2 and kernel 2 need in total
    rest = [-(n + 1 - 2) % 2 for n in extents]
    by_two = {"ksize": 2, "strides": 2}
    return [
        ("valid", {**by_two, "padding": "VALID"}, twos, twos, none, none),
        ("lower", {**by_two, "padding": "SAME"}, twos, twos, upper, none),
        ("upper", {**by_two, "padding": "SAME_UPPER"}, twos, twos, none, upper),
        ("overlap", {"ksize": threes, "strides": 1, "padding": "VALID"}, threes, ones, none, none),
        ("pairs", {"ksize": twos, "strides": None, "padding": pairs}, twos, ones, ones, none),
        ("ceil", {**by_two, "padding": pairs, "ceil_mode": True}, twos, twos, ones, rest),
    ]


def _pool_rows(axes):
    extents, twos, none = {2: (7, 6), 3: (5, 6, 4)}[axes], (2,) * axes, (0,) * axes
    layout = {2: "NHWC", 3: "NDHWC"}[axes]
    rows = []
    for kind, how, lacks in (("max", np.nanmax, ()), ("avg", np.nanmean, NO_DOUBLE)):

        def row(ref, shape, args, note, kind=kind, lacks=lacks):
            name = f"nn.{kind}_pool{axes}d"
            rows.append(Row(name, ref, [shape], args, note=note, distinct=True, lacks=lacks))

        for note, args, *window in _pool_cases(axes, extents):
            row(lambda x, h=how, w=window: pool(x, h, *w), (2, 2, *extents), args, note)
        args = {"ksize": 2, "strides": 2, "padding": "VALID", "data_format": layout}
        whole = last(lambda x, h=how: pool(x, h, twos, twos, none, none))
        row(whole, (2, *extents, 2), args, "last")
    return rows


CONVOLUTION = [
    _conv_row(
        "nn.conv1d",
        [(2, 3, 9), (4, 3, 3)],
        lambda x, w: conv(x, w, (2,), (0,), (0,), (1,)),
        strides=2,
        padding="VALID",
    ),
    _conv_row(
        "nn.conv1d",
        [(2, 9, 3), (4, 3, 3)],
        last(lambda x, w: conv(x, w, (1,), (2,), (2,), (2,))),
        "last",
        strides=1,
        padding="SAME",
        dilations=2,
        data_format="NWC",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 3, 6, 5), (4, 3, 3, 3)],
        lambda x, w: conv(x, w, (1, 1), (0, 0), (0, 0), (1, 1)),
        strides=1,
        padding="VALID",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 6, 6, 5), (4, 6, 2, 3)],
        lambda x, w: conv(x, w, (2, 1), (0, 1), (0, 1), (1, 1)),
        "same",
        strides=[2, 1],
        padding="SAME",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 3, 6, 5), (4, 3, 2, 2)],
        lambda x, w: conv(x, w, (1, 1), (1, 1), (0, 0), (1, 1)),
        "same-lower",
        strides=1,
        padding="SAME_LOWER",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 3, 6, 5), (4, 3, 2, 2)],
        lambda x, w: conv(x, w, (1, 1), (0, 0), (1, 1), (1, 1)),
        "same-upper",
        strides=1,
        padding="SAME_UPPER",
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 4, 6, 5), (6, 2, 3, 2)],
        lambda x, w: conv(x, w, (1, 2), (1, 0), (2, 3), (2, 1), 2),
        "groups",
        strides=(1, 2),
        padding=[[0, 0], [0, 0], [1, 2], [0, 3]],
        dilations=[2, 1],
        groups=2,
    ),
    _conv_row(
        "nn.conv2d",
        [(2, 6, 5, 3), (4, 3, 3, 3)],
        last(lambda x, w: conv(x, w, (1, 1), (1, 1), (1, 1), (1, 1))),
        "last",
        strides=1,
        padding="SAME",
        data_format="NHWC",
    ),
    _conv_row(
        "nn.conv3d",
        [(2, 2, 4, 5, 3), (3, 2, 2, 3, 1)],
        lambda x, w: conv(x, w, (1, 2, 1), (0, 0, 0), (0, 0, 0), (1, 1, 1)),
        strides=(1, 2, 1),
        padding="VALID",
    ),
    _conv_row(
        "nn.conv3d",
        [(2, 4, 5, 3, 2), (3, 2, 3, 1, 2)],
        last(lambda x, w: conv(x, w, (1, 1, 1), (0, 1, 0), (0, 1, 0), (1, 1, 1))),
        "last",
        strides=1,
        padding=[[0, 0], [0, 0], [1, 1], [0, 0], [0, 0]],
        data_format="NDHWC",
    ),
]


ROWS = [*CONVOLUTION, *_pool_rows(2), *_pool_rows(3)]
