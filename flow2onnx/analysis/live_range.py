"""The memory that a graph needs between its inputs and outputs, computed from live ranges."""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

import onnx_ir as ir
from flow2onnx_runtime.manifest import NEXT

from flow2onnx.graph.nodes import read_values
from flow2onnx.graph.types import dims, dtype_of, is_static

__all__ = [
    "VIEWS",
    "CallSizes",
    "byte_size",
    "call_sizes",
    "constant_bytes",
    "peak_bytes",
    "session_bytes",
]

# Their output is the memory of their input.
VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
_NODE_BYTES = 7000  # of a session; measured with onnxruntime 1.31: 6,300 to 9,500
_PACKED = frozenset({"MatMulNBits"})  # whose weights it has again, in the order of its loops


def byte_size(value: ir.Value) -> int:
    """The bytes of a value; 0 where a dimension is known only at run time."""
    if value.shape is None or value.dtype is None or not is_static(value):
        return 0
    return math.prod(dims(value)) * dtype_of(value).numpy.itemsize


@dataclass(frozen=True)
class CallSizes:
    """The bytes of one call of a model besides state."""

    constants: int
    inputs: int
    results: int
    activations: int


def call_sizes(graph: ir.Graph, feeds: Collection[str]) -> CallSizes:
    """The bytes of a call, of which `feeds` are the inputs that are no state."""
    return CallSizes(
        constants=constant_bytes(graph),
        inputs=sum(byte_size(v) for v in graph.inputs if v.name in feeds),
        results=sum(byte_size(v) for v in graph.outputs if not str(v.name).startswith(NEXT)),
        activations=peak_bytes(graph),
    )


def constant_bytes(graph: ir.Graph) -> int:
    """The bytes of what is in the model itself."""
    made = [n.outputs[0] for n in graph if n.op_type == "Constant"]
    return sum(map(byte_size, {*graph.initializers.values(), *made}))


def session_bytes(graph: ir.Graph) -> int:
    """The estimated bytes that the runtime keeps of an open graph beside its tensors."""
    nodes = list(graph.all_nodes())
    packed = [n.inputs[1] for n in nodes if n.op_type in _PACKED]
    return _NODE_BYTES * len(nodes) + sum(byte_size(v) for v in packed if v is not None)


def peak_bytes(graph: ir.Graph) -> int:
    """The most bytes of values that are alive at once, in the order of the nodes.

    A value lives from its node to its last reader. Inputs, outputs and constants are not counted,
    nor are the runtime's own scratch buffers; a runtime that orders or fuses nodes differently
    needs more or less.
    """
    nodes = list(graph)
    owners = _view_owners(nodes)
    last = {owners.get(v, v): i for i, node in enumerate(nodes) for v in _read_values(node)}
    apart = {owners.get(v, v) for v in graph.outputs}
    ends: dict[int, int] = {}  # node → bytes that it is the last to read
    alive = most = 0
    for i, node in enumerate(nodes):
        for value in _allocated_values(node, owners):
            if value not in apart and value in last:
                alive += byte_size(value)
                ends[last[value]] = ends.get(last[value], 0) + byte_size(value)
        most = max(most, alive)
        alive -= ends.pop(i, 0)
    return most


def _view_owners(nodes: Iterable[ir.Node]) -> dict[ir.Value, ir.Value]:
    """For the output of a view, the value whose memory it shows."""
    owners: dict[ir.Value, ir.Value] = {}
    for node in nodes:
        source = node.inputs[0] if node.op_type in VIEWS else None
        if source is not None:
            owners[node.outputs[0]] = owners.get(source, source)
    return owners


def _allocated_values(node: ir.Node, owners: dict[ir.Value, ir.Value]) -> list[ir.Value]:
    if node.op_type == "Constant":
        return []
    return [v for v in node.outputs if v.name and v not in owners]


def _read_values(node: ir.Node) -> list[ir.Value]:
    return [v for v in read_values(node) if v is not None]
