"""Fusion groups: sets of nodes that can run as one program without waiting for other nodes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import onnx_ir as ir

from flow2onnx_native.elementwise import Fusible, fusible
from flow2onnx_native.graph import is_static, nodes_inside, readers, size, values_read

__all__ = ["Group", "Grouping", "Key", "fusion_groups", "independent_groups", "size_if_known"]

Key = tuple[object, ...]


@dataclass(eq=False)
class Group:
    """Nodes over one number of elements, by their positions in the graph.

    A node that is in no program is a group of its own, without parts. `makers` and `readers` are
    nodes that make what members read, and that read what members make, be they members too.
    """

    at: int = 0  # grows from each group to those that depend on it
    makers: set[int] = field(default_factory=set)
    readers: set[int] = field(default_factory=set)
    total: int = 0
    row: int = 0
    beyond: set[int] = field(default_factory=set)  # read a sum, which ends the program
    parts: dict[int, Fusible] = field(default_factory=dict)

    def become(self, i: int, part: Fusible) -> None:
        """Let the one member be part of a program."""
        self.total, self.row, self.parts = part.total, part.row, {i: part}
        self.beyond = set(self.readers) if part.kind == "sum" else set()

    def fits(self, other: "Group") -> bool:
        """True if both may be one, if no way leads out of the whole and back into it."""
        if self.total != other.total or (self.row and other.row and self.row != other.row):
            return False
        return self.beyond.isdisjoint(other.parts) and other.beyond.isdisjoint(self.parts)

    def absorb(self, other: "Group") -> None:
        """Take in another group."""
        self.row = self.row or other.row
        self.makers |= other.makers
        self.readers |= other.readers
        self.beyond |= other.beyond
        self.parts |= other.parts


class Grouping:
    """Which group each node is in, and an order in which every group can run as one.

    Whether a way leads out of two groups and back is looked for from both ends, among what stands
    between them in the order. Most such ways run along the longest of the graph, where nothing
    need be looked for: the time grows with the number of nodes, not with its square.
    """

    def __init__(self, nodes: Sequence[ir.Node], kind: type[Group] = Group) -> None:
        self.places = {node: i for i, node in enumerate(nodes)}
        for i, node in enumerate(nodes):
            self.places.update(dict.fromkeys(nodes_inside(node), i))
        self.of = [kind() for _ in nodes]
        for i, node in enumerate(nodes):
            for maker in {self.places[m] for m in _makers(node)} - {i}:
                self.of[i].makers.add(maker)
                self.of[maker].readers.add(i)
        self._order = _Order(self.of)
        self._first, self._last = _along_the_longest_way(self.of)

    def join(self, a: Group, b: Group) -> Group | None:
        """Make one group of two; None where they may not be one."""
        if not a.fits(b):
            return None
        first, last = (a, b) if a.at < b.at else (b, a)
        moves = self._moves(first, last)
        if moves is None:
            return None
        both, other = (a, b) if len(a.parts) >= len(b.parts) else (b, a)
        self._order.put_together(first, last, both, *moves)
        both.absorb(other)
        for i in other.parts:
            self.of[i] = both
        return both

    def merge_all(self, i: int, neighbours: Iterable[int]) -> None:
        """Merge the group of a node that has become part of a program with its neighbours."""
        group = self.of[i]
        for neighbour in neighbours:
            other = self.of[neighbour]
            if other.parts and other is not group:
                group = self.join(group, other) or group

    def programs(self) -> list[Group]:
        """The groups that have parts."""
        return list({id(g): g for g in self.of if g.parts}.values())

    def _moves(self, first: Group, last: Group) -> tuple[bool, set[Group]] | None:
        """What goes behind the last when both stand there (True), or before the first (False).

        None if a way leads from the first over others to the last.
        """
        if self._is_linked(first, last):
            return None
        behind = {g for g in self._readers(first) if g.at < last.at}
        before = {g for g in self._makers(last) if g.at > first.at}
        if behind & before:
            return None
        ahead, back = list(behind), list(before)
        while ahead and back:
            for group in self._readers(ahead.pop()):
                if group is last or group in before:
                    return None
                if group.at < last.at and group not in behind:
                    behind.add(group)
                    ahead.append(group)
            for group in self._makers(back.pop()):
                if group is first or group in behind:
                    return None
                if group.at > first.at and group not in before:
                    before.add(group)
                    back.append(group)
        return (False, before) if ahead else (True, behind)

    def _is_linked(self, first: Group, last: Group) -> bool:
        """True if the longest way leads from what reads the first to what the last reads."""
        apart = (first, last)
        end = max((self._last[i] for i in last.makers if self.of[i] not in apart), default=-1)
        return any(self._first[i] <= end for i in first.readers if self.of[i] not in apart)

    def _readers(self, group: Group) -> set[Group]:
        found = {self.of[i] for i in group.readers}
        found.discard(group)
        return found

    def _makers(self, group: Group) -> set[Group]:
        found = {self.of[i] for i in group.makers}
        found.discard(group)
        return found


class _Order:
    """The groups in a row, each with a number between those of its neighbours."""

    _GAP = 1 << 32

    def __init__(self, groups: Iterable[Group]) -> None:
        self._start, self._end = Group(), Group()
        row = [self._start, *groups, self._end]
        self._next = dict(pairwise(row))
        self._previous = {b: a for a, b in self._next.items()}
        self._number()

    def put_together(
        self, first: Group, last: Group, both: Group, is_behind: bool, moved: set[Group]
    ) -> None:
        """Let `both`, one of the two, stand where the last does, or the first.

        What moves comes behind it, or before.
        """
        place, other = (last, first) if is_behind else (first, last)
        row = sorted(moved, key=lambda group: group.at)
        for group in (*row, other):
            self._link(self._previous[group], self._next[group])
        if both is not place:
            self._link(self._previous[place], both)
            self._link(both, self._next[place])
            both.at = place.at
        left, right = (both, self._next[both]) if is_behind else (self._previous[both], both)
        step = (right.at - left.at) // (len(row) + 1)
        for k, group in enumerate(row):
            group.at = left.at + (k + 1) * step
        for a, b in pairwise([left, *row, right]):
            self._link(a, b)
        if not step:
            self._number()

    def _link(self, a: Group, b: Group) -> None:
        self._next[a], self._previous[b] = b, a

    def _number(self) -> None:
        """Number all groups anew, as there is no room between two."""
        group, at = self._start, 0
        while group is not self._end:
            group = self._next[group]
            at += self._GAP
            group.at = at


def _along_the_longest_way(groups: Sequence[Group]) -> tuple[list[int], list[int]]:
    """For each node the first place on the longest way that depends on it, and the last before it.

    The groups are of one node each, in an order in which they can run.
    """
    depth = [0] * len(groups)
    for i, group in enumerate(groups):
        depth[i] = 1 + max((depth[m] for m in group.makers), default=0)
    way, i = list[int](), max(range(len(groups)), key=depth.__getitem__, default=-1)
    while i >= 0:
        way.append(i)
        i = max(groups[i].makers, key=depth.__getitem__, default=-1)
    on_it = {i: place for place, i in enumerate(reversed(way))}
    last, first = [-1] * len(groups), [len(groups)] * len(groups)
    for i, group in enumerate(groups):
        last[i] = on_it.get(i, max((last[m] for m in group.makers), default=-1))
    for i in reversed(range(len(groups))):
        readers = (first[r] for r in groups[i].readers)
        first[i] = on_it.get(i, min(readers, default=len(groups)))
    return first, last


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
    grouping = Grouping(nodes)
    for i in reversed(range(len(nodes))):
        part = classify(nodes[i])
        if part is not None:
            grouping.of[i].become(i, part)
            grouping.merge_all(i, _neighbours(nodes[i], part, grouping.places))
    return [
        _without_views([(nodes[i], group.parts[i]) for i in sorted(group.parts)])
        for group in grouping.programs()
        if sum(part.kind != "alias" for part in group.parts.values())
        >= (fewest if group.total < large else fewest_if_large)
    ]


def _without_views(program: list[tuple[ir.Node, Fusible]]) -> list[tuple[ir.Node, Fusible]]:
    """A program without nodes that give a result of it another shape, for others alone.

    Such a node is a view for the runtime, and a second tensor as a result of the program.
    """
    inside = {node for node, _ in program}
    for node, part in reversed(program):
        value = node.inputs[0]
        if part.kind != "alias" or value is None or value.producer() not in inside - {node}:
            continue
        is_hidden = not node.outputs[0].is_graph_output() and inside.isdisjoint(readers(node))
        others = {use.node for use in value.uses()} - {node}
        if is_hidden and (value.is_graph_output() or not others <= inside):
            inside.remove(node)
    return [(node, part) for node, part in program if node in inside]


def independent_groups(
    graph: ir.Graph, key: Callable[[ir.Node], Key | None]
) -> list[list[ir.Node]]:
    """Nodes of equal keys that can run side by side, in the order of the graph.

    None has a single node, or one whose key is None.
    """
    nodes = list(graph)
    found: dict[Key, list[Group]] = {}
    keys = {i: k for i, node in enumerate(nodes) if (k := key(node)) is not None}
    if len(set(keys.values())) == len(keys):
        return []
    grouping = Grouping(nodes, _Alike)
    for i, k in keys.items():
        _join(grouping, i, found.setdefault(k, []))
    merged = [g for groups in found.values() for g in groups if len(g.parts) > 1]
    return [[nodes[i] for i in sorted(g.parts)] for g in merged]


@dataclass(eq=False)
class _Alike(Group):
    """Nodes of one key, of which none depends on another."""

    def fits(self, other: Group) -> bool:
        """True if none of one reads what one of the other makes."""
        return self.readers.isdisjoint(other.parts) and self.makers.isdisjoint(other.parts)


def _join(grouping: Grouping, i: int, groups: list[Group]) -> None:
    """Let a node be part of the first group that it can join, or of one of its own."""
    own = grouping.of[i]
    own.become(i, Fusible("each", 1))
    for at, group in enumerate(groups):
        both = grouping.join(group, own)
        if both is not None:
            groups[at] = both
            return
    groups.append(own)


def _makers(node: ir.Node) -> Iterator[ir.Node]:
    for value in values_read(node):
        if (maker := value.producer()) is not None:
            yield maker


def _neighbours(node: ir.Node, part: Fusible, places: dict[ir.Node, int]) -> Iterator[int]:
    """Who reads the node, then who reads the same large operands.

    Nodes of a branch that was removed still count as readers, and have no place.
    """
    if part.kind != "sum":  # its result is smaller than what the program works on
        yield from sorted(places[n] for n in readers(node) if n in places)
    for value in node.inputs:
        if value is not None and size_if_known(value) == part.total:
            yield from sorted(places[use.node] for use in value.uses() if use.node in places)


def size_if_known(value: ir.Value) -> int:
    """The number of elements, 0 if it is not known."""
    return size(value) if is_static(value) else 0
