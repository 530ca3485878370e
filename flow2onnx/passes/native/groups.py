"""Which nodes become one program: sets of nodes that can run as one without waiting for others."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from flow2onnx.graph.types import dims, is_static
from flow2onnx.passes.native.operations import Part, part_of

__all__ = ["Group", "groups_of"]


@dataclass
class Group:
    """Nodes over one number of elements, as bits of their positions in the graph.

    A node that is in no program is a group of its own, without parts.
    """

    members: int
    before: int  # all that any member depends on, programs as a whole
    after: int  # all that depends on any member, programs as a whole
    total: int = 0
    row: int = 0
    beyond: int = 0  # all that depends on a sum, which is there only when the program has ended
    parts: dict[int, Part] = field(default_factory=dict)

    def become(self, i: int, part: Part) -> None:
        """Let the one member be part of a program."""
        self.total, self.row, self.parts = part.total, part.row, {i: part}
        self.beyond = self.after if part.kind == "sum" else 0

    def takes(self, other: "Group") -> bool:
        """Whether both may be one: no way leads out of the whole and back into it."""
        if self.total != other.total or (self.row and other.row and self.row != other.row):
            return False
        members = self.members | other.members
        leaves = (self.before | other.before) & (self.after | other.after) & ~members
        return not leaves and not (self.beyond | other.beyond) & members


class _Grouping:
    """Which group each node is in, and what depends on what if every group runs as one."""

    def __init__(self, nodes: Sequence[ir.Node]) -> None:
        self.places = {node: i for i, node in enumerate(nodes)}
        self.of = [Group(1 << i, 0, 0) for i in range(len(nodes))]
        for i, node in enumerate(nodes):
            for other in _makers(node):
                found = self.of[self.places[other]]
                self.of[i].before |= found.before | found.members
        for i in reversed(range(len(nodes))):
            for other in _readers(nodes[i]):
                found = self.of[self.places[other]]
                self.of[i].after |= found.after | found.members

    def join(self, a: Group, b: Group) -> Group:
        """Make one group of two, and tell all that this puts before or behind others."""
        members = a.members | b.members
        made = Group(
            members,
            (a.before | b.before) & ~members,
            (a.after | b.after) & ~members,
            a.total,
            a.row or b.row,
            a.beyond | b.beyond,
            a.parts | b.parts,
        )
        for i in _bits(a.after ^ b.after):
            self.of[i].before |= made.before | members
        for i in _bits(a.before ^ b.before):
            self.of[i].after |= made.after | members
        for i in made.parts:
            self.of[i] = made
        return made


def groups_of(graph: ir.Graph, fewest: int) -> list[list[tuple[ir.Node, Part]]]:
    """The programs of a graph, each a list of its nodes in the order of the graph.

    None has fewer than `fewest` nodes that compute something.

    Nodes join those that read them rather than those that make their operands, so that what only
    the backward half needs is computed there, not kept for it.
    """
    nodes = list(graph)
    if any(_has_bodies(n) for n in nodes):
        return []  # a body may read any value: which ones, `inputs` does not tell
    grouping = _Grouping(nodes)
    for i in reversed(range(len(nodes))):
        part = part_of(nodes[i])
        if part is None:
            continue
        group = grouping.of[i]
        group.become(i, part)
        for neighbour in _neighbours(nodes[i], part, grouping.places):
            other = grouping.of[neighbour]
            if other.parts and other is not group and group.takes(other):
                group = grouping.join(group, other)
    found = {
        id(g): g for g in grouping.of if sum(p.kind != "alias" for p in g.parts.values()) >= fewest
    }
    return [[(nodes[i], g.parts[i]) for i in sorted(g.parts)] for g in found.values()]


def _bits(mask: int) -> Iterator[int]:
    """The positions of the ones."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _has_bodies(node: ir.Node) -> bool:
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(a.type in kinds for a in node.attributes.values())


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        if value is not None and (maker := value.producer()) is not None:
            yield maker


def _readers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.outputs:
        yield from (use.node for use in value.uses())


def _neighbours(node: ir.Node, part: Part, places: dict[ir.Node, int]) -> Iterator[int]:
    """Who reads the node, then who reads the same large operands."""
    if part.kind != "sum":  # its result is smaller than what the program works on
        yield from sorted(places[n] for n in _readers(node))
    for value in node.inputs:
        if value is not None and _size(value) == part.total:
            yield from sorted(places[use.node] for use in value.uses())


def _size(value: ir.Value) -> int:
    return math.prod(dims(value)) if value.shape is not None and is_static(value) else 0
