"""`flow.profiler`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def nvtx_end(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], mark_prefix: _builtins.str, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself; no mark is set."""
def nvtx_start(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], mark_prefix: _builtins.str, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The value itself; no mark is set."""
def range_pop() -> None:
    """Nothing."""
def range_push(range_name: _builtins.str) -> None:
    """Nothing: the profiler's ranges belong to OneFlow's engine."""
