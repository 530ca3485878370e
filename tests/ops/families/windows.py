"""Convolutions and pools."""

import numpy as np

from tests.ops.reference import conv, last, pool
from tests.ops.row import NO_DOUBLE, Row


def _conv_row(name, shapes, reference, note="", /, **args):
    return Row(name, reference, shapes, args=args, lacks=NO_DOUBLE, note=note)


def _pool_rows(axes):
    first = {2: "NCHW", 3: "NCDHW"}[axes]
    extents = {2: (7, 6), 3: (5, 6, 4)}[axes]
    pairs = [[0, 0], [0, 0], *[[1, 0]] * axes]
    upper = [(-n) % 2 for n in extents]  # what stride 2 and kernel 2 need in total

    def kinds(how):
        ones, twos, threes, none = (1,) * axes, (2,) * axes, (3,) * axes, (0,) * axes
        return [
            ("valid", dict(ksize=2, strides=2, padding="VALID"), (how, twos, twos, none, none)),
            ("lower", dict(ksize=2, strides=2, padding="SAME"), (how, twos, twos, upper, none)),
            (
                "upper",
                dict(ksize=2, strides=2, padding="SAME_UPPER"),
                (how, twos, twos, none, upper),
            ),
            (
                "overlap",
                dict(ksize=threes, strides=1, padding="VALID"),
                (how, threes, ones, none, none),
            ),
            (
                "pairs",
                dict(ksize=twos, strides=None, padding=pairs),
                (how, twos, ones, ones, none),
            ),
        ]

    rows = []
    lacks = {np.nanmax: (), np.nanmean: NO_DOUBLE}
    for name, how in ((f"nn.max_pool{axes}d", np.nanmax), (f"nn.avg_pool{axes}d", np.nanmean)):
        for note, args, (h, k, s, before, after) in kinds(how):

            def ref(x, h=h, k=k, s=s, before=before, after=after):
                return pool(x, h, k, s, before, after)

            rows.append(
                Row(
                    name,
                    ref,
                    [(2, 2, *extents)],
                    args,
                    note=note,
                    distinct=True,
                    lacks=lacks[how],
                )
            )
        rows.append(
            Row(
                name,
                last(
                    lambda x, h=how: pool(x, h, (2,) * axes, (2,) * axes, (0,) * axes, (0,) * axes)
                ),
                [(2, *extents, 2)],
                {"ksize": 2, "strides": 2, "padding": "VALID", "data_format": f"N{first[2:]}C"},
                note="last",
                distinct=True,
                lacks=lacks[how],
            )
        )
        after = [-(n + 1 - 2) % 2 for n in extents]
        rows.append(
            Row(
                name,
                lambda x, h=how, after=after: pool(
                    x, h, (2,) * axes, (2,) * axes, (1,) * axes, after
                ),
                [(2, 2, *extents)],
                {"ksize": 2, "strides": 2, "padding": pairs, "ceil_mode": True},
                note="ceil",
                distinct=True,
                lacks=lacks[how],
            )
        )
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
