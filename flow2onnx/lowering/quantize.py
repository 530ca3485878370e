"""Quantization in standard operators: ranges, scales, and what a value is after it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flow2onnx.dtypes import DType, float32, int8, uint8
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of, rank_of

__all__ = ["Scheme", "fake_quantize", "min_max", "scale_of", "zero_point"]

_LEAST = 1e-30  # the scale of a value that is 0 everywhere


@dataclass(frozen=True)
class Scheme:
    """A mapping of ranges to 8 bits: around 0 or anywhere, with any scale or a power of two."""

    is_symmetric: bool = True
    is_power_of_two: bool = False

    @property
    def dtype(self) -> DType:
        """The element type of the quantized value."""
        return int8 if self.is_symmetric else uint8


def min_max(b: Builder, x: Value, axis: int | None = None) -> tuple[Value, Value]:
    """The least and the greatest element, of all or for each index of `axis`."""
    axes: Sequence[int] = [i for i in range(rank_of(x)) if i != axis]
    return b.ReduceMin(x, list(axes), keepdims=0), b.ReduceMax(x, list(axes), keepdims=0)


def scale_of(b: Builder, low: Value, high: Value, scheme: Scheme) -> Value:
    """The size of one step, float32, for ranges from `low` to `high`."""
    if scheme.is_symmetric:
        extent = b.Max(b.Abs(low), b.Abs(high))
        if scheme.is_power_of_two:
            return _power_of_two(b, b.Max(extent, _LEAST))
        return b.Max(b.Div(extent, 127.0), _LEAST)
    return b.Max(b.Div(b.Sub(b.Max(high, 0.0), b.Min(low, 0.0)), 255.0), _LEAST)


def _power_of_two(b: Builder, extent: Value) -> Value:
    """2 to the integer part of log2(extent), less the bits behind the first."""
    return b.Pow(b.const(2.0, float32), b.Sub(b.Floor(b.Div(b.Log(extent), float(np.log(2)))), 6.0))


def zero_point(b: Builder, low: Value, scale: Value, scheme: Scheme) -> Value | None:
    """The 8-bit number that stands for 0, or None where that is 0."""
    if scheme.is_symmetric:
        return None
    steps = b.Round(b.Div(b.Neg(b.Min(low, 0.0)), scale))
    return b.Cast(b.Clip(steps, b.const(0.0, float32), b.const(255.0, float32)), to=uint8)


def fake_quantize(
    b: Builder, x: Value, scale: Value, zero: Value | None, axis: int | None = None
) -> Value:
    """`x` rounded to 8-bit numbers and scaled back; without `zero` they are signed."""
    if zero is None:
        zero = b.const(np.zeros(dims(scale)), int8)
    where = {} if axis is None else {"axis": axis}
    assert dtype_of(x) == float32, f"{x.name} is quantized as {dtype_of(x)}"
    small = b.QuantizeLinear(x, scale, zero, **where)
    return b.DequantizeLinear(small, scale, zero, **where)
