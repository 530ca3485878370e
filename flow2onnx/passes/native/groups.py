"""Which nodes become one program: sets of nodes that can run as one without waiting for others."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from flow2onnx.graph.types import dims, is_static
from flow2onnx.passes.native.operations import Part, part_of

__all__ = ["Group", "Grouping", "groups_of", "has_bodies", "readers", "size_of"]


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
        return self.surrounds_nothing(other) and not (self.beyond | other.beyond) & members

    def surrounds_nothing(self, other: "Group") -> bool:
        """Whether no node outside depends on one of both and is what one of both depends on."""
        members = self.members | other.members
        return not (self.before | other.before) & (self.after | other.after) & ~members

    def merged(self, other: "Group") -> "Group":
        """Both as one."""
        members = self.members | other.members
        return replace(
            self,
            members=members,
            before=(self.before | other.before) & ~members,
            after=(self.after | other.after) & ~members,
            row=self.row or other.row,
            beyond=self.beyond | other.beyond,
            parts=self.parts | other.parts,
        )


class Grouping:
    """Which group each node is in, and what depends on what if every group runs as one."""

    def __init__(self, nodes: Sequence[ir.Node], kind: type[Group] = Group) -> None:
        self.places = {node: i for i, node in enumerate(nodes)}
        self.of = [kind(1 << i, 0, 0) for i in range(len(nodes))]
        for i, node in enumerate(nodes):
            for other in _makers(node):
                found = self.of[self.places[other]]
                self.of[i].before |= found.before | found.members
        for i in reversed(range(len(nodes))):
            for other in readers(nodes[i]):
                found = self.of[self.places[other]]
                self.of[i].after |= found.after | found.members

    def join(self, a: Group, b: Group) -> Group:
        """Make one group of two, and tell all that this puts before or behind others."""
        made = a.merged(b)
        for group in self._groups(a.after ^ b.after):
            group.before |= made.before | made.members
        for group in self._groups(a.before ^ b.before):
            group.after |= made.after | made.members
        for i in made.parts:
            self.of[i] = made
        return made

    def _groups(self, mask: int) -> Iterator[Group]:
        """The groups that some nodes are in; all of a group are, or none."""
        while mask:
            group = self.of[(mask & -mask).bit_length() - 1]
            yield group
            mask &= ~group.members

    def join_all(self, i: int, neighbours: Iterable[int]) -> None:
        """Let a node that has become part of a program join its neighbours where it may."""
        group = self.of[i]
        for neighbour in neighbours:
            other = self.of[neighbour]
            if other.parts and other is not group and group.takes(other):
                group = self.join(group, other)

    def found(self) -> list[Group]:
        """The groups that have parts."""
        return list({id(g): g for g in self.of if g.parts}.values())


def groups_of(
    graph: ir.Graph, fewest: int, fewest_if_large: int, large: int
) -> list[list[tuple[ir.Node, Part]]]:
    """The programs of a graph, each a list of its nodes in the order of the graph.

    None has fewer than `fewest` nodes that compute something, or `fewest_if_large` nodes over
    `large` elements and more.

    Nodes join those that read them rather than those that make their operands, so that what only
    the backward half needs is computed there, not kept for it.
    """
    nodes = list(graph)
    if has_bodies(nodes):
        return []
    grouping = Grouping(nodes)
    for i in reversed(range(len(nodes))):
        part = part_of(nodes[i])
        if part is None:
            continue
        grouping.of[i].become(i, part)
        grouping.join_all(i, _neighbours(nodes[i], part, grouping.places))
    found = [
        g
        for g in grouping.found()
        if sum(p.kind != "alias" for p in g.parts.values())
        >= (fewest if g.total < large else fewest_if_large)
    ]
    return [[(nodes[i], g.parts[i]) for i in sorted(g.parts)] for g in found]


def has_bodies(nodes: Iterable[ir.Node]) -> bool:
    """Whether a node has a body, which may read any value: which ones, `inputs` does not tell."""
    kinds = (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
    return any(a.type in kinds for n in nodes for a in n.attributes.values())


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        if value is not None and (maker := value.producer()) is not None:
            yield maker


def readers(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes that read what this one makes."""
    for value in node.outputs:
        yield from (use.node for use in value.uses())


def _neighbours(node: ir.Node, part: Part, places: dict[ir.Node, int]) -> Iterator[int]:
    """Who reads the node, then who reads the same large operands."""
    if part.kind != "sum":  # its result is smaller than what the program works on
        yield from sorted(places[n] for n in readers(node))
    for value in node.inputs:
        if value is not None and size_of(value) == part.total:
            yield from sorted(places[use.node] for use in value.uses())


def size_of(value: ir.Value) -> int:
    """The number of elements, 0 if it is not known."""
    return math.prod(dims(value)) if value.shape is not None and is_static(value) else 0
