"""State that may be updated in its own buffer: every reader comes before the write.

A runtime is free to run nodes in any order that their data allow, and fuses some. So the order of
the list proves nothing: a reader of the old value has to be something that the new one is made of.
So has a node that may fail, at an index outside a table, say: a step that fails changes nothing.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from flow2onnx_runtime.extensions import OperatorTraits
from flow2onnx_runtime.manifest import NEXT

from flow2onnx.analysis.live_range import VIEWS, byte_size
from flow2onnx.graph.nodes import attribute, read_values, subgraphs_of

__all__ = [
    "WORTH_BYTES",
    "InPlace",
    "in_place",
    "index_origin",
    "late_readers",
]

# A second buffer of less costs nothing that anybody could measure.
WORTH_BYTES = 64 * 1024
# They read element i before they write element i: one buffer may be both operand and result.
# fmt: off
_ELEMENTWISE = frozenset((
    "Abs", "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Cast", "Clip", "Div", "Exp",
    "Identity", "Log", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Sigmoid",
    "Sign", "Sqrt", "Sub", "Tanh", "Where", "Xor",
))
# fmt: on
# They are told their operands one after another, and keep the sum so far in the result.
_VARIADIC = frozenset({"Max", "Mean", "Min", "Sum"})
# They copy their first operand into the result, unless it is there, and change parts of it.
_SCATTERS = frozenset({"ScatterElements", "ScatterND"})
_PRODUCTS = frozenset({"Conv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul"})
# What a runtime draws into the products that read it.
_ABSORBED = frozenset({"Cast", "Div", "Mul", "Transpose"}) | VIEWS
# Of their operand they need the shape, which a runtime may know without running what makes it.
_SHAPE_ONLY = frozenset({"EyeLike", "RandomNormalLike", "RandomUniformLike", "Shape", "Size"})


# They fail where the second operand has an index out of range of the first.
_INDEXING = frozenset({
    "Gather", "GatherElements", "GatherND", "NegativeLogLikelihoodLoss", "ScatterElements",
    "ScatterND", "SoftmaxCrossEntropyLoss",
})  # fmt: skip


@dataclass(frozen=True)
class InPlace:
    """The verdict on writing a state tensor's next value into its own buffer, with the reason."""

    name: str
    is_safe: bool
    reason: str


def in_place(
    graph: ir.Graph, names: Iterable[str], traits: OperatorTraits | None = None
) -> tuple[InPlace, ...]:
    """The verdict for each of `names` that the graph both reads and writes.

    `traits`: what is to be known of operators that are not standard.

    >>> x, w = (ir.val(name, ir.DataType.FLOAT, [2]) for name in "xw")
    >>> add = ir.node("Add", [w, x])
    >>> new = add.outputs[0]
    >>> new.name, new.type, new.shape = "next/w", w.type, w.shape
    >>> in_place(ir.Graph([x, w], add.outputs, nodes=[add]), ["w"])[0].is_safe
    True
    """
    inputs = {str(v.name): v for v in graph.inputs}
    outputs = {str(v.name): v for v in graph.outputs}
    both = [n for n in names if n in inputs and NEXT + n in outputs]
    nodes = list(graph)
    reads = _Reads(nodes, {inputs[n] for n in both})
    checks = _Checks(nodes, traits)
    found = []
    for name in both:
        reason = _conflict(graph, reads, checks, inputs[name], outputs[NEXT + name], traits)
        found.append(InPlace(name, reason is None, reason or "every reader comes before it"))
    return tuple(found)


class _Reads:
    """The readers of each state tensor's memory, and the nodes that run before each node."""

    def __init__(self, nodes: list[ir.Node], states: set[ir.Value]) -> None:
        self.owners = _owners(nodes, states)
        self._bits: dict[ir.Node, int] = {}  # a reader's own
        self._readers: dict[ir.Value, list[ir.Node]] = {state: [] for state in states}
        for node in nodes:
            for state in {self.owners[v] for v in read_values(node) if v in self.owners}:
                self._bits.setdefault(node, 1 << len(self._bits))
                self._readers[state].append(node)
        self._before = _predecessor_bits(nodes, self._bits)

    def of(self, state: ir.Value) -> list[ir.Node]:
        """The nodes that read a tensor's memory, in the order of the list."""
        return self._readers[state]

    def precedes(self, reader: ir.Node, node: ir.Node) -> bool:
        """True if the data of `node` depend on what `reader` made."""
        return bool(self._before[node] & self._bits[reader])


class _Checks:
    """The checks that may fail in a run, and those that have passed whenever a node begins.

    Two nodes that look up the same indices on the same extents fail together, so it is enough that
    one of them came before.
    """

    def __init__(self, nodes: list[ir.Node], traits: OperatorTraits | None) -> None:
        self._bits: dict[object, int] = {}
        self._nodes: dict[int, ir.Node] = {}
        own: dict[ir.Node, int] = {}
        for node in nodes:
            for check in _checks(node, traits):
                if check not in self._bits:
                    self._bits[check] = 1 << len(self._bits)
                    self._nodes[self._bits[check]] = node
                own[node] = own.get(node, 0) | self._bits[check]
        self._before = _predecessor_bits(nodes, own)

    def late(self, writer: ir.Node) -> ir.Node | None:
        """A node that may fail when the writer has begun, such as itself."""
        passed = self._before[writer]
        return next((n for bit, n in self._nodes.items() if not passed & bit), None)


