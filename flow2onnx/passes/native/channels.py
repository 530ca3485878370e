"""Programs that read sums over channels which they make themselves: `FusedChannels`.

Such are normalisations over a batch and their gradients. Tensors are seen as
[outer, channels, inner]; a cell is one number for each channel.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from flow2onnx.graph.types import dims, dtype_of, is_static
from flow2onnx.passes.native.channel_programs import ChannelProgram, Extent
from flow2onnx.passes.native.groups import Group, Grouping, has_bodies, readers, size_of
from flow2onnx.passes.native.operations import Block, Part, block_of, part_of
from flow2onnx.passes.native.programs import put_in_place, shown_by, translate

__all__ = ["fuse_channels"]

_LEAST_INNER = 16  # elements of a channel side by side; with fewer its loops are too short
_AXES = "native/axes/"
_AFTER_SUMS = 2  # stages, of which the last reads a sum


def fuse_channels(graph: ir.Graph) -> None:
    """Put one node in the place of each group that reads its own sums over channels."""
    nodes = list(graph)
    if has_bodies(nodes):
        return
    sums = _sum_at_once(graph)
    groups = [g for g in _groups(graph) if g.channels]
    inside = {node for g in groups for node, _ in g.nodes}
    for i, group in enumerate(reversed(groups)):  # readers first: they may compute again
        _fuse(graph, group, inside, f"native/channels/{i}")
    for sum_ in sums:
        sum_.undo_unless_fused(graph)
    for name in [n for n, v in graph.initializers.items() if n.startswith(_AXES) and not v.uses()]:
        del graph.initializers[name]
    graph.sort()


@dataclass
class _ChannelGroup(Group):
    """Nodes of one extent; while that is open, nodes over `total` elements or over channels."""

    channels: int = 0
    inner: int = 0
    nodes: Sequence[tuple[ir.Node, Part]] = ()

    def takes(self, other: Group) -> bool:
        """Whether both may be one."""
        assert isinstance(other, _ChannelGroup), "of one grouping"
        return self._suits(other) and self.surrounds_nothing(other)

    def _suits(self, other: "_ChannelGroup") -> bool:
        if self.channels and other.channels:
            return self._extent == other._extent
        known, open_ = (self, other) if self.channels else (other, self)
        return open_.total in (known.total, known.channels or known.total)

    @property
    def _extent(self) -> tuple[int, int, int]:
        return self.total, self.channels, self.inner

    def merged(self, other: Group) -> "_ChannelGroup":
        """Both as one, of the extent that one of them has."""
        assert isinstance(other, _ChannelGroup), "of one grouping"
        known = self if self.channels else other
        made = super().merged(other)
        assert isinstance(made, _ChannelGroup), "as this one"
        return replace(made, total=known.total, channels=known.channels, inner=known.inner)


def _groups(graph: ir.Graph) -> list[_ChannelGroup]:
    nodes = list(graph)
    found = {i: f for i, node in enumerate(nodes) if (f := _extended(node)) is not None}
    if not any(part.kind == "sum" for part, _ in found.values()):
        return []
    grouping = Grouping(nodes, _ChannelGroup)
    for i, (part, block) in reversed(found.items()):
        group = grouping.of[i]
        assert isinstance(group, _ChannelGroup), "as asked for"
        group.become(i, replace(part, row=0))
        group.channels, group.inner = block.middle, block.inner
        grouping.join_all(i, _neighbours(nodes[i], part, grouping.places))
    groups = [g for g in grouping.found() if isinstance(g, _ChannelGroup)]
    for g in groups:
        g.nodes = [(nodes[i], g.parts[i]) for i in sorted(g.parts)]
    return groups


def _extended(node: ir.Node) -> tuple[Part, Block] | None:
    """What a node is in a program, and how channels lie for it."""
    part = part_of(node)
    if part is None or part.kind == "row" or part.total < 2:
        return None
    block = _block_in(node, part)
    return None if block is None else (part, block)


def _block_in(node: ir.Node, part: Part) -> Block | None:
    """How channels lie for a node: Block(0, 0) if that is open, None if no program can have it."""
    blocks: set[Block | None] = {part.block} if part.block is not None else set()
    if part.kind == "each":
        output = dims(node.outputs[0])
        small = [v for v in node.inputs if v is not None and 1 < size_of(v) < part.total]
        blocks = {block_of(dims(v), output) for v in small}
    if not blocks:
        return Block(0, 0)
    block = blocks.pop()
    if blocks or block is None or block.middle < 2 or block.inner < _LEAST_INNER:
        return None
    return block


def _neighbours(node: ir.Node, part: Part, places: Mapping[ir.Node, int]) -> list[int]:
    """Who reads the node, then who reads the same large operands."""
    found = sorted(places[n] for n in readers(node))
    for value in node.inputs:
        if value is not None and size_of(value) == part.total:
            found += sorted(places[use.node] for use in value.uses())
    return found


@dataclass(frozen=True)
class _SumAtOnce:
    """A sum over examples and positions in the place of two, of which the first reads nothing."""

    first: ir.Node
    x: ir.Value
    old: ir.Value
    new: ir.Value

    def undo_unless_fused(self, graph: ir.Graph) -> None:
        """Let there be two again if no program has taken the one."""
        node = self.new.producer()
        if node is not None and node.graph is graph:
            self.first.replace_input_with(0, self.x)
            self.new.replace_all_uses_with(self.old)
            graph.remove(node, safe=True)


def _sum_at_once(graph: ir.Graph) -> list[_SumAtOnce]:
    """Let sums over positions, then over examples, be one sum, which a program can make."""
    made = list[_SumAtOnce]()
    for last in list(graph):
        first = _sum_before(last)
        if first is None or (x := first.inputs[0]) is None or last.outputs[0].is_graph_output():
            continue
        axes = [0, *range(2, len(dims(x)))]
        name = f"{_AXES}{len(made)}"
        value = ir.val(name, const_value=ir.tensor(axes, dtype=ir.DataType.INT64, name=name))
        graph.register_initializer(value)
        keeps = ir.AttrInt64("keepdims", 0)
        node = ir.Node("", "ReduceSum", [x, value], [keeps], num_outputs=1, name=f"{name}/sum")
        graph.insert_after(last, node)
        old, new = last.outputs[0], node.outputs[0]
        new.name, new.type, new.shape = f"{old.name}/at_once", old.type, old.shape
        old.replace_all_uses_with(new)
        first.replace_input_with(0, None)
        made.append(_SumAtOnce(first, x, old, new))
    return made


def _sum_before(last: ir.Node) -> ir.Node | None:
    """The sum over all but the first two axes that a sum over the first one reads alone."""
    x = last.inputs[0] if last.inputs else None
    first = None if x is None else x.producer()
    if first is None or list(readers(first)) != [last] or first.outputs[0].is_graph_output():
        return None
    before = first.inputs[0]
    if _axes_gone(last) != [0] or before is None or before.shape is None or not is_static(before):
        return None
    rank = len(dims(before))
    return first if rank > 2 and _axes_gone(first) == list(range(2, rank)) else None


def _axes_gone(node: ir.Node) -> list[int] | None:
    """The axes that a sum does away with; None for other nodes."""
    keeps = node.attributes.get("keepdims")
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    x = node.inputs[0] if node.inputs else None
    if (
        node.op_type != "ReduceSum"
        or node.domain
        or keeps is None
        or keeps.value != 0
        or axes is None
        or axes.const_value is None
        or x is None
        or x.shape is None
    ):
        return None
    return sorted({int(a) % len(x.shape) for a in axes.const_value.numpy()})


def _fuse(graph: ir.Graph, group: _ChannelGroup, inside: set[ir.Node], name: str) -> None:
    extent = Extent(group.total // (group.channels * group.inner), group.channels, group.inner)
    program = ChannelProgram(extent)
    for value in _read_from_outside(group):
        maker = value.producer()
        if maker in inside and maker is not None and _is_cheaper_again(value, inside, extent):
            part = part_of(maker)
            assert part is not None, "it is in a program"
            translate(program, maker, part)
    for node, part in group.nodes:
        translate(program, node, part)
    shown = shown_by(group.nodes)
    if program.stages < _AFTER_SUMS or not _has_floats(program, shown):
        return
    put_in_place(graph, group.nodes, shown, program.node(shown, name))


def _read_from_outside(group: _ChannelGroup) -> list[ir.Value]:
    own = {node for node, _ in group.nodes}
    values = [v for node, _ in group.nodes for v in node.inputs if v is not None]
    return [v for v in dict.fromkeys(values) if v.producer() not in own]


def _is_cheaper_again(value: ir.Value, inside: set[ir.Node], extent: Extent) -> bool:
    """Whether a program computes a value again rather than read it.

    It does if the value need not be in memory for others, and is made of one that is.
    """
    maker = value.producer()
    assert maker is not None, "asked of what a node makes"
    part = part_of(maker)
    if part is None or part.kind != "each" or part.total != extent.total or value.is_graph_output():
        return False
    large = [v for v in maker.inputs if v is not None and size_of(v) == extent.total]
    block = _block_in(maker, part)
    return (
        len(large) == 1
        and block in (Block(0, 0), Block(extent.channels, extent.inner))
        and dtype_of(large[0]) == dtype_of(value)
        and large[0].producer() not in inside
        and all(use.node in inside or use.node.graph is not maker.graph
                or use.node.op_type == "FusedChannels" for use in value.uses())
    )  # fmt: skip


def _has_floats(program: ChannelProgram, shown: Sequence[ir.Value]) -> bool:
    """Whether nothing but numbers of single precision goes in and out."""
    return all(dtype_of(v).name == "float32" for v in (*program.inputs, *shown)) and all(
        math.prod(dims(v)) in (program.extent.total, program.extent.channels) for v in shown
    )
