"""Recomputation: activations computed again for the gradients, in place of being kept.

The nodes of a job that come before its gradients are cut into segments. What crosses a cut is
kept; what only the gradients of a segment read is computed again from there, when they are due.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from flow2onnx.errors import ConfigError
from flow2onnx.graph.nodes import RANDOM_OPERATORS, has_seed, read_values, subgraphs_of
from flow2onnx.graph.types import dims, dtype_of, is_static

__all__ = ["RecomputedSegment", "recompute"]

_USUAL = 64
_TERMS = 64  # of a product's sums; one of more is not repeated where products are kept
_PRODUCTS = ("Conv", "ConvTranspose", "Einsum", "Gemm", "GRU", "LSTM", "MatMul", "RNN",
             "Attention", "GroupQueryAttention", "MatMulNBits", "MoE", "MultiHeadAttention",
             "QMoE")  # fmt: skip
_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


@dataclass(frozen=True)
class RecomputedSegment:
    """A segment: its first and last node, how many run twice, and the bytes not kept so.

    Sizes that are known at the run only count as 64 in the bytes.
    """

    first: str
    last: str
    nodes: int
    bytes: int


def recompute(
    graph: ir.Graph,
    forward: Collection[str],
    state: Collection[str],
    how: bool | int | Sequence[str] = True,
    *,
    products: bool = True,
) -> tuple[RecomputedSegment, ...]:
    """Rewrite a train graph in place; what every value is stays the same to the bit.

    Given:   h = Relu(x); …; g = Mul(d, h)
    Result:  h = Relu(x); …; z = Cast(Greater(d[0], inf)); x' = Reshape(x, [0, 0] + z);
             h' = Relu(x'); g = Mul(d, h')
    Kept:    what is drawn at random, results, what crosses a cut

    The second computation depends on a gradient `d`, so that no runtime can begin it early; z is
    always 0 and the reshape is a view. `forward` names the nodes before the gradients, `state` the
    inputs that are variables. `how`: True for about the square root of the number of activations,
    a number of segments, or names of layers and scopes that are one each, listed even if nothing
    of them is kept for gradients alone. Without `products`, those of many terms are kept, and with
    them convolutions and attention: what is computed again costs little then.
    """
    first = _before_gradients(list(graph), forward)
    # True is a number too
    segments = (
        _balanced_segments(first, int(how))
        if isinstance(how, int)
        else _segments_by_name(first, how)
    )
    found = [
        _Segment(graph, set(first), set(s), set(state), products=products).rewrite()
        for s in segments
    ]
    return tuple(f for f in found if f.nodes or not isinstance(how, int))


def _before_gradients(nodes: list[ir.Node], forward: Collection[str]) -> list[ir.Node]:
    """The nodes up to the last of those named; what stands for one since is in its place."""
    places = [i for i, node in enumerate(nodes) if node.name in forward]
    return nodes[: places[-1] + 1] if places else []


def _segments_by_name(nodes: list[ir.Node], names: Iterable[str]) -> list[list[ir.Node]]:
    """For each name the nodes of the layer, or of the layers in the scope."""
    segments = []
    for name in names:
        starts = tuple(f"{name.strip('/')}{mark}" for mark in "-/_")
        segments.append([n for n in nodes if str(n.name).lstrip("/").startswith(starts)])
        if not segments[-1]:
            raise ConfigError(
                f"runtime.recompute names {name}, and no layer or scope of the job is called so",
                hint=f"names begin as those of nodes do: {_beginnings(nodes)}",
            )
    return segments


def _beginnings(nodes: Iterable[ir.Node], most: int = 10) -> str:
    """The first parts of the names of nodes, which name a layer or a scope."""
    parts = (re.split("[-/_]", str(n.name).lstrip("/"), maxsplit=1) for n in nodes)
    found = list(dict.fromkeys(part[0] for part in parts if len(part) > 1))
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more or "none of them has a part"


def _balanced_segments(nodes: list[ir.Node], number: int) -> list[list[ir.Node]]:
    """Segments of about equal bytes kept for the gradients, cut where little crosses.

    The last one is left out: its gradients come at once.
    """
    inside = set(nodes)
    kept = [sum(_bytes(v) for v in n.outputs if _readers(v) - inside) for n in nodes]
    count = number if number > 1 else round(math.sqrt(sum(map(bool, kept))))
    share, cuts, total = sum(kept) / max(count, 1), list[int](), np.cumsum(kept)
    crossing = _crossing_bytes(nodes)
    for k in range(1, count):
        near = [i for i, t in enumerate(total) if abs(t - k * share) <= share / 2]
        near = [i for i in near if not cuts or i + 1 > cuts[-1]]
        if near:
            cuts.append(min(near, key=crossing.__getitem__) + 1)
    return [nodes[a:b] for a, b in zip([0, *cuts], cuts, strict=False) if a < b]


def _crossing_bytes(nodes: list[ir.Node]) -> list[int]:
    """For each node the bytes of what later ones of the list read from it and from before."""
    places = {n: i for i, n in enumerate(nodes)}
    change = [0] * (len(nodes) + 1)
    for i, node in enumerate(nodes):
        for value in node.outputs:
            last = max((places[r] for r in _readers(value) if r in places), default=i)
            change[i] += _bytes(value)
            change[last] -= _bytes(value)
    return list(np.cumsum(change)[:-1])


def _bytes(value: ir.Value) -> int:
    """The bytes of a value, where each size that is known at the run only counts as `_USUAL`.

    0 for what is no tensor.
    """
    if value.shape is None or value.dtype is None:
        return 0
    sizes = (d if isinstance(d, int) else _USUAL for d in value.shape)
    return math.prod(sizes) * dtype_of(value).numpy.itemsize


def _readers(value: ir.Value) -> set[ir.Node]:
    return {use.node for use in value.uses()}


class _Segment:
    """One segment: what its gradients read, and what that is made of."""

    def __init__(
        self,
        graph: ir.Graph,
        forward: set[ir.Node],
        nodes: set[ir.Node],
        state: set[str],
        *,
        products: bool,
    ) -> None:
        self._products = products
        self._graph, self._forward, self._nodes, self._state = graph, forward, nodes, state
        self._ordered = [n for n in graph if n in nodes]
        self._varying = self._varying_values()
        self._copies: dict[ir.Value, ir.Value] = {}
        self._made: list[ir.Node] = []

    def rewrite(self) -> RecomputedSegment:
        """Let the gradients read second copies, unless nothing would be saved."""
        ends = str(self._ordered[0].name), str(self._ordered[-1].name)
        freed = [v for n in self._ordered for v in n.outputs if self._is_freed(v)]
        again = self._producers(freed)
        sources = dict.fromkeys(v for n in again for v in _inputs_of(n) if self._is_source(v))
        saved = sum(map(_bytes, freed)) - sum(
            _bytes(v) for v in sources if not _readers(v) - self._forward
        )
        place = self._first_reader(freed)
        due = self._last_gradient_before(place) if place is not None else None
        if place is None or due is None or saved <= 0 or any(v.shape is None for v in sources):
            return RecomputedSegment(*ends, 0, 0)
        zero = self._zero_after(due)
        for source in sources:
            self._copies[source] = self._delay(source, zero)
        for node in again:
            self._copy(node)
        for value in freed:
            for reader in _readers(value) - self._forward:
                _replace_operand(reader, value, self._copies[value])
        self._graph.insert_before(place, self._made)
        return RecomputedSegment(*ends, len(again), saved)

    def _varying_values(self) -> set[ir.Value]:
        """The values, here and from before, that are more than weights and constants."""
        varying: set[ir.Value] = set()
        for node in self._ordered:
            varying.update(v for v in _inputs_of(node) if self._varies_outside(v))
            if not varying.isdisjoint(_inputs_of(node)):
                varying.update(node.outputs)
        return varying

    def _varies_outside(self, value: ir.Value) -> bool:
        maker = value.producer()
        if maker is None:
            return value.is_graph_input() and value.name not in self._state
        return maker not in self._nodes and maker.op_type != "Constant"

    def _is_repeated(self, value: ir.Value) -> bool:
        """True if a value is computed again where it is needed, and not kept."""
        maker = value.producer()
        if maker is None or maker not in self._nodes or value not in self._varying:
            return False
        readers = _readers(value)
        is_read_on = bool((readers & self._forward) - self._nodes)
        is_captured = any(r.graph is not self._graph for r in readers)
        is_shown = value.is_graph_output()
        is_cheap = self._products or not _is_long_product(maker)
        return is_cheap and _is_repeatable(maker) and not (is_read_on or is_captured or is_shown)

    def _is_freed(self, value: ir.Value) -> bool:
        is_kept = bool(_readers(value) - self._forward) and _bytes(value) > 0
        return is_kept and self._is_repeated(value)

    def _is_source(self, value: ir.Value) -> bool:
        return value in self._varying and not self._is_repeated(value)

    def _producers(self, values: Iterable[ir.Value]) -> list[ir.Node]:
        """The nodes that make values again, in order."""
        found, pending = set[ir.Node](), list(values)
        while pending:
            value = pending.pop()
            maker = value.producer()
            if maker is not None and maker not in found and self._is_repeated(value):
                found.add(maker)
                pending += _inputs_of(maker)
        return [n for n in self._ordered if n in found]

    def _first_reader(self, values: Iterable[ir.Value]) -> ir.Node | None:
        """The first node behind the forward ones that reads any of the values."""
        readers = {r for v in values for r in _readers(v)} - self._forward
        return next((n for n in self._graph if n in readers), None)

    def _last_gradient_before(self, place: ir.Node) -> ir.Value | None:
        """Of the gradients made before `place` that which most of the others go into.

        Nothing before `place` depends on what is freed: it is the first node to read of it.
        """
        behind: dict[ir.Node, int] = {}  # as bits, the nodes that lead to one, itself included
        best, most = None, 1
        for node in self._graph:
            if node is place:
                break
            if node in self._forward:
                continue
            found = 1 << len(behind)
            for value in _inputs_of(node):
                found |= behind.get(value.producer(), 0)  # type: ignore[arg-type]  # None: no maker
            behind[node] = found
            real = [v for v in node.outputs if v.dtype in _FLOATS and _bytes(v)]
            if real and found.bit_count() >= most:
                best, most = real[0], found.bit_count()
        return best if most > 1 else None

    def _zero_after(self, due: ir.Value) -> ir.Value:
        """A zero in int64 that is there once `due` is: whether its first element exceeds all.

        A value of free sizes may be empty, as the gradient of an empty past is: zero is behind it.
        """
        size = math.prod(dims(due)) if is_static(due) else None
        flat = self._emit("Reshape", [due, self._const([-1])], due.dtype, [size])
        if size is None:
            start, end = self._const([0]), self._const([1])
            first = self._emit("Slice", [flat, start, end], due.dtype, [None])
            none = self._const([0], dtype_of(due).numpy)
            flat = self._emit("Concat", [first, none], due.dtype, [None], axis=0)
        head = self._emit("Gather", [flat, self._const([0])], due.dtype, [1])
        wide = self._emit("Cast", [head], ir.DataType.FLOAT, [1], to=int(ir.DataType.FLOAT))
        most = self._const([np.inf], np.float32)
        over = self._emit("Greater", [wide, most], ir.DataType.BOOL, [1])
        return self._emit("Cast", [over], ir.DataType.INT64, [1], to=int(ir.DataType.INT64))

    def _delay(self, value: ir.Value, zero: ir.Value) -> ir.Value:
        """The value itself, once `zero` is there."""
        assert value.shape is not None, "values of a job are typed"
        as_it_is = self._const([0] * len(value.shape))
        shape = self._emit("Add", [as_it_is, zero], ir.DataType.INT64, [len(value.shape)])
        return self._emit("Reshape", [value, shape], value.dtype, value.shape)

    def _copy(self, node: ir.Node) -> None:
        inputs = [self._copies.get(v, v) if v is not None else None for v in node.inputs]
        copy = ir.Node(
            node.domain, node.op_type, inputs, node.attributes.values(),
            num_outputs=len(node.outputs), name=f"again/{node.name}",
        )  # fmt: skip
        copy.meta.update(node.meta)
        for old, new in zip(node.outputs, copy.outputs, strict=True):
            new.name = f"again/{old.name}" if old.name else ""
            new.type, new.shape = old.type, old.shape
            self._copies[old] = new
        self._made.append(copy)

    def _emit(
        self,
        op_type: str,
        inputs: list[ir.Value],
        dtype: ir.DataType | None,
        shape: Iterable[Any],
        **attributes: int,
    ) -> ir.Value:
        name = f"again/{self._ordered[0].name}/{op_type}_{len(self._made)}"
        node = ir.node(op_type, inputs, attributes, name=name)
        value = node.outputs[0]
        value.name = name
        assert dtype is not None, "values of a job are typed"
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(shape)
        self._made.append(node)
        return value

    def _const(self, content: list[Any], dtype: Any = np.int64) -> ir.Value:
        name = f"again/{self._ordered[0].name}/const_{len(self._graph.initializers)}"
        array = np.array(content, dtype)
        value = ir.val(name, const_value=ir.tensor(array, name=name))
        self._graph.register_initializer(value)
        return value


def _is_repeatable(node: ir.Node) -> bool:
    is_random = node.op_type in RANDOM_OPERATORS or has_seed(node)
    return not is_random and not subgraphs_of(node)


def _is_long_product(node: ir.Node) -> bool:
    """True for a product whose sums have many terms, or one that does not say how many."""
    if node.op_type not in _PRODUCTS:
        return False
    first = node.inputs[0]
    if node.op_type != "MatMul" or first is None or first.shape is None:
        return True
    terms = first.shape[-1] if len(first.shape) else None
    return not isinstance(terms, int) or terms > _TERMS


def _inputs_of(node: ir.Node) -> list[ir.Value]:
    return [v for v in read_values(node) if v is not None]


def _replace_operand(node: ir.Node, old: ir.Value, new: ir.Value) -> None:
    for i, value in enumerate(node.inputs):
        if value is old:
            node.replace_input_with(i, new)
