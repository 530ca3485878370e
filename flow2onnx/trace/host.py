"""The host part of a job: what is read, decoded and cut on the host before each call.

No standard operator reads files or decodes images. Such an operator of a job makes a host node; a
host value that an ordinary operator uses becomes an input of the graph, fed anew at each call.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flow2onnx.dtypes import DType, record, tensor_buffer
from flow2onnx.errors import DTypeError, UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.source import user_frame

if TYPE_CHECKING:
    from flow2onnx.trace.job import Job

__all__ = ["Draw", "HostBlob", "HostNode", "HostPart", "HostPlan", "HostType", "HostValue", "emit",
           "host_value"]  # fmt: skip

Kind = Literal["source", "sample", "batch"]


@dataclass(frozen=True)
class HostType:
    """What a host value is at each call: the whole shape, the batch first, and the element type.

    Records and tensor buffers have the shape (batch,): one object, or array, for each sample.
    """

    shape: tuple[int, ...]
    dtype: DType

    @property
    def is_dense(self) -> bool:
        """Whether it is one array, so that it can go into the graph."""
        return self.dtype not in (record, tensor_buffer)


@dataclass(frozen=True, eq=False)
class HostNode:
    """One step on the host, called `name` in the job, made at `source`.

    A "source" is opened by `run()`, an iterator of batches: for each output a sequence of samples.
    A "sample" node is ``run(key, *samples)``, for one sample; a "batch" node ``run(batch, *lists)``
    for all of one call. `key` is (batch, slot): what random draws depend on. Both return a tuple
    of outputs.
    """

    name: str
    kind: Kind
    run: Callable[..., Any]
    inputs: tuple["HostValue", ...] = ()
    source: str | None = None


@dataclass(frozen=True, eq=False)
class HostValue:
    """One output of a host node, and what the node calls it."""

    node: HostNode
    index: int
    type: HostType
    name: str = "out"


@dataclass(frozen=True)
class HostPlan:
    """The host nodes that feed a job, each behind those it reads, and what is fed, in order."""

    nodes: tuple[HostNode, ...]
    feeds: tuple[HostValue, ...]

    @property
    def signature(self) -> tuple[object, ...]:
        """Equal for two plans that feed the same from the same."""
        nodes = tuple((node.name, node.kind) for node in self.nodes)
        return nodes, tuple((v.node.name, v.index, v.type) for v in self.feeds)


class HostPart:
    """The host values of the job being traced, and those that its graph takes as inputs."""

    def __init__(self) -> None:
        self._nodes: set[HostNode] = set()
        self._feeds: dict[HostValue, Value] = {}
        self._draws: dict[Value, Draw] = {}
        self._drawn: dict[Value, HostValue] = {}

    @property
    def inputs(self) -> list[Value]:
        """The inputs of the graph that are fed from here."""
        return list(self._feeds.values())

    def add(self, node: HostNode) -> None:
        """One more node of this job."""
        self._nodes.add(node)

    def owns(self, value: HostValue) -> bool:
        """Whether `value` was made in this tracing."""
        return value.node in self._nodes

    def fed(self, b: Builder, value: HostValue) -> Value:
        """The input of the graph that holds `value`."""
        if value not in self._feeds:
            fed = b.input(f"host/{len(self._feeds)}", value.type.shape, value.type.dtype)
            b.rename(fed, f"{value.node.name}/{value.name}")
            self._feeds[value] = fed
        return self._feeds[value]

    def plan(self) -> HostPlan | None:
        """What feeds the graph as traced so far; None if nothing does."""
        feeds = tuple(self._feeds)
        return HostPlan(tuple(_ordered(feeds)), feeds) if feeds else None

    def may_draw(self, value: Value, draw: "Draw") -> None:
        """Say that `value` of the graph can also be drawn on the host."""
        self._draws[value] = draw

    def drawn(self, b: Builder, value: Value) -> HostValue | None:
        """`value` drawn on the host, and fed to the graph in place of its own draw."""
        draw = self._draws.get(value)
        if draw is not None and value not in self._drawn:
            node = HostNode(draw.name, "source", draw.run, source=b.source)
            self.add(node)
            host = HostValue(node, 0, HostType(value_shape(value), draw.dtype))
            producer = value.producer()
            assert producer is not None, "a draw of the graph is made by a node"
            producer.replace_input_with(0, self.fed(b, host))
            self._drawn[value] = host
        return self._drawn.get(value)


@dataclass(frozen=True)
class Draw:
    """How the host draws what a Cast of the graph would have made."""

    name: str
    dtype: DType
    run: Callable[[], Iterator[Any]]


def value_shape(value: Value) -> tuple[int, ...]:
    """The static shape of a draw."""
    assert value.shape is not None, "draws have a shape"
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # static, hence ints


def _ordered(feeds: Iterable[HostValue]) -> Iterator[HostNode]:
    seen: set[HostNode] = set()

    def visit(node: HostNode) -> Iterator[HostNode]:
        if node not in seen:
            seen.add(node)
            for value in node.inputs:
                yield from visit(value.node)
            yield node

    for value in feeds:
        yield from visit(value.node)


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
        return job.host.fed(job.b, self.host)

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
        """Whether the shape may be smaller at a call: never."""
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


def _check_own(job: "Job", value: HostValue) -> None:
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
    found = job.host.drawn(job.b, blob.value)
    if found is None:
        raise UnsupportedError(
            f"{blob.logical_blob_name} is computed in the graph, and {what} reads it on the host",
            hint="give what a reader, a decoder, an operator of flow.image or flow.random.CoinFlip "
            "made",
        )
    return found
