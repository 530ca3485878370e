"""`flow.keras.maths`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing
import typing_extensions as _typing_extensions

@_typing_extensions.deprecated("use flow.math.add")
def add(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any] | _builtins.float, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x + y, broadcast."""
