"""`flow.system`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def assign(ref: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], value: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], validate_shape: _builtins.bool | None = None, use_locking: _builtins.bool | None = None, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """flow.assign, which always validates the shape; returns `ref`."""
