"""Pools."""

import numpy as np

from tests.autodiff.cases.case import NO_DOUBLE, Case, plain


def _pooled(op_type, note, x, lacks=(), **attrs):
    return plain(op_type, [x], note, attrs=attrs, distinct=True, lacks=lacks, step=0.02)


AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID")


def _auto(op_type, **options):
    """Each way to pad, with windows that tile, overlap, and are dilated."""
    return [
        _pooled(op_type, f"auto-{how}-{note}", (1, 2, 7, 6), auto_pad=how, **attrs, **options)
        for how in AUTO
        for note, attrs in (
            ("tiled", {"kernel_shape": [2, 2], "strides": [2, 2]}),
            ("overlap", {"kernel_shape": [3, 2], "strides": [2, 1]}),
        )
    ]


def _pools(op_type, lacks=()):
    cases = [
        ("tiled", (2, 3, 6, 4), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("left-over", (2, 2, 7, 5), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("gaps", (2, 2, 7, 8), {"kernel_shape": [2, 1], "strides": [3, 2]}),
        ("overlap", (2, 2, 6, 5), {"kernel_shape": [3, 3], "strides": [1, 2]}),
        ("overlap-second", (1, 2, 7, 6), {"kernel_shape": [2, 3], "strides": [3, 1]}),
        ("no-strides", (2, 2, 5, 4), {"kernel_shape": [2, 2]}),
        ("padded", (2, 2, 5, 4), {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}),
        (
            "ceil",
            (2, 2, 6, 7),
            {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 0, 0], "ceil_mode": 1},
        ),
        ("dilated", (1, 2, 7, 8), {"kernel_shape": [2, 3], "strides": [2, 1], "dilations": [2, 2]}),
        ("one-axis", (2, 3, 7), {"kernel_shape": [3], "strides": [2], "pads": [1, 1]}),
        ("three-axes", (1, 2, 4, 5, 4), {"kernel_shape": [2, 3, 2], "strides": [2, 1, 2]}),
    ]
    return [_pooled(op_type, note, x, lacks, **attrs) for note, x, attrs in cases]


def _unpooled(b, x):
    places = np.reshape([0, 3, 10, 15, 17, 20, 30, 29], (1, 2, 2, 2))
    return b.MaxUnpool(x, places, kernel_shape=[2, 2], strides=[2, 2])


def _columns(note, x, image, block, **attrs):
    return Case(
        "Col2Im", lambda b, x: b.Col2Im(x, image, block, **attrs), [x], note, step=0.5,
        lacks=NO_DOUBLE,
    )  # fmt: skip


POOLING = [
    *_pools("MaxPool"),
    *_pools("AveragePool", NO_DOUBLE),
    _pooled(
        "AveragePool", "counts-padding", (2, 2, 5, 4), NO_DOUBLE, kernel_shape=[3, 2],
        strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1,
    ),
    _pooled(
        "AveragePool", "counts-padding-ceil", (2, 2, 6, 7), NO_DOUBLE, kernel_shape=[3, 2],
        strides=[2, 2], pads=[1, 0, 0, 0], count_include_pad=1, ceil_mode=1,
    ),
    *_auto("MaxPool"),
    *_auto("AveragePool", lacks=NO_DOUBLE),
    *_auto("AveragePool", lacks=NO_DOUBLE, count_include_pad=1),
    *_auto("LpPool", lacks=NO_DOUBLE),
    *_pools("LpPool", NO_DOUBLE),
    Case("MaxPool", lambda b, x: b.several("MaxPool", x, kernel_shape=[2, 3], outputs=2)[0],
         [(2, 2, 4, 5)], "indices", distinct=True, step=0.02),
    *(
        Case("MaxPool", lambda b, x, s=shape: b.several(
            "MaxPool", x, kernel_shape=[2] * (len(s) - 2), storage_order=1, outputs=2)[0],
            [shape], f"column-major-{len(shape) - 2}", distinct=True, step=0.02)
        for shape in ((2, 2, 6), (2, 2, 4, 5), (1, 2, 3, 4, 5))
    ),
    *(
        _pooled("LpPool", f"p{p}", (1, 2, 6, 5), NO_DOUBLE, kernel_shape=[3, 2], strides=[2, 1],
                pads=[1, 0, 1, 1], p=p)
        for p in (1, 3, 4)
    ),
    *(
        _pooled(op_type, note, shape, NO_DOUBLE)
        for op_type in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
        for note, shape in (("", (2, 3, 4, 5)), ("one", (2, 3, 5)), ("three", (2, 1, 3, 2, 2)))
    ),
    *(
        plain("GlobalLpPool", [(2, 3, 4)], f"p{p}", attrs={"p": p}, lacks=NO_DOUBLE, avoid=(0,))
        for p in (1, 3)
    ),
    Case(
        "MaxUnpool",
        lambda b, x: b.MaxUnpool(
            x, np.reshape([1, 4, 11, 14], (1, 1, 2, 2)), [1, 1, 5, 5], kernel_shape=[2, 2],
            strides=[2, 2],
        ),
        [(1, 1, 2, 2)],
        "sized",
        step=0.5,
        lacks=NO_DOUBLE,
    ),
    Case("MaxUnpool", _unpooled, [(1, 2, 2, 2)], step=0.5, lacks=NO_DOUBLE),
    _columns("", (1, 8, 9), [4, 4], [2, 2]),
    _columns("all", (2, 12, 9), [7, 6], [3, 2], strides=[2, 3], dilations=[2, 1],
             pads=[0, 1, 2, 1]),
    _columns("one-axis", (1, 6, 4), [6], [3]),
    _columns("three-axes", (1, 8, 12), [3, 4, 3], [2, 2, 2]),
]  # fmt: skip
