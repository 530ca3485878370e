"""Cells that a loop of the user's unrolls, as one recurrent layer."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.builder import Builder
from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import dims, is_static, rank_of
from flow2onnx.graph.unroll import MOST_ITERATIONS
from flow2onnx.passes.base import Pass, Placeholders, insert_nodes, remove_all, replace_output

__all__ = ["RecurrentCells", "join_cells"]

_FEWEST = 4  # steps, as of products that are hoisted
_GATES = 4  # i, o, f and g in the order of ONNX


@dataclass(frozen=True, kw_only=True)
class _Step:
    """One cell: c = f * cell + i * g, h = o * tanh(c), of gates side by side in a product.

    The product is state R + addend. `blocks` says which block of its columns each gate is, in the
    order of ONNX.
    """

    nodes: tuple[ir.Node, ...]
    product: ir.Node
    blocks: tuple[int, ...]
    state: ir.Value
    cell: ir.Value
    next_state: ir.Value
    next_cell: ir.Value

    @property
    def addend(self) -> tuple[ir.Node | None, int]:
        """The split of the products of all inputs, and which of its outputs is this step's."""
        value = self.product.inputs[2]
        maker = value.producer() if value is not None else None
        return (None, 0) if maker is None or value is None else (maker, maker.outputs.index(value))


class RecurrentCells(Pass):
    """Let one LSTM stand for the steps of a loop that has been written out.

    Given:   p = Gemm(x, w, bias);  p0, p1, … = Split(p);  y0 = Gemm(h0, r, p0)
             i, f, g, o = Split(y0);  c1 = Sigmoid(f) * c0 + Sigmoid(i) * Tanh(g)
             h1 = Sigmoid(o) * Tanh(c1);  y1 = Gemm(h1, r, p1);  …
    Result:  y = LSTM(x, w, r, bias, h0, c0);  h1, h2, … = Split(y)
    Kept:    steps of which somebody reads a gate, or a cell before the last; values that are `kept`
             or have a `fixed` gradient; fewer than four steps, and more than a gradient unrolls;
             those of unknown size, or in another type than float32

    It comes after `HoistProducts`, which has made one product of those of all inputs.
    """

    def __init__(self, kept: Collection[ir.Value] = (), fixed: Collection[ir.Node] = ()) -> None:
        self._kept, self._fixed = frozenset(kept), frozenset(fixed)

    def run(self, graph: ir.Graph) -> bool:
        """Replace loop after loop; each sees what has become of the others."""
        changed = False
        while (loop := self._next_loop(graph)) is not None:
            _replace(graph, loop, [s for s in _stacks(loop) if s.result not in self._kept])
            changed = True
        if changed:
            graph.sort()
        return changed

    def _next_loop(self, graph: ir.Graph) -> "_Loop | None":
        """A loop that can be replaced; None if there is none left."""
        steps = [s for node in graph if (s := _step(node)) is not None]
        loops = (self._loop(chain) for chain in _chains(steps))
        return next((loop for loop in loops if loop is not None), None)

    def _loop(self, steps: Sequence[_Step]) -> "_Loop | None":
        """The layer that steps are, if nobody needs what is inside."""
        loop = _layer(steps)
        if loop is None:
            return None
        nodes = loop.nodes
        results = {s.next_state for s in steps} | {steps[-1].next_cell}
        made = [v for node in nodes for v in node.outputs]
        inner = [v for v in made if v not in results]
        if self._fixed & nodes or self._kept.intersection(made):
            return None
        if any(v.is_graph_output() for v in made):
            return None
        return loop if all(u.node in nodes for v in inner for u in v.uses()) else None


def join_cells(b: Builder, kept: Collection[ir.Value], fixed: Collection[ir.Node] = ()) -> None:
    """RecurrentCells on a graph that more is going to be appended to."""
    if RecurrentCells(kept, fixed).run(b.graph):
        b.nodes[:] = list(b.graph)


# --- one step ---------------------------------------------------------------------------------


def _step(node: ir.Node) -> _Step | None:
    """The cell whose output a node computes, o * tanh(c)."""
    for leave, shown in _orders(node, "Mul"):
        tanh, out = _maker(shown, "Tanh"), _gate(leave, "Sigmoid")
        cell = tanh.inputs[0] if tanh is not None else None
        add = _maker(cell, "Add")
        if tanh is None or out is None or cell is None or add is None:
            continue
        for kept, entered in _orders(add, "Add"):
            found = _cell_of(kept, entered, out)
            if found is not None:
                nodes = (node, tanh, add, *out.nodes, *found[0])
                return _step_of_gates(nodes, out, found, node.outputs[0], cell)
    return None


