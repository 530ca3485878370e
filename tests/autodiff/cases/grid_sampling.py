"""Reading an image between its elements, and within regions of it."""

import numpy as np

from flow2onnx.graph.types import dtype_of
from tests.autodiff.cases.case import NO_DOUBLE, Case


def _sampled(note, x, points, low=-1.4, high=1.4, **attrs):
    def make(b, x, grid):
        return b.GridSample(x, grid, **attrs)

    return Case(
        "GridSample", make, [x, points], note, low=low, high=high, step=1e-4,
        dtypes=("float64", "float32"),
    )  # fmt: skip


GRID = [
    *(
        _sampled(f"{mode}-{padding}-{aligned}", (2, 3, 5, 4), (2, 3, 2, 2), mode=mode,
                 padding_mode=padding, align_corners=aligned)
        for mode in ("linear", "nearest", "cubic")
        for padding in ("zeros", "border", "reflection")
        for aligned in (0, 1)
    ),
    *(
        _sampled(f"three-{mode}-{padding}", (1, 2, 3, 4, 3), (1, 2, 1, 3, 3), mode=mode,
                 padding_mode=padding)
        for mode in ("linear", "nearest")
        for padding in ("zeros", "border", "reflection")
    ),
    _sampled("far", (1, 2, 3, 4), (1, 3, 3, 2), -4, 4, mode="linear", padding_mode="reflection"),
    _sampled("one", (1, 2, 1, 4), (1, 3, 3, 2), mode="linear", padding_mode="reflection",
             align_corners=1),
    *(
        Case("AffineGrid", lambda b, t, size=size, aligned=aligned: b.AffineGrid(
            t, size, align_corners=aligned), [(2, len(size) - 2, len(size) - 1)],
            f"{len(size) - 2}-{aligned}-{size[-1]}", step=0.5)
        for aligned in (0, 1)
        for size in ([2, 3, 4, 5], [2, 1, 2, 3, 4], [2, 1, 3, 1])
    ),
]  # fmt: skip


def _deformed(note, x, w, out, *, parts=1, bias=False, mask=False, **attrs):
    taps = w[2] * w[3]
    shapes = [x, w, (x[0], parts * taps * 2, *out)]
    shapes += [(w[0],)] if bias else []
    shapes += [(x[0], parts * taps, *out)] if mask else []

    def make(b, x, w, offset, *rest):
        return b.DeformConv(x, w, offset, *rest, offset_group=parts, **attrs)

    return Case("DeformConv", make, shapes, note, low=-1.6, high=1.6, step=1e-4,
                dtypes=("float64", "float32"))  # fmt: skip


DEFORMED = [
    _deformed("", (1, 2, 4, 5), (3, 2, 2, 2), (3, 4)),
    _deformed("all", (2, 4, 5, 6), (4, 2, 3, 2), (2, 5), parts=2, bias=True, mask=True, group=2,
              strides=[2, 1], pads=[1, 0, 0, 1], dilations=[1, 2]),
    _deformed("wide", (1, 2, 6, 5), (2, 1, 2, 3), (6, 5), parts=1, bias=True, group=2,
              pads=[1, 1, 0, 1]),
]  # fmt: skip

CORNERS = [[0.6, 0.3, 4.1, 3.7], [-2.2, 1.1, 3.3, 7.4], [2.1, 2.2, 3.9, 2.9]]


def _aligned(note, *, computed=False, **attrs):
    def make(b, x):
        regions = b.const(np.asarray(CORNERS, dtype_of(x).numpy))
        if computed:
            regions = b.Add(regions, b.Mul(b.ReduceMax(x, keepdims=0), 0.0))
        return b.RoiAlign(x, regions, np.asarray([1, 0, 1]), **attrs)

    return Case("RoiAlign", make, [(2, 3, 6, 5)], note, distinct=True, step=0.01)


REGIONS = [
    *(
        _aligned(f"{mode}-{how}-{ratio}", mode=mode, coordinate_transformation_mode=how,
                 sampling_ratio=ratio, output_height=2, output_width=3, spatial_scale=0.9)
        for mode in ("avg", "max")
        for how in ("half_pixel", "output_half_pixel")
        for ratio in (0, 1, 2)
    ),
    _aligned("computed", computed=True, output_height=2, output_width=2),
    _aligned("computed-max", computed=True, output_height=2, output_width=1, mode="max",
             sampling_ratio=3),
    Case("MaxRoiPool", lambda b, x: b.MaxRoiPool(x, b.const(np.asarray(
        [[1, 0, 1, 4, 4], [0, 2, 2, 2, 3], [1, 6, 0, 9, 3]], dtype_of(x).numpy)),
        pooled_shape=[2, 3]), [(2, 3, 6, 5)], distinct=True, lacks=NO_DOUBLE),
    Case("MaxRoiPool", lambda b, x: b.MaxRoiPool(x, b.const(np.asarray(
        [[0, 0, 0, 7, 9], [0, 1, 3, 8, 11]], dtype_of(x).numpy)), spatial_scale=0.5,
        pooled_shape=[3, 2]), [(1, 2, 6, 5)], "scaled", distinct=True, lacks=NO_DOUBLE),
]  # fmt: skip
