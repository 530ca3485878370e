"""Layered pictures: rows of boxes from top to bottom, crossings few, long edges led around.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system
structures" (1981): rows by the longest way, an order in rows by the mean place of neighbours, then
places that are as near to their neighbours as boxes that keep a distance can be.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

__all__ = ["Rows", "place_rows", "rows_of"]

_SWEEPS = 6
_MOST_BENDS = 1500  # points of long edges, beyond which they are drawn straight
_PASSES = 8

Pair = tuple[int, int]


@dataclass(frozen=True)
class Rows:
    """The order of boxes: `rows` hold their numbers, and negative ones where edges pass.

    `bends` has, for an edge between two boxes, the numbers that it passes from its start on.
    """

    rows: list[list[int]]
    bends: dict[Pair, list[int]]


def rows_of(
    count: int, edges: Sequence[Pair], order: Sequence[int], quiet: Collection[Pair] = ()
) -> Rows:
    """The rows of `count` boxes; `order` is where each stands in the order of computing.

    Edges in `quiet` decide rows, but nothing makes room for them.

    Edges against that order, which boxes around nodes may have, count as edges along it.
    """
    along = sorted({(a, b) if (order[a], a) <= (order[b], b) else (b, a) for a, b in edges})
    ranks = _ranks(count, along, order)
    rows: list[list[int]] = [[] for _ in range(max(ranks, default=-1) + 1)]
    for box in sorted(range(count), key=lambda i: (order[i], i)):
        rows[ranks[box]].append(box)
    hidden = {*quiet, *((b, a) for a, b in quiet)}
    bends, links = _bend([pair for pair in along if pair not in hidden], ranks, rows)
    _untangle(rows, links)
    return Rows(rows, _in_direction(bends, edges))


def _ranks(count: int, edges: Sequence[Pair], order: Sequence[int]) -> list[int]:
    """The row of each box: below all that it reads; what reads nothing is above its reader."""
    ranks = [0] * count
    after: dict[int, list[int]] = defaultdict(list)
    before: dict[int, list[int]] = defaultdict(list)
    for a, b in edges:
        after[a].append(b)
        before[b].append(a)
    for box in sorted(range(count), key=lambda i: (order[i], i)):
        for reader in after[box]:
            ranks[reader] = max(ranks[reader], ranks[box] + 1)
    for box in sorted(range(count), key=lambda i: (order[i], i), reverse=True):
        if after[box] and not before[box]:
            ranks[box] = min(ranks[reader] for reader in after[box]) - 1
    return ranks


def _bend(
    edges: Sequence[Pair], ranks: Sequence[int], rows: list[list[int]]
) -> tuple[dict[Pair, list[int]], list[Pair]]:
    """Let edges over several rows pass each of them at a point of its own."""
    long = [(a, b) for a, b in edges if ranks[b] - ranks[a] > 1]
    passes = sum(ranks[b] - ranks[a] - 1 for a, b in long) <= _MOST_BENDS
    bends: dict[Pair, list[int]] = {}
    links = [(a, b) for a, b in edges if ranks[b] - ranks[a] == 1]
    point = 0
    for a, b in long if passes else ():
        way = []
        for row in range(ranks[a] + 1, ranks[b]):
            point -= 1
            rows[row].append(point)
            way.append(point)
        bends[a, b] = way
        links += zip([a, *way], [*way, b], strict=True)
    return bends, links


def _in_direction(bends: dict[Pair, list[int]], edges: Sequence[Pair]) -> dict[Pair, list[int]]:
    """The points of each edge from its own start on."""
    given = set(edges)
    found = {pair: way for pair, way in bends.items() if pair in given}
    back = {(b, a): way[::-1] for (a, b), way in bends.items() if (b, a) in given}
    return found | back


def _untangle(rows: list[list[int]], links: Sequence[Pair]) -> None:
    """Sort each row by the mean place of what it is linked to, downwards and upwards by turns."""
    above: dict[int, list[int]] = defaultdict(list)
    below: dict[int, list[int]] = defaultdict(list)
    for a, b in links:
        below[a].append(b)
        above[b].append(a)
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        neighbours = above if is_down else below
        for i in range(len(rows)) if is_down else reversed(range(len(rows))):
            other = i - 1 if is_down else i + 1
            if not 0 <= other < len(rows):
                continue
            places = {item: n / max(len(rows[other]) - 1, 1) for n, item in enumerate(rows[other])}
            own = {item: n / max(len(rows[i]) - 1, 1) for n, item in enumerate(rows[i])}
            keys = {
                item: _mean([places[n] for n in neighbours[item] if n in places], own[item])
                for item in rows[i]
            }
            rows[i].sort(key=lambda item, keys=keys: keys[item])  # type: ignore[misc]  # bound now


def _mean(numbers: Sequence[float], otherwise: float) -> float:
    return sum(numbers) / len(numbers) if numbers else otherwise


def place_rows(
    rows: Sequence[Sequence[int]], widths: dict[int, float], links: Sequence[Pair], gap: float
) -> dict[int, float]:
    """The middle of each item along its row, in the unit of `widths`; none overlap."""
    near: dict[int, list[int]] = defaultdict(list)
    for a, b in links:
        near[a].append(b)
        near[b].append(a)
    x: dict[int, float] = {}
    for row in rows:
        at = -(sum(widths[i] for i in row) + gap * (len(row) - 1)) / 2
        for item in row:
            x[item] = at + widths[item] / 2
            at += widths[item] + gap
    for turn in range(_PASSES):
        for row in rows if turn % 2 == 0 else reversed(rows):
            wanted = [_mean([x[n] for n in near[item]], x[item]) for item in row]
            for item, place in zip(row, _apart(row, wanted, widths, gap), strict=True):
                x[item] = place
    return x


def _apart(
    row: Sequence[int], wanted: Sequence[float], widths: dict[int, float], gap: float
) -> list[float]:
    """The places nearest to those wanted, in squares, at which the items keep their distance.

    Neighbours that come too near become one block, at the mean of what its items want.
    """
    offsets, at = [], 0.0
    for n, item in enumerate(row):
        if n:
            at += (widths[row[n - 1]] + widths[item]) / 2 + gap
        offsets.append(at)
    blocks: list[tuple[float, int]] = []  # the mean of where its first item would begin, and count
    for want, offset in zip(wanted, offsets, strict=True):
        mean, count = want - offset, 1
        while blocks and blocks[-1][0] > mean:
            before, size = blocks.pop()
            mean, count = (before * size + mean * count) / (size + count), size + count
        blocks.append((mean, count))
    starts = [mean for mean, count in blocks for _ in range(count)]
    return [start + offset for start, offset in zip(starts, offsets, strict=True)]
