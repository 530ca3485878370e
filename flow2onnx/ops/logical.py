"""Slices in the coordinates of the whole blob, read and written."""

from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value
from flow2onnx.ops.indexing import Slices, slice_v2
from flow2onnx.ops.scatter import slice_update
from flow2onnx.ops.variable import assign
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import composite, op


def _check_forward(slice_tup_list: Slices) -> None:
    if any(t[2] is not None and t[2] < 0 for t in slice_tup_list if len(t) == 3):
        raise ArgumentError("logical slices step forward", hint="flow.slice_v2 steps back too")


@op("experimental.logical_slice")
def logical_slice(b: Builder, x: Value, slice_tup_list: Slices, name: str | None = None) -> Value:
    """`slice_v2` with steps forward only."""
    _check_forward(slice_tup_list)
    return slice_v2.lower(b, x, slice_tup_list)


@composite("experimental.logical_slice_assign")
def logical_slice_assign(
    x: Blob, value: Blob, slice_tup_list: Slices, name: str | None = None
) -> None:
    """After this call the slice of variable `x` holds `value`."""
    _check_forward(slice_tup_list)
    assign.lower(x, slice_update(x, value, slice_tup_list))