def _checks(node: ir.Node, traits: OperatorTraits | None) -> list[object]:
    """The ways in which a node may fail by what its inputs hold, equal where they are the same.

    Only indices and sizes known at run time decide: whether all else fits is known beforehand.
    """
    if subgraphs_of(node) or not _shapes_agree(node):
        return [node]
    operands = _index_operands(node, traits)
    return [check for of in operands for check in _index_checks(node, *of)]


def _index_checks(node: ir.Node, at: int, indexed: int, axis: int | None) -> list[object]:
    """The ways in which a node may fail by the indices that one of its inputs holds."""
    indices, table = node.inputs[at], node.inputs[indexed]
    if indices is None or table is None or indices.const_value is not None:
        return []
    extents = _indexed_extents(node, indices, table, axis)
    origin, wraps = index_origin(indices)
    if _is_position(origin, extents):
        return []
    return [(origin, extents)] if wraps in ((), extents) else [node]


def _index_operands(
    node: ir.Node, traits: OperatorTraits | None
) -> Sequence[tuple[int, int, int | None]]:
    """Inputs with indices and with what they point into, and the axis if no attribute has it.

    Empty for nodes that do not fail by an index.
    """
    if traits is not None and node.domain == traits.DOMAIN:
        return traits.index_operands(node)
    return [(1, 0, None)] if node.domain == "" and node.op_type in _INDEXING else []


def _shapes_agree(node: ir.Node) -> bool:
    """True if the shapes of a node's operands go together, whatever its sizes turn out to be."""
    inputs = [v for v in node.inputs if v is not None]
    if all(v.shape is not None and v.shape.is_static() for v in (*inputs, *node.outputs)):
        return True
    made = inputs[0].producer() if inputs and node.op_type == "Reshape" else None
    if made is not None and made.op_type == "Unique" and inputs[0] in made.outputs[2:3]:
        count = _count(made.inputs[0])  # the inverse has as many as there were
        return count is not None and count == _count(node.outputs[0])
    return node.op_type == "Unique"


def _count(value: ir.Value | None) -> int | None:
    shape = value.shape if value is not None else None
    sizes = [d for d in shape or () if isinstance(d, int)]
    return math.prod(sizes) if shape is not None and len(sizes) == len(shape) else None


def _is_position(value: ir.Value, extents: tuple[object, ...]) -> bool:
    """True for positions among what `Unique` was given, where there are as many."""
    made = value.producer()
    if made is None or made.op_type != "Unique" or value not in made.outputs[1:3]:
        return False
    return (_count(made.inputs[0]),) == extents[:1]


def index_origin(value: ir.Value) -> tuple[ir.Value, tuple[int, ...]]:
    """The value whose elements these are, and the extent that was added to negative ones."""
    wraps: tuple[int, ...] = ()
    while (source := value.producer()) is not None and source.inputs:
        if source.op_type == "Where":
            added = _wrap_extent(source)
            if added is None or wraps not in ((), added):
                break
            wraps, nearer = added, source.inputs[2]
        elif source.op_type in VIEWS or _is_integer_cast(source):
            nearer = source.inputs[0]
        else:
            break
        if nearer is None:
            break
        value = nearer
    return value, wraps


def _is_integer_cast(node: ir.Node) -> bool:
    """True for a cast between integer types that changes no number."""
    whole = {ir.DataType.INT32, ir.DataType.INT64}
    source, made = node.inputs[0], node.outputs[0]
    return (
        node.op_type == "Cast"
        and source is not None
        and source.dtype in whole
        and made.dtype == ir.DataType.INT64
    )


def _wrap_extent(where: ir.Node) -> tuple[int] | None:
    """n of Where(i < 0, i + n, i)."""
    wrapped, plain = where.inputs[1:]
    add = wrapped.producer() if wrapped is not None else None
    if add is None or add.op_type != "Add" or add.inputs[0] is not plain:
        return None
    extent = add.inputs[1].const_value if add.inputs[1] is not None else None
    return (int(extent.numpy().ravel()[0]),) if extent is not None and extent.size == 1 else None


def _indexed_extents(
    node: ir.Node, indices: ir.Value, table: ir.Value, axis: int | None
) -> tuple[object, ...]:
    """The extents that the indices run over, and the node itself where it takes more to tell."""
    extents = tuple(d for d in table.shape or () if isinstance(d, int))
    if node.op_type.endswith("ND"):
        depth = tuple(indices.shape or ())[-1:]
        is_simple = not attribute(node, "batch_dims", 0)
        return extents[: depth[0]] if is_simple and isinstance(depth[0], int) else (*extents, node)
    if node.op_type.endswith("Loss"):
        return (*extents, node) if "ignore_index" in node.attributes else extents[1:2]
    if axis is None:
        axis = attribute(node, "axis", 0)
    return extents[axis : axis + 1 or None]


