"""The layers of a graph in each other, as boxes with the edges between them.

A box holds nodes or other boxes; boxes of too many members hold them in runs, so that no picture
has more than a screen can show.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from flow2onnx_runtime.view.graph import Graph, Node
from flow2onnx_runtime.view.texts import shape_text

__all__ = ["Box", "Edge", "box_tree", "category"]

Kind = Literal["group", "node", "input", "output"]

_MOST_MEMBERS = 120  # of a box, before they are put into runs
_RUN = 40  # members of a run at least
_MOST_PAIRS = 24  # edges that are kept apart below one of two boxes

# Colours go by these families of operators.
_FAMILIES = {
    "product": (
        "Attention", "Conv", "ConvInteger", "ConvTranspose", "Einsum", "FusedConv", "FusedGemm",
        "FusedMatMul", "Gather", "GRU", "Gemm", "GroupQueryAttention", "LSTM", "MatMul",
        "MatMulInteger", "MatMulNBits", "MultiHeadAttention", "QLinearConv", "QLinearMatMul",
        "RNN",
    ),
    "activation": (
        "Celu", "Clip", "Elu", "Erf", "FastGelu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
        "LogSoftmax", "Mish", "PRelu", "QuickGelu", "Relu", "Selu", "Sigmoid", "Softmax",
        "Softplus", "Softsign", "Swish", "Tanh", "ThresholdedRelu",
    ),
    "pool": (
        "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool",
        "MaxRoiPool", "MaxUnpool", "RoiAlign",
    ),
    "normalization": (
        "BatchNormalization", "GroupNormalization", "InstanceNormalization", "LRN",
        "LayerNormalization", "LpNormalization", "MeanVarianceNormalization", "RMSNormalization",
        "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization",
    ),
    "shape": (
        "Cast", "Concat", "DepthToSpace", "Expand", "Flatten", "Identity", "Pad", "Reshape",
        "Resize", "Shape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose",
        "Unsqueeze",
    ),
    "control": ("If", "Loop", "Scan"),
    "random": (
        "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike",
        "RandomUniform", "RandomUniformLike",
    ),
    "quantization": (
        "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear",
    ),
}  # fmt: skip
_FAMILY_OF = {name: family for family, names in _FAMILIES.items() for name in names}
_ABOVE = {"gradient": "gradients", "update": "update"}


@dataclass
class Box:
    """A node, a layer, or what the model takes or gives; `leaves` are the indices of its nodes."""

    kind: Kind
    label: str
    detail: str
    family: str
    role: str = "forward"
    members: list["Box"] = field(default_factory=list)
    edges: list["Edge"] = field(default_factory=list)
    node: int | None = None  # its index, or what follows the nodes: inputs, then outputs
    first: int = 0  # the order of computing

    @property
    def leaves(self) -> list[int]:
        """The indices of all nodes inside."""
        if self.node is not None:
            return [self.node]
        return [leaf for member in self.members for leaf in member.leaves]


@dataclass
class Edge:
    """Values that go from one member of a box to another, by their indices in it.

    `pairs` are the nodes below: who makes, who reads, and which value. Quiet ones are not drawn
    until one of their ends is chosen: gradients read something of every layer.
    """

    start: int
    end: int
    pairs: list[tuple[int, int, str]] = field(default_factory=list)
    is_quiet: bool = False


def category(operator: str) -> str:
    """The family of an operator, for its colour."""
    return _FAMILY_OF.get(operator.rpartition("::")[2], "other")


def box_tree(graph: Graph, *, is_flat: bool = False, with_gradients: bool = True) -> Box:
    """The root of all boxes; flat, it holds the layers themselves, whatever they lie in."""
    root = Box("group", graph.title, "", "other")
    places: dict[tuple[str, ...], Box] = {(): root}
    _add_ends(root, graph.inputs, "input", len(graph.nodes), graph)
    for index, node in enumerate(graph.nodes):
        if node.role == "forward" or with_gradients:
            path = _path_of(node, is_flat=is_flat)
            _group(places, path, node.role, index).members.append(_leaf(node, index, graph))
    _add_ends(root, graph.outputs, "output", len(graph.nodes) + len(graph.inputs), graph)
    for box in root.members:  # whatever their first nodes are
        box.first += (box.role != "forward") * (1 + (box.role == "update")) * len(graph.nodes)
    _simplify(root, graph)
    _connect(root, graph)
    return root


def _path_of(node: Node, *, is_flat: bool) -> tuple[str, ...]:
    path = ("/".join(node.path),) if is_flat else node.path
    return (_ABOVE[node.role], *path) if node.role in _ABOVE else path


def _add_ends(root: Box, names: Sequence[str], kind: Kind, start: int, graph: Graph) -> None:
    for number, name in enumerate(names, start):
        first = -1 if kind == "input" else 10**9
        detail = str(graph.value(name))
        root.members.append(Box(kind, name, detail, kind, node=number, first=first))


def _group(places: dict[tuple[str, ...], Box], path: tuple[str, ...], role: str, index: int) -> Box:
    """The box of a path, made with those around it if it is new."""
    for end in range(1, len(path) + 1):
        if path[:end] not in places:
            box = Box("group", path[end - 1], "", "other", role, first=index)
            places[path[:end]] = box
            places[path[: end - 1]].members.append(box)
    return places[path]


def _leaf(node: Node, index: int, graph: Graph) -> Box:
    """The box of a node: its operator, and its own name or, where that says no more, its shape."""
    name, made = node.name.rpartition("/")[2], graph.value(node.outputs[0] if node.outputs else "")
    detail = shape_text(made.shape) if name == node.operator and made.shape else name
    family = category(node.operator)
    return Box("node", node.operator, detail, family, node.role, node=index, first=index)


def _simplify(box: Box, graph: Graph) -> None:
    """Merge boxes with their only member, say what layers hold, and put many members in runs."""
    for position, member in enumerate(box.members):
        while len(member.members) == 1 and member.members[0].kind == "group":
            only = member.members[0]
            label = f"{member.label}/{only.label}"
            member = Box("group", label, "", "other", only.role, only.members, first=member.first)
        if len(member.members) == 1:
            leaf = member.members[0]
            leaf.detail = member.label
            member = leaf
        box.members[position] = member
        if member.members:
            _simplify(member, graph)
            _describe(member, graph)
    if len(box.members) > _MOST_MEMBERS:
        box.members = _in_runs(box.members, graph)


def _describe(box: Box, graph: Graph) -> None:
    """Name the operators of a layer, and give it the family of the weightiest."""
    operators = Counter(graph.nodes[leaf].operator for leaf in box.leaves)
    shown = ", ".join(list(operators)[:3])
    box.detail = shown + ", …" * (len(operators) > 3)
    if len(box.members) > 1 and any(m.kind == "group" for m in box.members):
        box.detail = f"{operators.total():,} nodes"
    families = Counter[str]()
    for operator, count in operators.items():
        families[category(operator)] += count
    order = ("product", "normalization", "pool", "activation", "quantization", "control")
    box.family = next((f for f in order if families[f]), families.most_common(1)[0][0])


def _in_runs(members: list[Box], graph: Graph) -> list[Box]:
    """Members that follow each other as boxes of their own; ends of the model stay apart."""
    ends = [m for m in members if m.kind in ("input", "output")]
    inner = sorted((m for m in members if m.kind in ("group", "node")), key=lambda m: m.first)
    size = max(_RUN, math.ceil(len(inner) / _RUN))
    runs: list[Box] = []
    for role in dict.fromkeys(m.role for m in inner):
        of_role = [m for m in inner if m.role == role]
        for start in range(0, len(of_role), size):
            part = of_role[start : start + size]
            last = part[-1]
            label = f"{part[0].detail if part[0].kind == 'node' else part[0].label} – " + (
                last.detail if last.kind == "node" else last.label
            )
            run = Box("group", label, "", "other", role, part, first=part[0].first)
            _describe(run, graph)
            runs.append(run)
    if len(ends) > _MOST_MEMBERS:
        kinds: list[Kind] = ["input", "output"]
        return [_run_of_ends([m for m in ends if m.kind == k], k) for k in kinds if ends] + runs
    return [*(m for m in ends if m.kind == "input"), *runs,
            *(m for m in ends if m.kind == "output")]  # fmt: skip


def _run_of_ends(members: list[Box], kind: Kind) -> Box:
    first = members[0].first if members else 0
    return Box("group", f"{len(members)} {kind}s", "", kind, members=members, first=first)


def _connect(root: Box, graph: Graph) -> None:
    """Give each box the edges between its members."""
    chains: dict[int, list[tuple[Box, int]]] = {}

    def walk(box: Box, chain: list[tuple[Box, int]]) -> None:
        for position, member in enumerate(box.members):
            inner = [*chain, (box, position)]
            if member.node is not None:
                chains[member.node] = inner
            walk(member, inner)

    walk(root, [])
    edges: dict[tuple[int, int, int], Edge] = {}
    for start, end, name in _wires(graph, chains.keys()):
        for (box, a), (other, b) in zip(chains[start], chains[end], strict=False):
            if box is not other:
                break
            if a != b:
                key = (id(box), a, b)
                if key not in edges:
                    edges[key] = Edge(a, b, is_quiet=_is_quiet(box, a, b))
                    box.edges.append(edges[key])
                pair = (start, end, name)
                if len(edges[key].pairs) < _MOST_PAIRS:
                    edges[key].pairs.append(pair)
                break


def _is_quiet(box: Box, start: int, end: int) -> bool:
    """True for an edge to gradients or updates that is not the last value before them."""
    maker, reader = box.members[start], box.members[end]
    if maker.role == reader.role or maker.kind == "input":
        return maker.kind == "input" and reader.role != "forward"
    if maker.role != "forward":
        return maker.role == "update"
    forward = [m for m in box.members if m.role == "forward" and m.kind in ("group", "node")]
    return reader.kind != "output" and maker.first < max(m.first for m in forward)


def _wires(graph: Graph, shown: Iterable[int]) -> Iterable[tuple[int, int, str]]:
    """Who makes and who reads each value, among the nodes, inputs and outputs that are shown."""
    known = set(shown)
    count = len(graph.nodes)
    makers = {name: i for i, name in enumerate(graph.inputs, count)}
    for index, node in enumerate(graph.nodes):
        for name in node.inputs:
            if name in makers and {index, makers[name]} <= known:
                yield makers[name], index, name
        makers.update((name, index) for name in node.outputs if name and index in known)
    for index, name in enumerate(graph.outputs, count + len(graph.inputs)):
        if name in makers and index in known:
            yield makers[name], index, name
