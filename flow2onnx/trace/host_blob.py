"""Blobs of host values: what readers and decoders give the user, and how host nodes are made."""

from collections.abc import Callable, Iterable
from typing import Any

from flow2onnx.dtypes import DType, record, tensor_buffer
from flow2onnx.errors import DTypeError, UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.host import HostNode, HostType, HostValue, Kind
from flow2onnx.trace.job import Job

__all__ = ["HostBlob", "emit", "host_value"]


class HostBlob(Blob):
    """The user's handle on a host value. An ordinary operator that takes it makes it an input."""

    __slots__ = ("host",)

    def __init__(self, host: HostValue) -> None:
        self.host, self._dynamic, self.distribute = host, False, None

    @property
    def value(self) -> Value:  # type: ignore[override]  # made when it is asked for
        """The input of the graph that is fed with it."""
        job, given = current_job(self.host.node.name), self.host.type
        _check_own(job, self.host)
        if not given.is_dense:
            raise DTypeError(
                f"{self.host.node.name} gives {_MEANINGS[given.dtype]}, which no operator on "
                "tensors takes",
                hint=_REMEDIES[given.dtype],
            )
        return job.host.feed(job.b, self.host)

    @property
    def shape(self) -> tuple[int, ...]:
        """The dimensions, the batch first."""
        return self.host.type.shape

    @property
    def dtype(self) -> DType:
        """The element type; `flow.tensor_buffer` and `flow.record` for what is no array."""
        return self.host.type.dtype

    @property
    def is_dynamic(self) -> bool:
        """True if the shape may be smaller at a call: never."""
        return False

    @property
    def op_name(self) -> str:
        """The operator that made it."""
        return self.host.node.name

    @property
    def blob_name(self) -> str:
        """The output of that operator."""
        return self.host.name

    @property
    def location(self) -> str:
        """The user's line that made it."""
        return self.host.node.source or ""

    def with_distribute(self, distribute: Any) -> Blob:
        """The same value under a hint, which changes nothing on one device."""
        copy = HostBlob(self.host)
        copy.distribute = distribute
        return copy

    def with_gradient_distribute(self, distribute: Any) -> Blob:
        """The same value: nothing on the host has a gradient."""
        return self.with_distribute(self.distribute)


_MEANINGS = {record: "records", tensor_buffer: "arrays of different sizes"}
_REMEDIES = {
    record: "decode them: flow.data.OFRecordRawDecoder, flow.data.OFRecordImageDecoder",
    tensor_buffer: "bring them to one size: flow.image.Resize(...)[0], flow.image.batch_align",
}


def emit(
    name: str,
    kind: Kind,
    run: Callable[..., Any],
    inputs: Iterable[HostValue],
    *types: HostType,
) -> tuple[HostBlob, ...]:
    """Make a host node in the job being traced; returns a blob for each of its outputs."""
    node = HostNode(name, kind, run, tuple(inputs), user_frame())
    current_job(name).host.add(node)
    names = ["out"] if len(types) == 1 else [f"out_{i}" for i in range(len(types))]
    values = [HostValue(node, i, t, n) for i, (t, n) in enumerate(zip(types, names, strict=True))]
    return tuple(HostBlob(v) for v in values)


def _check_own(job: Job, value: HostValue) -> None:
    if not job.host.owns(value):
        raise job.error(
            f"blob {value.node.name}/{value.name} was made in another job",
            hint="blobs live in one job function: call the reader in each job that reads",
        )


def host_value(blob: Blob, what: str) -> HostValue:
    """The host value of an argument; raises for what only the graph knows."""
    job = current_job(what)
    if isinstance(blob, HostBlob):
        _check_own(job, blob.host)
        return blob.host
    found = job.host.draw(job.b, blob.value)
    if found is None:
        raise UnsupportedError(
            f"{blob.logical_blob_name} is computed in the graph, and {what} reads it on the host",
            hint="give what a reader, a decoder, an operator of flow.image or flow.random.CoinFlip "
            "made",
        )
    return found
