"""Arguments of operators that run on the host: names, types and checks."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from flow2onnx.dtypes import DType, record, tensor_buffer
from flow2onnx.errors import ArgumentError, DTypeError
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.host import HostType, HostValue
from flow2onnx.trace.host_blob import HostBlob, emit, host_value

__all__ = ["buffer_type", "buffers", "channels_of", "choice", "dense", "operator_name", "pair",
           "per_sample", "positive", "records", "seed_of"]  # fmt: skip


def operator_name(name: str | None, kind: str) -> str:
    """The name of a new operator of the job; stateful ones have a default that is used once."""
    return current_job(kind).name_op(name, kind)


def per_sample(
    full: str,
    run: Callable[..., Any],
    *inputs: HostValue,
    shape: Sequence[int] = (),
    dtype: DType | None = None,
) -> HostBlob:
    """The results of `run` for each sample: buffers, or arrays of one shape and element type."""
    batch = inputs[0].type.shape[0]
    made = buffer_type(batch) if dtype is None else HostType((batch, *shape), dtype)
    return emit(full, "sample", run, inputs, made)[0]


def seed_of(full: str, seed: int | None) -> int:
    """The user's seed, or one that the session's and the name decide."""
    if seed is not None and (not isinstance(seed, int) or isinstance(seed, bool)):
        raise ArgumentError(f"seed is an int, got {seed!r}")
    if seed is not None and seed >= 0:
        return seed
    return int(current_job(full).random_seed(full))


def records(blob: Blob, what: str) -> HostValue:
    """The records that a decoder reads."""
    return _of(blob, what, record, "records", "pass what flow.data.ofrecord_reader returned")


def buffers(blob: Blob, what: str) -> HostValue:
    """Arrays of different sizes, such as decoded images."""
    hint = "pass what flow.data.OFRecordImageDecoder or an operator of flow.image returned"
    return _of(blob, what, tensor_buffer, "tensor buffers", hint)


def _of(blob: Blob, what: str, dtype: DType, kind: str, hint: str) -> HostValue:
    if blob.dtype != dtype:
        raise DTypeError(f"takes {kind}, got {blob.dtype.name} of shape {blob.shape}", hint=hint)
    return host_value(blob, what)


def dense(blob: Blob, what: str, shape: Sequence[int], dtypes: Sequence[DType]) -> HostValue:
    """One array for the batch, of this shape and one of the element types."""
    if blob.dtype not in dtypes or blob.shape != tuple(shape):
        wanted = " or ".join(d.name for d in dtypes)
        raise DTypeError(
            f"takes {wanted} of shape {tuple(shape)}, got {blob.dtype.name} of shape {blob.shape}"
        )
    return host_value(blob, what)


def positive(value: object, what: str) -> int:
    """An int of at least 1."""
    if type(value) is not int or value < 1:
        raise ArgumentError(f"{what} is a positive int, got {value!r}")
    return value


def pair(value: Any, what: str) -> tuple[float, float]:
    """Two numbers."""
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ArgumentError(f"{what} is two numbers, got {value!r}")
    return float(value[0]), float(value[1])


def choice(value: object, known: Iterable[str], what: str) -> str:
    """One of some words."""
    known = list(known)
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(f"{what} is one of {', '.join(known)}; got {value!r}")
    return value


def channels_of(color: object) -> int:
    """The number of channels of a color_space."""
    return {"BGR": 3, "RGB": 3, "GRAY": 1}[choice(color, ("BGR", "RGB", "GRAY"), "color_space")]


def buffer_type(batch: int) -> HostType:
    """Arrays of different sizes."""
    return HostType((batch,), tensor_buffer)
