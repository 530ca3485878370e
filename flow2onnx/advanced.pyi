"""`flow.advanced`.

Written by `python -m tests.stubs` from the names that there are: change those.
"""

import builtins as _builtins
import collections.abc as _collections_abc
import flow2onnx.trace.blob as _flow2onnx_trace_blob
import numpy.typing as _numpy_typing
import typing as _typing

def distribute_add(xs: _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The sum over the devices, of which there is one."""
def distribute_clone(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob]:
    """One copy for each device, of which there is one."""
def distribute_concat(xs: _collections_abc.Sequence[_flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any]], axis: _builtins.int = 0, name: _builtins.str | None = None) -> _flow2onnx_trace_blob.Blob:
    """The pieces of the devices in a row; there is one device."""
def distribute_map(xs: _typing.Any, f: _collections_abc.Callable[..., _typing.Any], axis: _builtins.int = 0) -> _typing.Any:
    """`f` of the piece of each device, in a row; there is one device."""
def distribute_split(x: _flow2onnx_trace_blob.Blob | _numpy_typing.NDArray[_typing.Any], axis: _builtins.int = 0, name: _builtins.str | None = None) -> _builtins.tuple[_flow2onnx_trace_blob.Blob]:
    """One piece for each device, of which there is one."""
