"""Weights that no kernel packs as a session opens, but reads as they are in every run."""

import math

from flow2onnx.dtypes import int64
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.types import dims, dtype_of

__all__ = ["unpacked"]


def unpacked(b: Builder, weight: Value, fed: Value) -> Value:
    """`weight` as it is, a view of what the session takes for no constant.

    The shape depends on `fed`, numbers that are known at the run alone: 0 is added to it.
    """
    first = b.Slice(b.Reshape(fed, [-1]), [0], [1])
    none = b.Cast(b.Greater(first, b.const(math.inf, dtype_of(fed))), to=int64)
    shape = b.Add(b.const(list(dims(weight))), none)
    return b.agree(b.Reshape(weight, shape), weight)
