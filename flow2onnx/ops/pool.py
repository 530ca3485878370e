"""Pools."""

from collections.abc import Sequence
from typing import Any

from flow2onnx.errors import ArgumentError, ShapeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, rank_of
from flow2onnx.ops import spatial
from flow2onnx.ops.spatial import Padding
from flow2onnx.trace.op import Operator, op

Ints = int | Sequence[int]
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

    # Until 0.1.7 the layout defaulted to channels last and SAME put the extra element after.
    former = (
        f"(input, ksize, strides, padding, data_format='N{'DHW'[-axes:]}C', ceil_mode=False, "
        "name=None)"
    )
    lower.__name__, lower.__doc__ = f"{kind}_pool{axes}d", doc
    return op(f"nn.{lower.__name__}", earlier={"0.1.8": former}, catalogued=True)(lower)


max_pool2d, max_pool3d = (
    _pool("max", "MaxPool", axes, "The largest element of each window.") for axes in (2, 3)
)
avg_pool2d, avg_pool3d = (
    _pool("avg", "AveragePool", axes, "The mean of each window, padding not counted.")
    for axes in (2, 3)
)


def _no_pool(kind: str) -> UnsupportedError:
    return UnsupportedError(
        f"{kind} was never implemented",
        hint=f"give the blob a height of 1 by flow.expand_dims and use flow.nn.{kind[:-2]}2d",
    )


@op(
    "nn.avg_pool1d",
    earlier={"0.1.8": "(input, ksize, strides, padding, data_format='NWC', name=None)"},
)
def avg_pool1d(
    b: Builder,
    input: Value,
    ksize: Ints,
    strides: Ints,
    padding: Padding,
    data_format: str = "NCW",
    name: str | None = None,
) -> Value:
    """Refuses, as OneFlow does."""
    raise _no_pool("avg_pool1d")


@op("nn.max_pool1d")
def max_pool1d(
    b: Builder,
    input: Value,
    ksize: Ints,
    strides: Ints,
    padding: Padding,
    data_format: str = "NWC",
    name: str | None = None,
) -> Value:
    """Refuses, as OneFlow does."""
    raise _no_pool("max_pool1d")
