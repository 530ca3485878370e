"""`flow.quantization`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def fake_quantization(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], scale: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], zero_point: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], quantization_bit: _builtins.int = 8, quantization_scheme: _builtins.str = 'symmetric', quantization_formula: _builtins.str = 'google', name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """A blob rounded to what so many bits hold; the gradient passes straight through."""
def min_max_observer(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], quantization_bit: _builtins.int = 8, quantization_scheme: _builtins.str = 'symmetric', quantization_formula: _builtins.str = 'google', per_layer_quantization: _builtins.bool = True, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """The scale and the zero point of a blob's range, or of the range at each index of axis 0."""
def moving_average_min_maxObserver(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], quantization_bit: _builtins.int = 8, quantization_scheme: _builtins.str = 'symmetric', momentum: _builtins.float = 0.95, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """The spelling of 0.3 of moving_average_min_max_observer."""
def moving_average_min_max_observer(input: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], quantization_bit: _builtins.int = 8, quantization_scheme: _builtins.str = 'symmetric', quantization_formula: _builtins.str = 'google', momentum: _builtins.float = 0.95, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob, _flow2onnx_trace_blob.Blob]:
    """The scale and the zero point of the moving range, which train jobs move at every call."""
