"""The base of all passes, and the rewrites that several of them share."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import onnx_ir as ir
from flow2onnx_runtime.extensions import REPLACED_BY

from flow2onnx.dtypes import DType
from flow2onnx.graph.builder import Builder
from flow2onnx.graph.types import dtype_of

__all__ = [
    "Pass",
    "Placeholders",
    "add_operand",
    "cast_node",
    "detach",
    "fuse_addend",
    "insert_nodes",
    "only_user",
    "redirect_readers",
    "remove",
    "remove_all",
    "replace_node",
    "replace_output",
    "replace_value",
    "state_updates",
]

# Of each value of a graph what stands for it in a builder that is apart from the graph.
Placeholders = Mapping[ir.Value, ir.Value]
Emit = Callable[[Builder, Placeholders], Sequence[ir.Value]]


class Pass:
    """One rewrite of a graph in place, which keeps the job's inputs, outputs and their names."""

    def run(self, graph: ir.Graph) -> bool:
        """Rewrite; returns whether anything changed."""
        raise NotImplementedError


def only_user(value: ir.Value) -> ir.Node | None:
    """The one node that reads a value which is no output of the graph, or None."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def remove(graph: ir.Graph, node: ir.Node) -> None:
    """Take out a node that nobody reads."""
    graph.remove(node, safe=True)


def detach(node: ir.Node) -> None:
    """Let a node that nobody reads read nothing, until `remove_all` takes it out with others."""
    for i in range(len(node.inputs)):
        node.replace_input_with(i, None)


def remove_all(graph: ir.Graph, nodes: Sequence[ir.Node]) -> None:
    """Take out nodes that nobody reads; however many, the outputs are looked at once."""
    if nodes:
        graph.remove(nodes, safe=True)


def add_operand(node: ir.Node, addend: ir.Value, total: ir.Value) -> ir.Node:
    """A Gemm or Conv of two inputs with the third: what it makes has the type of `total`."""
    # beta scales the third input, which there was none of
    attributes = [a for a in node.attributes.values() if a.name != "beta"]
    fused = ir.Node(
        "", node.op_type, [*node.inputs, addend], attributes, num_outputs=1, name=node.name
    )
    new = fused.outputs[0]
    new.name, new.type, new.shape = node.outputs[0].name, total.type, total.shape
    fused.meta.update(node.meta)
    return fused


def fuse_addend(
    graph: ir.Graph, product: ir.Node, addend: ir.Value, add: ir.Node
) -> tuple[ir.Node, ir.Node]:
    """Let a product add `addend` itself, in the place of the addition that did.

    It stands where the addition stood, because the addend may be made after the product. Returns
    the two nodes that nobody reads any more, and that read nothing, for `remove_all`.
    """
    total = add.outputs[0]
    fused = add_operand(product, addend, total)
    graph.insert_before(add, fused)
    replace_output(graph, total, fused.outputs[0])
    detach(add)
    detach(product)
    return add, product


def replace_output(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let everyone who reads `old`, the job's callers included, read `new` under the old name."""
    if old.is_graph_output():
        new.name = old.name
        for i in _positions(graph, old):
            graph.outputs[i] = new
    replace_value(old, new)


def replace_value(old: ir.Value, new: ir.Value) -> None:
    """Let every node that reads `old` read `new`, and say so to those who noted `old`."""
    old.meta[REPLACED_BY] = new
    old.replace_all_uses_with(new)


_POSITIONS = "flow2onnx.output_positions"  # in the `meta` of a graph


def _positions(graph: ir.Graph, value: ir.Value) -> list[int]:
    """The places of an output among all: a deep network has thousands, which keep their names."""
    known: dict[str | None, list[int]] = graph.meta.get(_POSITIONS, {})
    found, count = known.get(value.name, []), len(graph.outputs)
    if not found or any(i >= count or graph.outputs[i] is not value for i in found):
        known = {}
        for i, output in enumerate(graph.outputs):
            known.setdefault(output.name, []).append(i)
        graph.meta[_POSITIONS] = known
        found = known[value.name]
    return found


def replace_node(
    graph: ir.Graph, node: ir.Node, emit: Emit, reads: Sequence[ir.Value] = ()
) -> None:
    """Put what `emit` appends to a builder in the place of a node, whose outputs keep their names.

    The new nodes may read the inputs of the node and `reads`.
    """
    stem = str(node.outputs[0].name)
    read = [v for v in (*reads, *node.inputs) if v is not None]
    results = insert_nodes(graph, node, stem, emit, read)
    for old, new in zip(node.outputs, results, strict=False):
        name = old.name
        replace_output(graph, old, new)
        new.name = name
    remove(graph, node)


def insert_nodes(
    graph: ir.Graph, node: ir.Node, stem: str, emit: Emit, reads: Sequence[ir.Value]
) -> Sequence[ir.Value]:
    """The results of what `emit` appends to a builder, which is put before a node.

    The new nodes read `reads`, are named after `stem`, and of the line of the user's as the node.
    """
    b = Builder(graph.opset_imports[""])
    read = dict.fromkeys(reads)
    placeholders = {v: b.input(str(v.name), list(v.shape or ()), dtype_of(v)) for v in read}  # type: ignore[arg-type]  # dimensions as they are
    with b.under(stem, node.meta.get("source")):
        results = emit(b, placeholders)
    for value, placeholder in placeholders.items():
        placeholder.replace_all_uses_with(value)
    for value in list(b.graph.initializers.values()):
        del b.graph.initializers[str(value.name)]
        value.name = f"{stem}/{value.name}"
        graph.register_initializer(value)
    b.graph.remove(b.nodes)
    graph.insert_before(node, b.nodes)
    return results


def state_updates(graph: ir.Graph) -> Iterator[tuple[ir.Node, ir.Value, ir.Node]]:
    """Additions of a change, which nothing else reads, to an input of its shape.

    Each with that input and the node that makes the change.
    """
    for add in [n for n in graph if n.op_type == "Add"]:
        weight, change = add.inputs
        maker = change.producer() if change is not None else None
        if weight is None or change is None or maker is None or not weight.is_graph_input():
            continue
        if weight.shape == change.shape and only_user(change) is add:
            yield add, weight, maker


def cast_node(value: ir.Value, to: DType, name: str, source: object = None) -> ir.Node:
    """A cast of a value that is in no graph yet; `source` is the user's line."""
    node = ir.Node("", "Cast", [value], [ir.AttrInt64("to", to.code)], num_outputs=1, name=name)
    node.meta["source"] = source
    made = node.outputs[0]
    made.shape, made.type = value.shape, ir.TensorType(ir.DataType(to.code))
    return node


def redirect_readers(old: ir.Value, node: ir.Node) -> None:
    """Let every node but `node` read what it makes in place of `old`."""
    for use in [u for u in old.uses() if u.node is not node]:
        use.node.replace_input_with(use.idx, node.outputs[0])
