"""Between tensor buffers and arrays: on the host, or of one size in the graph."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NoReturn

from flow2onnx.data.decoding import as_tensor
from flow2onnx.dtypes import DType, element_type, tensor_buffer
from flow2onnx.errors import ArgumentError, DTypeError, ShapeError
from flow2onnx.graph import Builder, Value
from flow2onnx.ops.host_arguments import buffers, operator_name, per_sample
from flow2onnx.ops.special import no_gradient
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.host_blob import HostBlob, host_value
from flow2onnx.trace.op import composite, op


class ComputedBuffers(Blob):
    """Tensor buffers of the last `instance_dims` axes of a computed blob, which have one size.

    They are a view of it: no node makes them. Operators on tensors, and those on the host, refuse
    them.
    """

    __slots__ = ("instance_dims", "name", "whole")

    def __init__(self, whole: Blob, instance_dims: int, name: str) -> None:
        self.whole, self.instance_dims, self.name = whole, instance_dims, name
        self._dynamic, self.distribute = whole.is_dynamic, whole.distribute

    @property
    def value(self) -> NoReturn:  # type: ignore[override]  # no tensor holds it
        """Raises DTypeError."""
        raise DTypeError(
            f"{self.name} makes buffers of {self.whole.logical_blob_name}, which is computed in "
            "the graph: neither operators on tensors nor those on the host take them",
            hint="flow.tensor_buffer_to_tensor gives the tensor back; operators of flow.image take "
            "what a reader or a decoder made",
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """The axes in front of those that are in the buffers."""
        return self.whole.shape[: len(self.whole.shape) - self.instance_dims]

    @property
    def dtype(self) -> DType:
        """`flow.tensor_buffer`."""
        return tensor_buffer

    @property
    def is_dynamic(self) -> bool:
        """True if the shape may be smaller at a call."""
        return self.whole.is_dynamic

    @property
    def op_name(self) -> str:
        """The operator that made it."""
        return self.name

    @property
    def blob_name(self) -> str:
        """The output of that operator."""
        return "out"

    @property
    def location(self) -> str:
        """The user's line that made what is in the buffers."""
        return self.whole.location

    def with_distribute(self, distribute: Any) -> Blob:
        """The same buffers under a hint, which changes none."""
        whole = self.whole.with_distribute(distribute)
        return ComputedBuffers(whole, self.instance_dims, self.name)

    def with_gradient_distribute(self, distribute: Any) -> Blob:
        """The same buffers, which have no gradient."""
        return self


@composite("tensor_buffer_to_tensor")
def tensor_buffer_to_tensor(
    x: Blob, dtype: DType, instance_shape: Sequence[int], name: str | None = None
) -> Blob:
    """Buffers that all have the instance shape, as one array."""
    what = "tensor_buffer_to_tensor"
    kind, shape = element_type(dtype), tuple(instance_shape)
    if any(type(n) is not int or n < 1 for n in shape):
        raise ArgumentError(f"instance_shape is positive ints, got {instance_shape!r}")
    if isinstance(x, ComputedBuffers):
        own = x.whole.shape[len(x.shape) :]
        if own != shape:
            raise ShapeError(
                f"buffers of shape {own}, {shape} is asked for",
                hint="instance_shape is the shape of every buffer",
            )
        whole: Blob = _whole(x.whole, kind, name)
        return whole
    source = buffers(x, what)
    full = operator_name(name, "TensorBufferToTensor")
    return per_sample(full, partial(_unpack, shape, kind), source, shape=shape, dtype=kind)


def _unpack(shape: tuple[int, ...], dtype: DType, key: object, buffer: Any) -> tuple[Any]:
    return (as_tensor(shape, dtype, buffer),)


@op("tensor_buffer_to_tensor.computed", vjp=no_gradient("tensor_to_tensor_buffer"), is_public=False)
def _whole(b: Builder, x: Value, dtype: DType, name: str | None = None) -> Value:
    """The array that was made buffers of."""
    return b.Cast(x, to=dtype)  # a pass leaves it out where the type is the same


@composite("tensor_to_tensor_buffer")
def tensor_to_tensor_buffer(x: Blob, instance_dims: int, name: str | None = None) -> Blob:
    """An array's last `instance_dims` axes as buffers, one for each element of the others."""
    rank = len(x.shape)
    if type(instance_dims) is not int or not 0 <= instance_dims < rank:
        raise ShapeError(
            f"instance_dims is {instance_dims!r}; a blob of shape {x.shape} has {rank - 1} axes "
            "that can be in buffers: it is an int from 0 to that"
        )
    full = operator_name(name, "TensorToTensorBuffer")
    if isinstance(x, HostBlob) and x.host.type.is_dense and instance_dims == rank - 1:
        return per_sample(full, _pack, host_value(x, "tensor_to_tensor_buffer"))
    return ComputedBuffers(Blob(x.value, x.is_dynamic), instance_dims, full)


def _pack(key: object, array: Any) -> tuple[Any]:
    return (array,)
