"""Between tensor buffers and arrays, where both are on the host."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from flow2onnx.data.decoding import as_tensor
from flow2onnx.dtypes import DType, element_type
from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.ops.host_arguments import buffers, operator_name, per_sample
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.host_blob import host_value
from flow2onnx.trace.op import composite


@composite("tensor_buffer_to_tensor")
def tensor_buffer_to_tensor(
    x: Blob, dtype: DType, instance_shape: Sequence[int], name: str | None = None
) -> Blob:
    """Buffers that all have the instance shape, as one array."""
    what = "tensor_buffer_to_tensor"
    source, kind, shape = buffers(x, what), element_type(dtype), tuple(instance_shape)
    if any(type(n) is not int or n < 1 for n in shape):
        raise ArgumentError(f"instance_shape is positive ints, got {instance_shape!r}")
    full = operator_name(name, "TensorBufferToTensor")
    return per_sample(full, partial(_unpack, shape, kind), source, shape=shape, dtype=kind)


def _unpack(shape: tuple[int, ...], dtype: DType, key: object, buffer: Any) -> tuple[Any]:
    return (as_tensor(shape, dtype, buffer),)


@composite("tensor_to_tensor_buffer")
def tensor_to_tensor_buffer(x: Blob, instance_dims: int, name: str | None = None) -> Blob:
    """An array that a decoder made, as a buffer for each sample."""
    what = "tensor_to_tensor_buffer"
    source = host_value(x, what)
    if instance_dims != len(source.type.shape) - 1:
        raise ShapeError(
            f"instance_dims is {instance_dims!r}; a blob of shape {source.type.shape} has "
            f"{len(source.type.shape) - 1} axes for each sample"
        )
    full = operator_name(name, "TensorToTensorBuffer")
    return per_sample(full, _pack, source)


def _pack(key: object, array: Any) -> tuple[Any]:
    return (array,)