def _predecessor_bits(nodes: Iterable[ir.Node], own: Mapping[ir.Node, int]) -> dict[ir.Node, int]:
    """For each node the bits of all nodes that have run whenever it begins."""
    before: dict[ir.Node, int] = {}
    for node in nodes:
        found = 0
        for source in _producers(node):
            found |= before[source] | own.get(source, 0)
        before[node] = found
    return before


def _producers(node: ir.Node) -> list[ir.Node]:
    """The nodes whose outputs a node needs before it begins."""
    # the graph inside a node may be chosen, or drawn out, before the node would run
    if node.op_type in _SHAPE_ONLY or subgraphs_of(node):
        return []
    makers = (v.producer() for v in node.inputs if v is not None)
    return [m for m in makers if m is not None]


def _owners(nodes: list[ir.Node], states: set[ir.Value]) -> dict[ir.Value, ir.Value]:
    """For each value that may show the memory of a state tensor, that tensor."""
    owners = {state: state for state in states}
    for node in nodes:
        source = node.inputs[0] if node.op_type in VIEWS and node.inputs else None
        if source is not None and source in owners:
            owners[node.outputs[0]] = owners[source]
    return owners


def late_readers(graph: ir.Graph) -> list[tuple[ir.Node, list[ir.Node]]]:
    """For each node that makes the next value of a large state, who may read the present one later.

    Those that look at its memory as another shape are not among them.
    """
    results, updates = {v.name: v for v in graph.outputs}, []
    for state in graph.inputs:
        new = results.get(f"{NEXT}{state.name}")
        writer = None if new is None else new.producer()
        if writer is None or byte_size(state) < WORTH_BYTES:
            continue
        readers = dict.fromkeys(use.node for use in state.uses() if use.node is not writer)
        updates.append((writer, list(readers)))
    asked = dict.fromkeys(n for _, readers in updates for n in readers if n.graph is graph)
    bits = {node: 1 << i for i, node in enumerate(asked)}
    before = _predecessor_bits(graph, bits)
    return [
        (writer, [n for n in readers if n.graph is not graph or not before[writer] & bits[n]])
        for writer, readers in updates
    ]


def _conflict(
    graph: ir.Graph,
    reads: _Reads,
    checks: _Checks,
    old: ir.Value,
    new: ir.Value,
    traits: OperatorTraits | None,
) -> str | None:
    """Why the next value must not go into the buffer of the present one."""
    writer = new.producer()
    if writer is None:
        return "the next value is an input of the graph"
    if old.is_graph_output():
        return "it is a result itself"
    if old.shape is None or new.shape is None or old.shape != new.shape or old.dtype != new.dtype:
        return "the next value is of another shape or type as far as is known"
    for reader in reads.of(old):
        if subgraphs_of(reader):
            return f"{_describe(reader)} reads it inside"
        if reader is not writer and not reads.precedes(reader, writer):
            return f"{_describe(reader)} may read it after the update"
    if not _may_overwrite(writer, old, reads, traits):
        return f"{_describe(writer)} writes before it has read all"
    if _may_fuse_with_reader(writer, old, reads):
        return f"{_describe(writer)} may become one node with a reader"
    late = checks.late(writer)
    return f"{_describe(late)} may fail after the update" if late is not None else None


def _may_overwrite(
    writer: ir.Node, old: ir.Value, reads: _Reads, traits: OperatorTraits | None
) -> bool:
    """True if the node that makes the next value may write it over the present one."""
    places = [
        i for i, v in enumerate(writer.inputs) if v is not None and reads.owners.get(v) is old
    ]
    same_shape = all(writer.inputs[i].shape == old.shape for i in places)  # type: ignore[union-attr]
    if writer.op_type in _ELEMENTWISE:
        return same_shape
    if traits is not None and writer.domain == traits.DOMAIN:
        return same_shape and traits.overwrites_safely(writer, places, f"{NEXT}{old.name}")
    if writer.op_type in _VARIADIC:
        return same_shape and len(writer.inputs) <= 2
    if writer.op_type in _SCATTERS:
        return places in ([], [0])
    if writer.op_type == "Gemm":
        return places in ([], [2]) and same_shape
    return False


def _may_fuse_with_reader(writer: ir.Node, old: ir.Value, reads: _Reads) -> bool:
    """True if a runtime may fuse the writer with a product that reads the old value.

    A sum and the product before it become one, and so do a product and what its operands come
    from: then the whole would read the old value while it writes the new one.
    """
    products = [writer] if writer.op_type in _PRODUCTS else []
    products += [p for v in writer.inputs if v is not None and (p := v.producer()) is not None
                 and p.op_type in _PRODUCTS]  # fmt: skip
    pending = [v for p in products for v in p.inputs[:2] if v is not None]
    while pending:
        value = pending.pop()
        if reads.owners.get(value) is old:
            return True
        source = value.producer()
        if source is not None and source.op_type in _ABSORBED:
            pending += [v for v in source.inputs if v is not None]
    return False


def _describe(node: ir.Node) -> str:
    return f"{node.op_type} {node.name}" if node.name else node.op_type
