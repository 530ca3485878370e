"""`flow.keras.activations`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing
import typing_extensions as _typing_extensions

@_typing_extensions.deprecated("use flow.math.gelu")
def gelu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """x Φ(x) with the exact normal distribution function Φ."""
@_typing_extensions.deprecated("use flow.math.gelu_grad")
def gelu_grad(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dy: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The gradient of `gelu` at `x` for one of `dy` behind it."""
def relu(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], alpha: _builtins.float = 0.0, max_value: _builtins.float | None = None, threshold: _builtins.float = 0.0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """math.relu; the other arguments exist, and have to stay as they are."""
@_typing_extensions.deprecated("use flow.math.sigmoid")
def sigmoid(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """1/(1+e^-x)."""
@_typing_extensions.deprecated("use flow.math.tanh")
def tanh(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The hyperbolic tangent."""
@_typing_extensions.deprecated("use flow.math.tanh_grad")
def tanh_grad(y: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], dy: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The gradient of `tanh` where it gave `y` for one of `dy` behind it."""
