"""The inverse of broadcasts and reshapes; sizes may be known at run time only."""

from collections.abc import Sequence

from flow2onnx.graph import Builder, Value
from flow2onnx.graph.dimension import Dimension
from flow2onnx.graph.types import sizes_of
from flow2onnx.lowering.sums import row_sum

__all__ = ["reshape_to", "unbroadcast"]


def unbroadcast(b: Builder, g: Value, like: Value) -> Value:
    """Sum `g` over the axes along which `like` was repeated to reach the shape of `g`."""
    have, want = sizes_of(g), sizes_of(like)
    if have == want:
        return g
    lead = len(have) - len(want)
    assert lead >= 0, f"a gradient of shape {have} for a value of shape {want}"
    if any(isinstance(d, str) and have[i + lead] != d for i, d in enumerate(want)):
        return _unbroadcast_at_run_time(b, g, like, lead)
    stretched = [i + lead for i, d in enumerate(want) if d == 1 and have[i + lead] != 1]
    if stretched:
        g = b.ReduceSum(g, stretched, keepdims=1)
    if lead:
        g = row_sum(b, lead, g)
    return g


def _unbroadcast_at_run_time(b: Builder, g: Value, like: Value, lead: int) -> Value:
    """`unbroadcast` where only a run can tell which axes were repeated."""
    if lead:
        g = b.ReduceSum(g, list(range(lead)), keepdims=0)
    differ = b.NonZero(b.Not(b.Equal(b.Shape(g), b.Shape(like))))
    total: Value = b.ReduceSum(g, b.Reshape(differ, [-1]), keepdims=1, noop_with_empty_axes=1)
    return b.agree(total, like)


def reshape_to(b: Builder, x: Value, shape: Sequence[int | str | Dimension]) -> Value:
    """`x` in a shape without -1, whose sizes may be 0 or, by name, turn out to be."""
    may_be_empty = any(not isinstance(d, int) or d == 0 for d in shape)
    made: Value = b.Reshape(x, list(shape), allowzero=1 if may_be_empty else None)
    return made
