"""`flow.linalg`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def matmul(a: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], b: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], transpose_a: _builtins.bool = False, transpose_b: _builtins.bool = False, alpha: _typing.Any = 1.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The matrix product over the last two axes, times `alpha`."""
