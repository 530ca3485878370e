"""Pools."""

from typing import Any

from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops import spatial
from flow2onnx.ops.spatial import Ints, Padding
from flow2onnx.trace.op import Operator, op

# OneFlow divides by the number of elements inside the blob.
_ATTRIBUTES: dict[str, dict[str, Any]] = {"MaxPool": {}, "AveragePool": {"count_include_pad": 0}}


def _pool(kind: str, op_type: str, axes: int, doc: str) -> Operator[Value]:
    """Publish the pool of `axes` spatial axes."""

    def lower(
        b: Builder,
        x: Value,
        ksize: Ints,
        strides: Ints,
        padding: Padding,
        data_format: str,
        ceil_mode: bool,
        name: str | None = None,
    ) -> Value:
        spatial.spatial_rank(data_format, axes)
        if rank_of(x) != axes + 2:
            raise ShapeError(f"{data_format} needs rank {axes + 2}, got {dims(x)}")
        x = spatial.channels_first(b, x, data_format)
        k = spatial.per_axis(ksize, axes, "ksize")
        s = spatial.per_axis(strides, axes, "strides")
        before, after = spatial.pads(padding, data_format, dims(x)[2:], k, s, [1] * axes, ceil_mode)
        if any(max(sides) >= window for *sides, window in zip(before, after, k, strict=True)):
            raise ArgumentError(
                f"a window of {k} lies wholly in the padding {before} before and {after} after",
                hint="pad by less than the window; with ceil_mode, let strides not exceed ksize",
            )
        shape = {"kernel_shape": k, "strides": s, "pads": before + after}
        y = b.emit(op_type, (x,), {**shape, **_ATTRIBUTES[op_type]})[0]
        return spatial.channels_back(b, y, data_format)

    lower.__name__, lower.__doc__ = f"{kind}_pool{axes}d", doc
    return op(f"nn.{lower.__name__}", catalogued=True)(lower)


max_pool2d, max_pool3d = (
    _pool("max", "MaxPool", axes, "The largest element of each window.") for axes in (2, 3)
)
avg_pool2d, avg_pool3d = (
    _pool("avg", "AveragePool", axes, "The mean of each window, padding not counted.")
    for axes in (2, 3)
)


def _no_pool(kind: str) -> Operator[Value]:
    """Publish a pool of one spatial axis, which OneFlow declared and refused."""

    def lower(
        b: Builder,
        x: Value,
        ksize: Ints,
        strides: Ints,
        padding: Padding,
        data_format: str,
        name: str | None,
    ) -> Value:
        """Refuses, as OneFlow does."""
        raise UnsupportedError(
            f"{kind}_pool1d was never implemented",
            hint=f"give the blob a height of 1 by flow.expand_dims and use flow.nn.{kind}_pool2d",
        )

    lower.__name__ = f"{kind}_pool1d"
    return op(f"nn.{lower.__name__}", catalogued=True)(lower)


avg_pool1d, max_pool1d = _no_pool("avg"), _no_pool("max")
