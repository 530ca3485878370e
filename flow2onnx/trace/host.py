"""The host part of a job: what is read, decoded and cut on the host before each call.

No standard operator reads files or decodes images. Such an operator of a job makes a host node; a
host value that an ordinary operator uses becomes an input of the graph, fed anew at each call.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from flow2onnx.dtypes import DType, record, tensor_buffer
from flow2onnx.graph import Builder, Value

__all__ = ["Draw", "HostNode", "HostPart", "HostPlan", "HostType", "HostValue", "Kind"]

Kind = Literal["source", "sample", "batch"]


@dataclass(frozen=True)
class HostType:
    """The whole shape of a host value at each call, the batch first, and its element type.

    Records and tensor buffers have the shape (batch,): one object, or array, for each sample.
    """

    shape: tuple[int, ...]
    dtype: DType

    @property
    def is_dense(self) -> bool:
        """True for one array, which can go into the graph."""
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
        """True if `value` was made in this tracing."""
        return value.node in self._nodes

    def feed(self, b: Builder, value: HostValue) -> Value:
        """The input of the graph that holds `value`."""
        if value not in self._feeds:
            fed = b.input(f"host/{len(self._feeds)}", value.type.shape, value.type.dtype)
            b.rename(fed, f"{value.node.name}/{value.name}")
            self._feeds[value] = fed
        return self._feeds[value]

    def plan(self) -> HostPlan | None:
        """The nodes that feed the graph as traced so far; None if nothing does."""
        feeds = tuple(self._feeds)
        return HostPlan(tuple(_in_order(feeds)), feeds) if feeds else None

    def may_draw(self, value: Value, draw: "Draw") -> None:
        """Say that `value` of the graph can also be drawn on the host."""
        self._draws[value] = draw

    def draw(self, b: Builder, value: Value) -> HostValue | None:
        """`value` drawn on the host, and fed to the graph in place of its own draw."""
        draw = self._draws.get(value)
        if draw is not None and value not in self._drawn:
            node = HostNode(draw.name, "source", draw.run, source=b.source)
            self.add(node)
            host = HostValue(node, 0, HostType(value_shape(value), draw.dtype))
            producer = value.producer()
            assert producer is not None, "a draw of the graph is made by a node"
            producer.replace_input_with(0, self.feed(b, host))
            self._drawn[value] = host
        return self._drawn.get(value)


@dataclass(frozen=True)
class Draw:
    """A draw of the host that replaces the result of a Cast of the graph."""

    name: str
    dtype: DType
    run: Callable[[], Iterator[Any]]


def value_shape(value: Value) -> tuple[int, ...]:
    """The static shape of a draw."""
    assert value.shape is not None, "draws have a shape"
    return tuple(int(d) for d in value.shape)  # type: ignore[arg-type]  # static, hence ints


def _in_order(feeds: Iterable[HostValue]) -> Iterator[HostNode]:
    seen: set[HostNode] = set()

    def visit(node: HostNode) -> Iterator[HostNode]:
        if node not in seen:
            seen.add(node)
            for value in node.inputs:
                yield from visit(value.node)
            yield node

    for value in feeds:
        yield from visit(value.node)