@dataclass(frozen=True)
class _Gate:
    """An activation of a block of columns of a product."""

    nodes: tuple[ir.Node, ...]
    whole: ir.Value
    start: int
    width: int


_Found = tuple[tuple[ir.Node, ...], _Gate, _Gate, _Gate, ir.Value]


def _cell_of(kept: ir.Value, entered: ir.Value, out: _Gate) -> _Found | None:
    """The nodes, the gates i, f, g and the cell before, of f * cell + i * g."""
    keep, enter = _maker(kept, "Mul"), _maker(entered, "Mul")
    if keep is None or enter is None:
        return None
    for one, other in _orders(enter, "Mul"):
        i, g = _gate(one, "Sigmoid"), _gate(other, "Tanh")
        if i is None or g is None or not i.whole is g.whole is out.whole:
            continue
        for factor, cell in _orders(keep, "Mul"):
            f = _gate(factor, "Sigmoid")
            if f is not None and f.whole is out.whole:
                return (keep, enter, *i.nodes, *f.nodes, *g.nodes), i, f, g, cell
    return None


def _step_of_gates(
    nodes: Sequence[ir.Node], out: _Gate, found: _Found, state: ir.Value, cell: ir.Value
) -> _Step | None:
    """The step of these gates, if they share a product among them and sizes are known."""
    _, i, f, g, before = found
    product = _maker(out.whole, "Gemm")
    gates, width = (i, out, f, g), out.width
    if product is None or not _is_plain(product) or len(product.inputs) != 3:
        return None
    if not width or any(gate.width != width or gate.start % width for gate in gates):
        return None
    blocks = tuple(gate.start // width for gate in gates)
    first = product.inputs[0]
    rows, columns = dims(out.whole)
    is_whole = sorted(blocks) == list(range(_GATES)) and columns == _GATES * width
    if not is_whole or first is None or not all(map(is_static, (before, first, state))):
        return None
    if not dims(before) == dims(first) == dims(state) == (rows, width):
        return None  # a gate may stand for all units
    if state.dtype != ir.DataType.FLOAT:
        return None  # the runtime lists float64 too, and does not compute it
    return _Step(
        nodes=(*nodes, product), product=product, blocks=blocks, state=first, cell=before,
        next_state=state, next_cell=cell,
    )  # fmt: skip


def _is_plain(product: ir.Node) -> bool:
    """True for rows R, to which something may be added, R transposed or not, without factors."""
    factors = attribute(product, "alpha", 1.0), attribute(product, "beta", 1.0)
    return not attribute(product, "transA", 0) and factors == (1.0, 1.0)


def _maker(value: ir.Value | None, operator: str) -> ir.Node | None:
    """The node that makes a value, if it is this operator of the standard."""
    node = value.producer() if value is not None else None
    return node if node is not None and not node.domain and node.op_type == operator else None


def _orders(node: ir.Node, operator: str) -> Iterator[tuple[ir.Value, ir.Value]]:
    """The two operands of a node in either order; none if it is another operator."""
    if node.op_type == operator and not node.domain:
        one, other = node.inputs
        assert one is not None, "both are required"
        assert other is not None, "both are required"
        yield one, other
        yield other, one


def _gate(value: ir.Value, operator: str) -> _Gate | None:
    """The activation of some columns of a matrix that a value is."""
    node = _maker(value, operator)
    part = node.inputs[0] if node is not None else None
    if node is None or part is None or not is_static(part) or rank_of(part) != 2:
        return None
    maker = part.producer()
    if maker is None or maker.domain or maker.op_type not in _STARTS:
        return None
    whole = maker.inputs[0]
    if whole is None or not is_static(whole) or dims(part)[0] != dims(whole)[0]:
        return None
    start = _STARTS[maker.op_type](maker, part)
    return None if start is None else _Gate((node, maker), whole, start, dims(part)[1])


def _start_of_slice(node: ir.Node, part: ir.Value) -> int | None:
    """The first column that a slice of all rows takes, one after the other."""
    whole = node.inputs[0]
    numbers = [_numbers(v) for v in node.inputs[1:]]
    assert whole is not None, "a slice has an input"
    if any(n is None and v is not None for n, v in zip(numbers, node.inputs[1:], strict=True)):
        return None  # known at run time only
    starts, _, axes, strides = [*numbers, None, None][:4]
    if starts is None or (strides is not None and set(strides) != {1}):
        return None
    axes = list(range(len(starts))) if axes is None else [a % 2 for a in axes]
    if 1 not in axes:
        return 0
    width = dims(whole)[1]
    start = starts[axes.index(1)]
    return min(max(start + width if start < 0 else start, 0), width)


def _start_of_split(node: ir.Node, part: ir.Value) -> int | None:
    """The first column of an output of a split along columns."""
    if attribute(node, "axis", 0) not in (1, -1):
        return None
    before = node.outputs[: node.outputs.index(part)]
    return sum(dims(v)[1] for v in before) if all(map(is_static, before)) else None


_STARTS = {"Slice": _start_of_slice, "Split": _start_of_split}


def _numbers(value: ir.Value | None) -> list[int] | None:
    """The whole numbers of a constant; None for what is none."""
    content = value.const_value if value is not None else None
    return None if content is None else [int(n) for n in content.numpy().ravel()]


# --- all steps --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Loop:
    """Steps in a row, and the product of their inputs: `rows` from the step `first` on."""

    steps: tuple[_Step, ...]
    rows: ir.Value
    weight: ir.Value
    bias: ir.Value | None
    is_transposed: bool  # the weight of the inputs
    first: int
    is_reverse: bool
    before: tuple[ir.Node, ...]  # of the product, which nobody else reads

    @property
    def recurrent(self) -> ir.Value:
        """The weight of the states."""
        weight = self.steps[0].product.inputs[1]
        assert weight is not None, "a product has a weight"
        return weight

    def by_time(self, values: Sequence[ir.Value]) -> list[ir.Value]:
        """Values of all steps in the order of time, or the other way round."""
        return list(reversed(values)) if self.is_reverse else list(values)

    @property
    def nodes(self) -> frozenset[ir.Node]:
        """All that the layer stands for."""
        return frozenset((*self.before, *(n for s in self.steps for n in s.nodes)))


def _chains(steps: Sequence[_Step]) -> Iterator[list[_Step]]:
    """Steps of which each takes both states from the one before, with the same weight."""
    after: dict[tuple[ir.Value, ...], list[_Step]] = defaultdict(list)
    for step in steps:
        after[_key(step, step.state, step.cell)].append(step)
    made = {_key(s, s.next_state, s.next_cell) for s in steps}
    for step in steps:
        if _key(step, step.state, step.cell) in made:
            continue
        chain = [step]
        while len(found := after[_key(step, chain[-1].next_state, chain[-1].next_cell)]) == 1:
            chain += found
        if _FEWEST <= len(chain) <= MOST_ITERATIONS and len({s.blocks for s in chain}) == 1:
            yield chain


def _key(step: _Step, state: ir.Value, cell: ir.Value) -> tuple[ir.Value, ...]:
    weight = step.product.inputs[1]
    assert weight is not None, "a product has a weight"
    return state, cell, weight


def _layer(steps: Sequence[_Step]) -> _Loop | None:
    """The layer of some steps, if one product made what they add, row after row."""
    (split, at), (_, second) = steps[0].addend, steps[1].addend
    stride = second - at
    if split is None or split.op_type != "Split" or split.domain or stride not in (1, -1):
        return None
    wanted = dims(steps[0].product.outputs[0])  # a row may be added to all
    if attribute(split, "axis", 0) != 0:
        return None
    if not all(is_static(v) and dims(v) == wanted for v in split.outputs):
        return None
    if any(s.addend != (split, at + stride * i) for i, s in enumerate(steps)):
        return None
    product = _maker(split.inputs[0], "Gemm")
    if product is None or not _is_plain(product):
        return None
    rows, weight, *rest = product.inputs
    bias = rest[0] if rest else None
    if rows is None or weight is None or not is_static(rows) or not is_static(weight):
        return None
    if bias is not None and (not is_static(bias) or dims(bias) != wanted[1:]):
        return None
    used = {s.product for s in steps}
    is_alone = all(u.node in used for v in split.outputs for u in v.uses())
    is_alone &= [u.node for u in product.outputs[0].uses()] == [split]
    return _Loop(
        steps=tuple(steps), rows=rows, weight=weight, bias=bias,
        is_transposed=bool(attribute(product, "transB", 0)),
        first=min(at, at + stride * (len(steps) - 1)), is_reverse=stride < 0,
        before=(split, product) if is_alone else (),
    )  # fmt: skip


@dataclass(frozen=True)
class _Stack:
    """All states side by side along `axis`, which is a new one if there was none."""

    result: ir.Value
    axis: int
    is_new: bool

    def emit(self, b: Builder, y: ir.Value) -> ir.Value:
        """The same of the states, a matrix for each step."""
        by_axis = y if self.axis == 0 else b.Transpose(y, perm=[1, 0, 2])
        return by_axis if self.is_new else b.Reshape(by_axis, list(dims(self.result)))


def _stacks(loop: _Loop) -> list[_Stack]:
    """The values that have all states of a layer in the order of time."""
    states = loop.by_time([s.next_state for s in loop.steps])
    found = []
    for use in states[0].uses():
        is_new = use.node.op_type == "Unsqueeze" and not use.node.domain
        readers = [u.node for u in use.node.outputs[0].uses()] if is_new else [use.node]
        for concat in (n for n in readers if n.op_type == "Concat" and not n.domain):
            parts = [_before_unsqueeze(v) if is_new else (v, None) for v in concat.inputs]
            axes, axis = {at for _, at in parts}, int(attribute(concat, "axis", 0))
            rank = 3 if is_new else 2
            axis = axis + rank if axis < 0 else axis
            if [v for v, _ in parts] == states and axes in ({None}, {axis}) and axis < 2:
                found.append(_Stack(concat.outputs[0], axis, is_new))
    return [s for s in found if not s.result.is_graph_output()]


def _before_unsqueeze(value: ir.Value | None) -> tuple[ir.Value | None, int | None]:
    """A matrix and the axis that it was given; nothing if a value is no such."""
    node = _maker(value, "Unsqueeze")
    axes = _numbers(node.inputs[1]) if node is not None else None
    if node is None or axes is None or len(axes) != 1:
        return None, None
    return node.inputs[0], axes[0] % 3


def _replace(graph: ir.Graph, loop: _Loop, stacks: Sequence[_Stack]) -> None:
    """Put the layer in the place of the steps."""
    first, last = loop.steps[0], loop.steps[-1]
    reads = [loop.rows, loop.weight, loop.bias, loop.recurrent, first.state, first.cell]
    found = insert_nodes(
        graph, first.product, f"{first.product.name}/cells", partial(_emit, loop, stacks),
        [v for v in reads if v is not None],
    )  # fmt: skip
    olds = [s.result for s in stacks] + [s.next_state for s in loop.steps] + [last.next_cell]
    for old, new in zip(olds, found, strict=True):
        name, old.name = old.name, None
        replace_output(graph, old, new)
        new.name = name
    remove_all(graph, list(loop.nodes))


def _emit(
    loop: _Loop, stacks: Sequence[_Stack], b: Builder, standing: Placeholders
) -> list[ir.Value]:
    """All states as they are stacked, one by one in the order of steps, and the last cell."""
    first = loop.steps[0]
    count, (batch, units) = len(loop.steps), dims(first.state)
    rows = standing[loop.rows]
    start = loop.first * batch
    if dims(rows)[0] != count * batch:
        rows = b.Slice(rows, [start], [start + count * batch], [0])
    x = b.Reshape(rows, [count, batch, dims(rows)[1]])
    w = _by_gate(b, standing[loop.weight], first.blocks, units, int(not loop.is_transposed))
    is_transposed = bool(attribute(first.product, "transB", 0))
    r = _by_gate(b, standing[loop.recurrent], first.blocks, units, int(not is_transposed))
    direction = {"direction": "reverse"} if loop.is_reverse else {}
    y, _, c = b.several(
        "LSTM", x, w, r, _both_biases(b, loop, standing, units), None,
        *(_start(b, standing[v], v) for v in (first.state, first.cell)),
        outputs=3, hidden_size=units, **direction,
    )  # fmt: skip
    y = b.Squeeze(y, [1])
    states = b.several("Split", y, axis=0, num_outputs=count, outputs=count)
    by_step = loop.by_time([b.Squeeze(s, [0]) for s in states])
    return [*(s.emit(b, y) for s in stacks), *by_step, b.Squeeze(c, [0])]


def _by_gate(
    b: Builder, weight: ir.Value, blocks: Sequence[int], units: int, axis: int
) -> ir.Value:
    """A weight, or bias, in the order of ONNX's gates, with an axis of directions before."""
    parts = [b.Slice(weight, [k * units], [(k + 1) * units], [axis]) for k in blocks]
    joined = b.Concat(*parts, axis=axis)
    return b.Unsqueeze(b.Transpose(joined, perm=[1, 0]) if axis else joined, [0])


def _both_biases(
    b: Builder, loop: _Loop, standing: Mapping[ir.Value, ir.Value], units: int
) -> ir.Value | None:
    """The bias of the inputs, and none of the states."""
    if loop.bias is None:
        return None
    own = _by_gate(b, standing[loop.bias], loop.steps[0].blocks, units, 0)
    none = b.const(np.zeros((1, _GATES * units), loop.bias.dtype.numpy()))  # type: ignore[union-attr]  # a bias has a type
    return b.Concat(own, none, axis=1)


def _start(b: Builder, state: ir.Value, original: ir.Value) -> ir.Value | None:
    """A first state with an axis of directions; None for zeros."""
    content = original.const_value
    if content is not None and not np.any(content.numpy()):
        return None
    return b.Unsqueeze(state, [0])
