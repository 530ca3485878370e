"""Undoing broadcasts, in one place."""

from onnx_ir import Value

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.types import dims

__all__ = ["unbroadcast"]


def unbroadcast(b: Builder, g: Value, like: Value) -> Value:
    """Sum `g` over the axes along which `like` was repeated to reach the shape of `g`."""
    have, want = dims(g), dims(like)
    if have == want:
        return g
    lead = len(have) - len(want)
    assert lead >= 0, f"a gradient of shape {have} for a value of shape {want}"
    stretched = [i + lead for i, d in enumerate(want) if d == 1 and have[i + lead] != 1]
    if stretched:
        g = b.ReduceSum(g, stretched, keepdims=1)
    if lead:
        g = b.ReduceSum(g, list(range(lead)), keepdims=0)
    return g
