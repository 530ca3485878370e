"""A model with transfers as the segments of one process: models, and what is passed between them.

All processes cut the same graph, so that they come to the same transfers in the same order; each
then leaves out what it does not compute.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flow2onnx.graph import Graph, Model, Node, Value
from flow2onnx.graph.nodes import read_values
from flow2onnx.graph.transfers import Transfer, transfer_of
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.passes.cut import cut
from flow2onnx.passes.dead_code import DeadCodeElimination

__all__ = ["Passed", "Segment", "segments_of"]

_GIVEN, _TAKEN, _INDICES = "give/", "take/", "indices/"


@dataclass(frozen=True, kw_only=True)
class Passed:
    """A transfer as one process does it: of the array `given`, to what is called `taken`.

    Each is None where the process has no part in it. `indices`, of rows that go by their owners,
    all have. `shape` and `dtype` are those of what it takes, `is_back` says that it is a gradient,
    and `number` tells transfers of a model apart.
    """

    transfer: Transfer
    given: str | None
    taken: str | None
    shape: tuple[int, ...]
    dtype: "np.dtype[np.generic]"
    is_back: bool
    number: int
    indices: str | None = None


@dataclass(frozen=True)
class Segment:
    """A model, if a process computes anything here, and what is passed once it has run."""

    model: Model | None
    passed: tuple[Passed, ...] = ()


def segments_of(model: Model, rank: int, owners: Mapping[str, int]) -> tuple[Segment, ...]:
    """The segments of a process; `owners` has the state that one process alone has. In place."""
    graph = model.graph
    places = _places(graph, owners)
    levels, nodes = _levels(graph), [n for n in graph if transfer_of(n) is not None]
    count = max((*levels.values(), *(levels[n] + 1 for n in nodes)), default=0) + 1
    passed: list[list[Passed]] = [[] for _ in range(count)]
    for number, node in enumerate(nodes):
        made = _open(graph, node, number, levels, places, rank)
        passed[made[0]].append(made[1])
    _leave_out(graph, {v for v, place in places.items() if place != rank})
    parts = {node: levels[node] for node in graph}
    models = cut(model, parts)
    models += [None] * (count - len(models))  # type: ignore[list-item]  # nothing is computed there
    return tuple(
        Segment(m if m is not None and len(m.graph.outputs) else None, tuple(p))
        for m, p in zip(models, passed, strict=True)
    )


def _places(graph: Graph, owners: Mapping[str, int]) -> dict[Value, int]:
    """The one process that has a value, for values that not all have."""
    found = {v: owners[str(v.name)] for v in graph.inputs if str(v.name) in owners}
    for node in graph:
        transfer = transfer_of(node)
        if transfer is not None:
            if transfer.kind in ("gather", "reduce", "only", "send"):
                found[node.outputs[0]] = transfer.target
            continue
        given = {found[v] for v in read_values(node) if v in found}
        assert len(given) < 2, f"{node.name} reads what {len(given)} processes have"
        if given:
            found.update(dict.fromkeys(node.outputs, given.pop()))
    return found


def _levels(graph: Graph) -> dict[Node, int]:
    """The segment of each node: the first in which all that it reads is there."""
    made: dict[Value, int] = {}
    levels = {}
    for node in graph:
        levels[node] = max((made.get(v, 0) for v in read_values(node) if v), default=0)
        later = transfer_of(node) is not None
        made.update(dict.fromkeys(node.outputs, levels[node] + later))
    return levels


def _open(
    graph: Graph,
    node: Node,
    number: int,
    levels: dict[Node, int],
    places: dict[Value, int],
    rank: int,
) -> tuple[int, Passed]:
    """Put an output and an input in the place of a transfer; its segment, and what it is."""
    transfer, value, made = transfer_of(node), node.inputs[0], node.outputs[0]
    assert transfer is not None, "a transfer stands here"
    assert value is not None, "something is passed"
    level = levels.pop(node)
    gives = places.get(value, rank) == rank
    takes = places.get(made, rank) == rank
    taken = Value(name=f"{_TAKEN}{number}", shape=made.shape, type=made.type)
    if made in places:
        places[taken] = places[made]
    if made.is_graph_output():
        copy = Node("", "Identity", [taken], num_outputs=1, name=f"{made.name}/copy")
        _stand_for(copy.outputs[0], made)
        graph.append(copy)
        levels[copy] = level + 1
        graph.outputs[list(graph.outputs).index(made)] = copy.outputs[0]
        if made in places:
            places[copy.outputs[0]] = places[made]
    made.replace_all_uses_with(taken)
    graph.inputs.append(taken)
    passed = Passed(
        transfer=transfer,
        given=f"{_GIVEN}{number}" if gives else None,
        taken=f"{_TAKEN}{number}" if takes else None,
        shape=dims(made),
        dtype=dtype_of(made).numpy,
        is_back=str(node.name).startswith("grad/"),
        number=number,
        indices=f"{_INDICES}{number}" if len(node.inputs) > 1 else None,
    )
    names = (f"{_GIVEN}{number}", f"{_INDICES}{number}")
    for name, read in zip(names, node.inputs, strict=False):
        assert read is not None, "something is passed"
        copy = _copy_out(graph, node, name, read)
        levels[copy] = level
        if read in places:
            places[copy.outputs[0]] = places[read]
    graph.remove(node, safe=True)
    return level, passed


def _copy_out(graph: Graph, before: Node, name: str, value: Value) -> Node:
    """A node that makes a value an output of this name."""
    copy = Node("", "Identity", [value], num_outputs=1, name=name)
    made = copy.outputs[0]
    made.name, made.shape, made.type = name, value.shape, value.type
    graph.insert_before(before, copy)
    graph.outputs.append(made)
    return copy


def _stand_for(value: Value, other: Value) -> None:
    value.shape, value.type = other.shape, other.type
    value.name, other.name = other.name, f"{other.name}/passed"


def _leave_out(graph: Graph, absent: set[Value]) -> None:
    """Take out what this process does not compute."""
    kept = [v for v in graph.outputs if v not in absent]
    graph.outputs.clear()
    graph.outputs.extend(kept)
    DeadCodeElimination().run(graph)
    for value in [v for v in graph.inputs if v in absent]:
        graph.inputs.remove(value)
