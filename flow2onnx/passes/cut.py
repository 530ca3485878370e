"""A graph cut into parts that run one after another; what passes between them has links.

What a part makes and later ones read is an output of the one and an input of the others, by one
name. Views of a value are made again in place of being passed on.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import onnx_ir as ir
from flow2onnx_runtime.manifest import NEXT

from flow2onnx.analysis.live_range import VIEWS, byte_size
from flow2onnx.graph.nodes import read_values
from flow2onnx.graph.types import is_static
from flow2onnx.passes.dead_code import DeadCodeElimination

__all__ = ["LINK", "cut", "output_bytes", "parts_by_ends", "parts_by_inputs", "passed_bytes"]

LINK = "link/"  # begins the names of what passes between parts
_REPEATED = VIEWS | {"Constant"}
_AT_ONCE: Mapping[str, int] = MappingProxyType({})


def parts_by_ends(graph: ir.Graph, ends: Sequence[Collection[str]]) -> dict[ir.Node, int]:
    """The part of each node: the first one whose outputs, which `ends` names, depend on it.

    A node that none of them depends on goes where what it reads is there.
    """
    found = dict[ir.Node, int]()
    made = {v.name: v.producer() for v in graph.outputs}
    for part, names in enumerate(ends):
        pending = [made[name] for name in names]
        while pending:
            node = pending.pop()
            if node is not None and node not in found:
                found[node] = part
                pending += [v.producer() for v in _reads(node)]
    for node in graph:
        if node not in found:
            found[node] = max((found[p] for p in _producers(node)), default=0)
    return found


def parts_by_inputs(
    graph: ir.Graph, sums: Mapping[str, str], arrivals: Mapping[str, int] = _AT_ONCE
) -> dict[ir.Node, int]:
    """The part of each node: an input of `sums` is there one part after the output that it names.

    Inputs of `arrivals` are there from a part of that number on, all others at once. Outputs are
    made as early as what they need is there, all else with its first reader, so that little passes
    from one part to another. Parts that have nothing to do are left out.
    """
    found = dict.fromkeys(graph, 0)
    made = {v.name: v.producer() for v in graph.outputs}

    def place(value: ir.Value) -> int:
        maker = value.producer()
        if maker is not None:
            return found[maker]
        before = made.get(sums.get(str(value.name)))
        return arrivals.get(str(value.name), 0) if before is None else found[before] + 1

    is_settled = False
    while not is_settled:  # no edge says that a sum comes after what is added up
        is_settled = True
        for node in graph:
            part = max(map(place, _reads(node)), default=0)
            is_settled &= part == found[node]
            found[node] = part
    first = dict[ir.Node, int]()  # of the readers of a node
    for node in reversed(list(graph)):
        if not any(v.is_graph_output() for v in node.outputs):
            found[node] = max(found[node], first.get(node, 0))
        for maker in _producers(node):
            first[maker] = min(first.get(maker, found[node]), found[node])
    numbers = {part: k for k, part in enumerate(sorted(set(found.values())))}
    return {node: numbers[part] for node, part in found.items()}


def output_bytes(graph: ir.Graph, names: Collection[str]) -> int:
    """The bytes of the outputs of these names."""
    return sum(byte_size(v) for v in graph.outputs if v.name in names)


def passed_bytes(graph: ir.Graph, parts: Mapping[ir.Node, int]) -> list[int] | None:
    """The bytes that pass from each part to later ones; None if a size is known at a call only."""
    pieces = _pieces(graph, parts)
    made = [0] * len(pieces)
    for value in dict.fromkeys(v for piece in pieces for v in piece.taken):
        if value.shape is None or value.dtype is None or not is_static(value):
            return None
        made[parts[_maker(value)]] += byte_size(value)
    return made


def cut(model: ir.Model, parts: Mapping[ir.Node, int]) -> list[ir.Model]:
    """The models of the parts, in order; together they compute what the whole does.

    Given:   h = Relu(x); y = Neg(h); z = Exp(h)                (parts 0, 0, 1; outputs y, z)
    Result:  h = Relu(x); y = Neg(h); link/h = h      and      z = Exp(link/h)
    Kept:    state that a part writes after its last reader is written there
    """
    pieces = _pieces(model.graph, parts)
    return [_model_of(model, piece, k) for k, piece in enumerate(pieces)]


@dataclass
class _Piece:
    """A part: its nodes, the values that it takes from others and gives them, its outputs."""

    nodes: set[ir.Node] = field(default_factory=set)
    taken: dict[ir.Value, None] = field(default_factory=dict)
    given: dict[ir.Value, None] = field(default_factory=dict)
    outputs: list[ir.Value] = field(default_factory=list)

    def need(self, values: Iterable[ir.Value]) -> None:
        """Take what is not made here, or make it here again."""
        pending = list(values)
        while pending:
            value = pending.pop()
            maker = value.producer()
            if maker is None or maker in self.nodes:
                continue
            if maker.op_type in _REPEATED:
                self.nodes.add(maker)
                pending += _reads(maker)
            else:
                self.taken[value] = None


def _pieces(graph: ir.Graph, parts: Mapping[ir.Node, int]) -> list[_Piece]:
    pieces = [_Piece() for _ in range(max(parts.values(), default=0) + 1)]
    for node in graph:
        pieces[parts[node]].nodes.add(node)
    for piece in pieces:
        piece.need([v for node in graph if node in piece.nodes for v in _reads(node)])
    for value, k in _homes(graph, parts, pieces).items():
        pieces[k].outputs.append(value)
        if _maker(value) not in pieces[k].nodes:
            pieces[k].taken[value] = None
    for piece in pieces:
        for value in piece.taken:
            pieces[parts[_maker(value)]].given[value] = None
    return pieces


def _homes(
    graph: ir.Graph, parts: Mapping[ir.Node, int], pieces: Sequence[_Piece]
) -> dict[ir.Value, int]:
    """The part that has each output: that which makes it, or the last reader of an old value."""
    last = {
        f"{NEXT}{v.name}": k
        for k, piece in enumerate(pieces)
        for node in piece.nodes
        for v in _reads(node)
        if v.producer() is None
    }
    return {v: max(parts[_maker(v)], last.get(str(v.name), 0)) for v in graph.outputs}


def _model_of(model: ir.Model, piece: _Piece, k: int) -> ir.Model:
    copy = model.clone()
    graph = copy.graph
    nodes = dict(zip(model.graph, graph, strict=True))

    def twin(value: ir.Value) -> ir.Value:
        return nodes[_maker(value)].outputs[_place(value)]

    names = {value: str(value.name) for value in (*piece.outputs, *piece.given, *piece.taken)}
    graph.name = f"{graph.name}/{k}"
    graph.outputs.clear()
    for value in piece.taken:
        link = ir.Value(name=f"{LINK}{names[value]}", shape=value.shape, type=value.type)
        graph.inputs.append(link)
        if value in piece.outputs:
            twin(value).name = f"{LINK}old/{names[value]}"  # it goes, and another takes its name
            graph.outputs.append(_copied(graph, link, names[value]))
        twin(value).replace_all_uses_with(link)
    graph.outputs.extend(twin(v) for v in piece.outputs if v not in piece.taken)
    for value in piece.given:
        made = twin(value)
        if made.is_graph_output():
            graph.outputs.append(_copied(graph, made, f"{LINK}{names[value]}"))
        else:
            made.name = f"{LINK}{names[value]}"
            graph.outputs.append(made)
    DeadCodeElimination().run(graph)
    for value in list(graph.inputs):
        if not value.uses():
            graph.inputs.remove(value)
    return copy


def _copied(graph: ir.Graph, value: ir.Value, name: str) -> ir.Value:
    node = ir.node("Identity", [value], name=f"{name}/copy")
    made = node.outputs[0]
    made.name, made.shape, made.type = name, value.shape, value.type
    graph.append(node)
    return made


def _reads(node: ir.Node) -> list[ir.Value]:
    return [v for v in read_values(node) if v is not None]


def _producers(node: ir.Node) -> Iterator[ir.Node]:
    for value in _reads(node):
        maker = value.producer()
        if maker is not None:
            yield maker


def _maker(value: ir.Value) -> ir.Node:
    node = value.producer()
    assert node is not None, f"{value.name} is made by no node"
    return node


def _place(value: ir.Value) -> int:
    index = value.index()
    assert index is not None, f"{value.name} is made by no node"
    return index
