"""Updates that wait for whoever reads the state, so that its next value may be put in its place."""

from collections.abc import Iterable, Sequence

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN
from flow2onnx_native.graph import VIEWS, is_standard

__all__ = ["wait_for_readers"]

_PRODUCT_INPUTS = 3  # and one more that it only waits for


def wait_for_readers(
    graph: ir.Graph, late_readers: Iterable[tuple[ir.Node, Sequence[ir.Node]]]
) -> None:
    """Give each update the results of those that may read the state after it, as inputs.

    `Fused`, `FusedParts` and `Product` take inputs that they do not read. `late_readers` as in
    `GraphAnalysis`.
    """
    for writer, late in late_readers:
        if _can_wait(writer) and all(_ends_reading(n, graph) for n in late):
            _wait(writer, [n.outputs[0] for n in late])


def _can_wait(writer: ir.Node) -> bool:
    """True if a node takes more inputs, and none that could come first needs its results."""
    takes_more = writer.op_type in ("Fused", "FusedParts") or (
        writer.op_type == "Product" and len(writer.inputs) <= _PRODUCT_INPUTS
    )
    return writer.domain == DOMAIN and takes_more and not any(v.uses() for v in writer.outputs)


def _ends_reading(reader: ir.Node, graph: ir.Graph) -> bool:
    """True if the memory that a node reads is its own again once it has run."""
    is_view = is_standard(reader, *VIEWS)
    return reader.graph is graph and not is_view and bool(reader.outputs[0].name)


def _wait(writer: ir.Node, values: Sequence[ir.Value]) -> None:
    first = len(writer.inputs)
    if writer.op_type == "Product":
        if len(values) > 1:
            return
        first = _PRODUCT_INPUTS
    writer.resize_inputs(first + len(values))
    for i, value in enumerate(values):
        writer.replace_input_with(first + i, value)
