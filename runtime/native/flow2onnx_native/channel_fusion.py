"""Programs that read sums over channels which they compute themselves: `FusedChannels`.

Such are normalisations over a batch and their gradients. Tensors are seen as
[outer, channels, inner]; a cell is one number for each channel.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import onnx_ir as ir

from flow2onnx_native.channel_program import MOST_KEPT, ChannelProgram, Extent
from flow2onnx_native.elementwise import REDUCTIONS, Broadcast, Fusible, broadcast_of, fusible
from flow2onnx_native.fused_program import lower, outputs_of, replace_nodes
from flow2onnx_native.fusion_groups import Group, Grouping, size_if_known
from flow2onnx_native.graph import (
    ON_CPU,
    Reals,
    dims,
    has_subgraphs,
    is_standard,
    is_static,
    only_user,
    readers,
    size,
    sort,
)

__all__ = ["fuse_channels"]

_LEAST_INNER = 16  # elements of a channel side by side; with fewer its loops are too short
_AXES = "native/axes/"
_AFTER_SUMS = 2  # stages, of which the last reads a sum
_OPEN = Broadcast(0, 0)  # nothing says yet how channels lie


def fuse_channels(graph: ir.Graph, most_kept: int = MOST_KEPT, reals: Reals = ON_CPU) -> None:
    """Replace each group that reads its own sums over channels by one node, in a sorted graph.

    `most_kept`: elements that a program may keep rather than compute again; `reals`: the types of
    numbers that it reads and writes.
    """
    nodes = list(graph)
    if has_subgraphs(nodes):
        return
    sums = _merge_sums(graph)
    groups = [g for g in _channel_groups(graph, reals) if g.channels]
    inside = {node for g in groups for node, _ in g.nodes}
    for i, group in enumerate(reversed(groups)):  # readers first: they may compute again
        _fuse(graph, group, inside, ChannelProgram(group.extent, most_kept), reals,
              f"native/channels/{i}")  # fmt: skip
    for merged in sums:
        merged.undo_unless_fused(graph)
    for name in [n for n, v in graph.initializers.items() if n.startswith(_AXES) and not v.uses()]:
        del graph.initializers[name]
    if groups or sums:
        sort(graph)


@dataclass(eq=False)
class _ChannelGroup(Group):
    """Nodes of one extent; while that is open, nodes over `total` elements or over channels."""

    channels: int = 0
    inner: int = 0
    nodes: Sequence[tuple[ir.Node, Fusible]] = ()

    @property
    def extent(self) -> Extent:
        """The sizes before, of and behind channels."""
        return Extent(self.total // (self.channels * self.inner), self.channels, self.inner)

    def fits(self, other: Group) -> bool:
        """True if both may be one, if no way leads out of the whole and back into it."""
        assert isinstance(other, _ChannelGroup), "of one grouping"
        if self.channels and other.channels:
            return (self.total, self.channels, self.inner) == (
                other.total, other.channels, other.inner,
            )  # fmt: skip
        known, open_ = (self, other) if self.channels else (other, self)
        return open_.total in (known.total, known.channels or known.total)

    def absorb(self, other: Group) -> None:
        """Take in another group; one of both has an extent, or neither."""
        assert isinstance(other, _ChannelGroup), "of one grouping"
        known = self if self.channels else other
        self.total, self.channels, self.inner = known.total, known.channels, known.inner
        super().absorb(other)


def _channel_groups(graph: ir.Graph, reals: Reals) -> list[_ChannelGroup]:
    nodes = list(graph)
    sums = [_channel_part(n, reals) for n in nodes if n.op_type in REDUCTIONS]
    # a group is over the elements that its sums read, or over their channels
    sizes = {k for s in sums if s and s[0].kind == "sum" for k in (s[0].total, s[1].middle)}
    if not sizes:
        return []
    parts = {
        i: found
        for i, node in enumerate(nodes)
        if size_if_known(node.outputs[0]) in sizes
        and (found := _channel_part(node, reals)) is not None
    }
    grouping = Grouping(nodes, _ChannelGroup)
    for i, (part, channels) in reversed(parts.items()):
        group = grouping.of[i]
        assert isinstance(group, _ChannelGroup), "as asked for"
        group.become(i, replace(part, row=0))
        group.channels, group.inner = channels.middle, channels.inner
        grouping.merge_all(i, _neighbours(nodes[i], part, grouping.places))
    groups = [g for g in grouping.programs() if isinstance(g, _ChannelGroup)]
    for g in groups:
        g.nodes = [(nodes[i], g.parts[i]) for i in sorted(g.parts)]
    return groups


def _channel_part(node: ir.Node, reals: Reals) -> tuple[Fusible, Broadcast] | None:
    """A node as part of a program, and how channels lie for it; None if it cannot be one."""
    part = fusible(node, reals)
    if part is None or part.kind == "row" or part.total < 2:
        return None
    channels = _channels_of(node, part)
    return None if channels is None else (part, channels)


def _channels_of(node: ir.Node, part: Fusible) -> Broadcast | None:
    """How channels lie for a node, `_OPEN` if anyhow; None if no program can have it."""
    spreads: set[Broadcast | None] = {part.broadcast} if part.broadcast is not None else set()
    if part.kind == "each":
        output = dims(node.outputs[0])
        small = [v for v in node.inputs if v is not None and 1 < size_if_known(v) < part.total]
        spreads = {broadcast_of(dims(v), output) for v in small}
    if not spreads:
        return _OPEN
    spread = spreads.pop()
    if spreads or spread is None or spread.middle < 2 or spread.inner < _LEAST_INNER:
        return None
    return spread


def _neighbours(node: ir.Node, part: Fusible, places: Mapping[ir.Node, int]) -> list[int]:
    """Who reads the node, then who reads the same large operands."""
    found = sorted(places[n] for n in readers(node))
    for value in node.inputs:
        if value is not None and size_if_known(value) == part.total:
            found += sorted(places[use.node] for use in value.uses())
    return found


@dataclass(frozen=True)
class _MergedSum:
    """A sum over examples and positions in the place of two, of which the first reads nothing."""

    first: ir.Node
    x: ir.Value
    old: ir.Value
    new: ir.Value

    def undo_unless_fused(self, graph: ir.Graph) -> None:
        """Let there be two again if no program has taken the one."""
        node = self.new.producer()
        if node is not None and node.inputs[0] is not None:
            self.first.replace_input_with(0, self.x)
            self.new.replace_all_uses_with(self.old)
            graph.remove(node, safe=True)


def _merge_sums(graph: ir.Graph) -> list[_MergedSum]:
    """Let sums over positions, then over examples, be one sum, which a program can compute."""
    merged = list[_MergedSum]()
    for last in list(graph):
        first = _sum_before(last)
        if first is None or (x := first.inputs[0]) is None or last.outputs[0].is_graph_output():
            continue
        name = f"{_AXES}{len(merged)}"
        axes = ir.tensor([0, *range(2, len(dims(x)))], dtype=ir.DataType.INT64, name=name)
        value = ir.val(name, const_value=axes)
        graph.register_initializer(value)
        keeps = ir.AttrInt64("keepdims", 0)
        node = ir.Node("", "ReduceSum", [x, value], [keeps], num_outputs=1, name=f"{name}/sum")
        graph.insert_after(last, node)
        old, new = last.outputs[0], node.outputs[0]
        new.name, new.type, new.shape = f"{old.name}/at_once", old.type, old.shape
        old.replace_all_uses_with(new)
        first.replace_input_with(0, None)
        merged.append(_MergedSum(first, x, old, new))
    return merged


def _sum_before(last: ir.Node) -> ir.Node | None:
    """The sum over all but the first two axes that a sum over the first one reads alone."""
    x = last.inputs[0] if last.inputs else None
    first = None if x is None else x.producer()
    if first is None or only_user(first.outputs[0]) is not last:
        return None
    before = first.inputs[0] if first.inputs else None
    if _summed_axes(last) != [0] or before is None or not is_static(before):
        return None
    rank = len(dims(before))
    return first if rank > 2 and _summed_axes(first) == list(range(2, rank)) else None


def _summed_axes(node: ir.Node) -> list[int] | None:
    """The axes that a sum does away with; None for other nodes."""
    keeps = node.attributes.get("keepdims")
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    x = node.inputs[0] if node.inputs else None
    is_sum = is_standard(node, "ReduceSum") and keeps is not None and keeps.value == 0
    if not is_sum or axes is None or axes.const_value is None or x is None or x.shape is None:
        return None
    return sorted({int(a) % len(x.shape) for a in axes.const_value.numpy()})


def _fuse(
    graph: ir.Graph, group: _ChannelGroup, inside: set[ir.Node], program: ChannelProgram,
    reals: Reals, name: str,
) -> None:  # fmt: skip
    for value in _read_from_outside(group):
        maker = value.producer()
        if (
            maker in inside
            and maker is not None
            and _is_recomputed(value, inside, group.extent, reals)
        ):
            part = fusible(maker, reals)
            assert part is not None, "it is in a program"
            lower(program, maker, part)
    for node, part in group.nodes:
        lower(program, node, part)
    outputs = outputs_of(group.nodes)
    if program.tile_stages >= _AFTER_SUMS and _has_numbers(program, outputs, reals):
        replace_nodes(graph, group.nodes, outputs, program.node(outputs, name))


def _read_from_outside(group: _ChannelGroup) -> list[ir.Value]:
    own = {node for node, _ in group.nodes}
    values = [v for node, _ in group.nodes for v in node.inputs if v is not None]
    return [v for v in dict.fromkeys(values) if v.producer() not in own]


def _is_recomputed(value: ir.Value, inside: set[ir.Node], extent: Extent, reals: Reals) -> bool:
    """True if a program computes a value again rather than read it.

    It does if the value need not be in memory for others, and is made of one that is.
    """
    maker = value.producer()
    assert maker is not None, "asked of what a node computes"
    part = fusible(maker, reals)
    if part is None or part.kind != "each" or part.total != extent.total or value.is_graph_output():
        return False
    large = [v for v in maker.inputs if v is not None and size_if_known(v) == extent.total]
    return (
        len(large) == 1
        and _channels_of(maker, part) in (_OPEN, Broadcast(extent.channels, extent.inner))
        and large[0].dtype == value.dtype
        and large[0].producer() not in inside
        and all(use.node in inside or use.node.graph is not maker.graph
                or use.node.op_type == "FusedChannels" for use in value.uses())
    )  # fmt: skip


def _has_numbers(program: ChannelProgram, outputs: Sequence[ir.Value], reals: Reals) -> bool:
    """True if nothing but numbers of these types goes in and out."""
    sizes = (program.extent.total, program.extent.channels)
    return all(v.dtype in reals for v in (*program.inputs, *outputs)) and all(
        size(v) in sizes for v in outputs
    )
