"""Fusion groups: sets of nodes that can run as one program without waiting for other nodes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from flow2onnx_native.elementwise import Fusible, fusible
from flow2onnx_native.graph import has_subgraphs, is_static, readers, size

__all__ = ["Group", "Grouping", "fusion_groups", "size_if_known"]


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
    parts: dict[int, Fusible] = field(default_factory=dict)

    def become(self, i: int, part: Fusible) -> None:
        """Let the one member be part of a program."""
        self.total, self.row, self.parts = part.total, part.row, {i: part}
        self.beyond = self.after if part.kind == "sum" else 0

    def can_merge(self, other: "Group") -> bool:
        """True if both may be one: no way leads out of the whole and back into it."""
        if self.total != other.total or (self.row and other.row and self.row != other.row):
            return False
        members = self.members | other.members
        return self.stays_acyclic(other) and not (self.beyond | other.beyond) & members

    def stays_acyclic(self, other: "Group") -> bool:
        """True if no node outside depends on one of both and is what one of both needs."""
        members = self.members | other.members
        return not (self.before | other.before) & (self.after | other.after) & ~members

    def merge(self, other: "Group") -> "Group":
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
            for maker in _makers(node):
                other = self.of[self.places[maker]]
                self.of[i].before |= other.before | other.members
        for i in reversed(range(len(nodes))):
            for reader in readers(nodes[i]):
                other = self.of[self.places[reader]]
                self.of[i].after |= other.after | other.members

    def merge(self, a: Group, b: Group) -> Group:
        """Make one group of two, and tell all that this puts before or behind others."""
        both = a.merge(b)
        for group in self._groups(a.after ^ b.after):
            group.before |= both.before | both.members
        for group in self._groups(a.before ^ b.before):
            group.after |= both.after | both.members
        for i in both.parts:
            self.of[i] = both
        return both

    def _groups(self, mask: int) -> Iterator[Group]:
        """The groups that some nodes are in; all of a group are, or none."""
        while mask:
            group = self.of[(mask & -mask).bit_length() - 1]
            yield group
            mask &= ~group.members

    def merge_all(self, i: int, neighbours: Iterable[int]) -> None:
        """Merge the group of a node that has become part of a program with its neighbours."""
        group = self.of[i]
        for neighbour in neighbours:
            other = self.of[neighbour]
            if other.parts and other is not group and group.can_merge(other):
                group = self.merge(group, other)

    def programs(self) -> list[Group]:
        """The groups that have parts."""
        return list({id(g): g for g in self.of if g.parts}.values())


def fusion_groups(
    graph: ir.Graph,
    fewest: int,
    fewest_if_large: int,
    large: int,
    classify: Callable[[ir.Node], Fusible | None] = fusible,
) -> list[list[tuple[ir.Node, Fusible]]]:
    """The programs of a graph, each a list of its nodes in the order of the graph.

    None has fewer than `fewest` nodes that compute something, or `fewest_if_large` nodes over
    `large` elements and more. `classify` says of a node how it can be part of a program.

    Nodes join those that read them rather than those that make their operands, so that what only
    the backward half needs is computed there, not kept for it.
    """
    nodes = list(graph)
    if has_subgraphs(nodes):
        return []
    grouping = Grouping(nodes)
    for i in reversed(range(len(nodes))):
        part = classify(nodes[i])
        if part is not None:
            grouping.of[i].become(i, part)
            grouping.merge_all(i, _neighbours(nodes[i], part, grouping.places))
    return [
        [(nodes[i], group.parts[i]) for i in sorted(group.parts)]
        for group in grouping.programs()
        if sum(part.kind != "alias" for part in group.parts.values())
        >= (fewest if group.total < large else fewest_if_large)
    ]


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    for value in node.inputs:
        if value is not None and (maker := value.producer()) is not None:
            yield maker


def _neighbours(node: ir.Node, part: Fusible, places: dict[ir.Node, int]) -> Iterator[int]:
    """Who reads the node, then who reads the same large operands."""
    if part.kind != "sum":  # its result is smaller than what the program works on
        yield from sorted(places[n] for n in readers(node))
    for value in node.inputs:
        if value is not None and size_if_known(value) == part.total:
            yield from sorted(places[use.node] for use in value.uses())


def size_if_known(value: ir.Value) -> int:
    """The number of elements, 0 if it is not known."""
    return size(value) if is_static(value) else 0
