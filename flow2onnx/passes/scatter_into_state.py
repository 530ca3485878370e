"""Updates and gradients that scatter a few rows into a table."""

from collections.abc import Iterator

import onnx_ir as ir

from flow2onnx.graph.nodes import attribute
from flow2onnx.passes.base import Pass, only_user, remove, replace_output, state_updates

__all__ = ["ScatterIntoState"]


class ScatterIntoState(Pass):
    """Add the gradient of looked-up rows to the table, or another gradient of it, not to zeros.

    Given:   d = ScatterND(zeros, rows, g, reduction="add");  next/w = Add(w, d)
    Result:  next/w = ScatterND(w, rows, g, reduction="add")
    Given:   d = ScatterND(zeros, rows, g, reduction="add");  h = Gemm(...);  y = Add(h, d)
    Result:  h = Gemm(...);  y = ScatterND(h, rows, g, reduction="add")
    Kept:    changes that something else reads too, sums that broadcast, sums onto other than zeros

    The cost is that of the rows then, if the table is updated in place. A row looked up twice adds
    its gradients one after another: the sum may differ in its last bit. The second form is that of
    a table that is looked up and multiplied with, as words of a language model are.
    """

    def run(self, graph: ir.Graph) -> bool:
        """Look from each update back to the scatter."""
        changed = False
        for add, weight, scatter in state_updates(graph):
            if _adds_to_zeros(scatter):
                _write_into(graph, weight, scatter, add)
                changed = True
        for add, other, scatter in _sums_of_gradients(graph):
            _write_into(graph, other, scatter, add)
            changed = True
        return changed


def _sums_of_gradients(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Value, ir.Node]]:
    """Sums of what is scattered and another value that is computed; nothing else reads either."""
    for add in [n for n in graph if n.op_type == "Add"]:
        for other, scattered in (add.inputs, add.inputs[::-1]):
            if other is None or scattered is None or other.producer() is None:
                continue
            scatter = scattered.producer()
            is_whole = other.shape is not None and other.shape == scattered.shape
            if scatter is None or not is_whole or not _adds_to_zeros(scatter):
                continue
            if only_user(other) is add and only_user(scattered) is add:
                yield add, other, scatter
                break


def _write_into(graph: ir.Graph, weight: ir.Value, scatter: ir.Node, add: ir.Node) -> None:
    zeros, total = scatter.inputs[0], add.outputs[0]
    new = ir.Node(
        "", scatter.op_type, [weight, *scatter.inputs[1:]], scatter.attributes.values(),
        num_outputs=1, name=scatter.name,
    )  # fmt: skip
    new.meta.update(scatter.meta)
    value = new.outputs[0]
    value.name, value.type, value.shape = scatter.outputs[0].name, total.type, total.shape
    graph.insert_before(add, new)
    replace_output(graph, total, value)
    remove(graph, add)
    remove(graph, scatter)
    maker = zeros.producer() if zeros is not None else None
    if maker is not None and not list(maker.outputs[0].uses()):
        remove(graph, maker)


def _adds_to_zeros(node: ir.Node) -> bool:
    if node.op_type not in ("ScatterElements", "ScatterND"):
        return False
    source = node.inputs[0].producer() if node.inputs[0] is not None else None
    if attribute(node, "reduction") != "add" or source is None:
        return False
    content = attribute(source, "value")
    return source.op_type == "ConstantOfShape" and (content is None or not content.numpy().any())
