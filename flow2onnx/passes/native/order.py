"""Updates that wait for whoever reads the state, so that its next value may be put in its place."""

import onnx_ir as ir
from flow2onnx_runtime.manifest import NEXT

from flow2onnx.analysis.in_place import VIEWS, WORTH_BYTES, predecessor_bits
from flow2onnx.analysis.live_range import byte_size
from flow2onnx.passes.native.programs import DOMAIN

__all__ = ["wait_for_readers"]

_PRODUCT_INPUTS = 3  # and one more that it only waits for


def wait_for_readers(graph: ir.Graph) -> None:
    """Give each update of a large state the results of all that read the state, as inputs.

    `Fused` and `Product` take inputs that they do not read. The graph is sorted.
    """
    bits = {node: 1 << i for i, node in enumerate(graph)}
    before = predecessor_bits(graph, bits)
    results = {v.name: v for v in graph.outputs}
    for state in graph.inputs:
        new = results.get(f"{NEXT}{state.name}")
        writer = None if new is None else new.producer()
        if writer is None or byte_size(state) < WORTH_BYTES or not _can_wait(writer):
            continue
        readers = dict.fromkeys(use.node for use in state.uses() if use.node is not writer)
        late = [n for n in readers if n.graph is not graph or not before[writer] & bits[n]]
        if all(_shows_its_end(n, graph) for n in late):
            _wait(writer, [n.outputs[0] for n in late])


def _can_wait(writer: ir.Node) -> bool:
    """Whether a node takes more inputs, and nothing that could come before it needs its results."""
    takes_more = writer.op_type == "Fused" or (
        writer.op_type == "Product" and len(writer.inputs) <= _PRODUCT_INPUTS
    )
    return writer.domain == DOMAIN and takes_more and not any(v.uses() for v in writer.outputs)


def _shows_its_end(reader: ir.Node, graph: ir.Graph) -> bool:
    """Whether the memory that a node reads is its own again once it has run."""
    is_view = reader.domain == "" and reader.op_type in VIEWS
    return reader.graph is graph and not is_view and bool(reader.outputs[0].name)


def _wait(writer: ir.Node, for_: list[ir.Value]) -> None:
    first = len(writer.inputs)
    if writer.op_type == "Product":
        if len(for_) > 1:
            return
        first = _PRODUCT_INPUTS
    writer.resize_inputs(first + len(for_))
    for i, value in enumerate(for_):
        writer.replace_input_with(first + i, value)
