"""Recurrent layers that are trained: `Recurrence` and its gradient, of all steps of a direction."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import onnx_ir as ir
from flow2onnx_runtime.extensions import GRADIENT_OF_EXPANDED, GradientOf

from flow2onnx_native.abi import (
    DOMAIN,
    MOST_MATRIX_ELEMENTS,
    MOST_MATRIX_TASKS,
    Cell,
    PackShape,
    RecurrenceShape,
)
from flow2onnx_native.graph import dims, is_float, is_static, replace_value

__all__ = ["replace_recurrences"]

_GATES = {Cell.LSTM: 4, Cell.GRU: 3, Cell.TANH: 1, Cell.RELU: 1}
_CELLS: dict[str, dict[tuple[str, ...], Cell]] = {
    "LSTM": {("sigmoid", "tanh", "tanh"): Cell.LSTM},
    "GRU": {("sigmoid", "tanh"): Cell.GRU},
    "RNN": {("tanh",): Cell.TANH, ("relu",): Cell.RELU},
}
_INPUTS = 8  # of an LSTM; others have the first six of them
_X, _W, _R, _BIAS, _LENGTHS, _H0, _C0, _PEEPHOLES = range(_INPUTS)


def replace_recurrences(
    graph: ir.Graph,
    copies: Mapping[ir.Value, ir.Value],
    operators: Collection[str],
    threads: int,
) -> dict[ir.Value, ir.Value]:
    """Put the library's operators in the place of the steps of LSTM, GRU and RNN that are trained.

    `copies`: the value of this graph for each that a note may name. What computed the layer and its
    gradients before stays, unread. Returns what stands for the values that were replaced.

    Given:   for each step: Gemm, Split, Sigmoid, …; its gradient; sums over all steps
    Result:  x W by one Gemm, Recurrence; RecurrenceGradient, one Gemm for each gradient
    Kept:    steps of other activations, with clips or peepholes, of unknown number
    """
    replaced: dict[ir.Value, ir.Value] = {}
    if "Recurrence" not in operators:
        return replaced
    for notes in _noted_layers(graph):
        values = {k: replaced.get(v, v) for k, v in copies.items()} if replaced else copies
        layer = _layer(notes, values, threads)
        if layer is not None:
            replaced |= _Rewrite(graph, layer, notes).replace()
    if replaced:
        graph.sort()
    return replaced


def _noted_layers(graph: ir.Graph) -> list[dict[ir.Node, GradientOf]]:
    """For each recurrent layer the nodes that make its gradients, with their notes."""
    found: dict[tuple[ir.Value, ...], dict[ir.Node, GradientOf]] = defaultdict(dict)
    for node in graph:
        note: GradientOf | None = node.meta.get(GRADIENT_OF_EXPANDED)
        if note is not None and note.op_type in _CELLS:
            found[note.outputs][node] = note
    return list(found.values())


@dataclass(frozen=True)
class _Layer:
    """A node's operands in this graph; the gradients are those of its outputs."""

    cells: tuple[Cell, ...]  # of each direction
    is_reverse: tuple[bool, ...]
    is_by_image: bool
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value | None, ...]
    gradients: tuple[ir.Value | None, ...]
    threads: int

    @cached_property
    def extents(self) -> tuple[int, int, int]:
        """Steps, sequences and the width of what goes in."""
        first, second, width = dims(self.get(_X))
        return (second, first, width) if self.is_by_image else (first, second, width)

    @property
    def units(self) -> int:
        """The size of a state."""
        return dims(self.get(_R))[2]

    def get(self, position: int) -> ir.Value:
        """An input that the standard requires."""
        value = self.inputs[position]
        assert value is not None, f"input {position} is required"
        return value


def _layer(
    notes: Mapping[ir.Node, GradientOf], copies: Mapping[ir.Value, ir.Value], threads: int
) -> _Layer | None:
    """The layer of some notes, if the library has it and nothing of it was rewritten since."""
    note = next(iter(notes.values()))
    cells = _cells(note)
    inputs = [*note.inputs, *[None] * _INPUTS][:_INPUTS]
    wanted = [v for v in (*inputs, *note.gradients) if v is not None]
    if not cells or inputs[_PEEPHOLES] is not None or any(v not in copies for v in wanted):
        return None
    inputs, gradients = (
        [None if v is None else copies[v] for v in values] for values in (inputs, note.gradients)
    )
    operands = [v for v in (*inputs, *gradients) if v is not None]
    if not all(is_static(v) for v in operands):
        return None
    if not all(is_float(v) for v in operands if v is not inputs[_LENGTHS]):
        return None
    names = {"reverse": (True,), "bidirectional": (False, True)}
    layer = _Layer(
        cells, names.get(_text(note, "direction"), (False,)), bool(_whole(note, "layout")),
        (*inputs[:_LENGTHS], _lengths(inputs, bool(_whole(note, "layout"))), *inputs[_H0:]),
        tuple(copies.get(v) for v in note.outputs), tuple(gradients), threads,
    )  # fmt: skip
    return layer if _fits(layer) else None


def _fits(layer: _Layer) -> bool:
    """True if no extent is 0, nor beyond what the library takes."""
    (steps, batch, _), units = layer.extents, layer.units
    elements = 4 * steps * batch * units
    return 0 < elements <= MOST_MATRIX_ELEMENTS and 4 * units * (units + 16) <= MOST_MATRIX_ELEMENTS


def _cells(note: GradientOf) -> tuple[Cell, ...]:
    """The cell of each direction; none where there is one that the library has not."""
    if "clip" in note.attributes or _whole(note, "input_forget"):
        return ()
    if note.op_type == "GRU" and not _whole(note, "linear_before_reset"):
        return ()
    known = _CELLS[note.op_type]
    default = next(iter(known))
    count = 2 if _text(note, "direction") == "bidirectional" else 1
    given = note.attributes.get("activations")
    names = [n.lower() for n in given.as_strings()] if given is not None else default * count
    width = len(default)
    parts = [tuple(names[i : i + width]) for i in range(0, len(names), width)]
    return tuple(known[p] for p in parts) if all(p in known for p in parts) else ()


def _whole(note: GradientOf, name: str) -> int:
    return note.attributes[name].as_int() if name in note.attributes else 0


def _text(note: GradientOf, name: str) -> str:
    return note.attributes[name].as_string() if name in note.attributes else ""


def _lengths(inputs: Sequence[ir.Value | None], is_by_image: bool) -> ir.Value | None:
    """The lengths of sequences, if one may be shorter than all steps."""
    lengths, x = inputs[_LENGTHS], inputs[_X]
    assert x is not None, "X is required"
    if lengths is None or lengths.const_value is None:
        return lengths
    steps = dims(x)[1 if is_by_image else 0]
    return None if np.all(lengths.const_value.numpy() >= steps) else lengths


@dataclass(frozen=True)
class _Direction:
    """The operands and results of one direction, without an axis for it."""

    shape: RecurrenceShape
    inputs: ir.Value  # to all steps, a row for each step and sequence
    weights: ir.Value
    recurrent: ir.Value
    h0: ir.Value
    c0: ir.Value | None
    bias: ir.Value | None  # of the recurrent weights, where it stands apart
    forward: ir.Node


@dataclass(frozen=True)
class _Rewrite:
    """One layer, whose steps are replaced."""

    graph: ir.Graph
    layer: _Layer
    notes: Mapping[ir.Node, GradientOf]
    made: list[ir.Node] = field(default_factory=list)
    _names: Iterator[int] = field(default_factory=lambda: iter(range(1 << 30)))

    def replace(self) -> dict[ir.Value, ir.Value]:
        """Put the operators in; what stands for the values that are replaced."""
        layer = self.layer
        directions = [self._run(i) for i in range(len(layer.cells))]
        found = dict(self._outputs(directions))
        backward = self._gradients(directions)
        found |= {
            node.outputs[0]: made
            for node, note in self.notes.items()
            if (made := backward.get(note.position)) is not None
        }
        makers = {v.producer() for v in found}
        first = next(node for node in self.graph if node in makers)
        self.graph.insert_before(first, self.made)  # they are sorted when all are there
        for old, new in found.items():
            assert dims(old) == dims(new), f"{old.name}: {dims(old)} is not {dims(new)}"
            replace_value(old, new)
        return found

    # --- forward ------------------------------------------------------------------------------

    def _run(self, i: int) -> _Direction:
        """One direction: the product of all inputs and the steps."""
        layer, units = self.layer, self.layer.units
        steps, batch, width = layer.extents
        x = self._by_step(layer.get(_X))
        rows = self._reshape(x, steps * batch, width)
        weights, recurrent = (self._side(layer.get(at), i) for at in (_W, _R))
        gates = _GATES[layer.cells[i]] * units
        own, bias = self._biases(i, gates)
        product = self._emit("Gemm", [rows, weights, *own], (steps * batch, gates), transB=1)
        h0, c0 = (self._start(at, i) for at in (_H0, _C0))
        shape = RecurrenceShape(
            layer.cells[i], steps, batch, units, layer.is_reverse[i],
            layer.inputs[_LENGTHS] is not None, 0, 0, 0,
            min(max(layer.threads, 1), MOST_MATRIX_TASKS),
        )  # fmt: skip
        packed = self._pack(recurrent, PackShape(units, gates, is_transposed=True))
        is_lstm = shape.cell == Cell.LSTM
        inputs = [product, packed, h0, c0 if is_lstm else bias, layer.inputs[_LENGTHS]]
        every, one = (steps, batch, units), (batch, units)
        outputs = [every, one]
        if _GATES[layer.cells[i]] > 1:
            outputs += [(steps * batch, gates), (steps * batch, units if is_lstm else gates)]
        forward = self._native("Recurrence", inputs, shape, outputs + [one] * is_lstm)
        return _Direction(
            shape, rows, weights, recurrent, h0, c0 if is_lstm else None, bias, forward
        )

    def _biases(self, i: int, gates: int) -> tuple[list[ir.Value], ir.Value | None]:
        """What is added to the product of the inputs, and to that of the states, if apart."""
        whole = self.layer.inputs[_BIAS]
        is_apart = self.layer.cells[i] == Cell.GRU
        if whole is None:
            return [], self._constant(np.zeros(gates, np.float32)) if is_apart else None
        side = self._side(whole, i)
        own, recurrent = (self._slice(side, at, at + gates) for at in (0, gates))
        if is_apart:
            return [own], recurrent
        return [self._emit("Add", [own, recurrent], (gates,))], None

    def _outputs(self, directions: Sequence[_Direction]) -> Iterator[tuple[ir.Value, ir.Value]]:
        """The outputs of the node that somebody reads, each with what stands for it."""
        steps, batch, _ = self.layer.extents
        units, places = self.layer.units, (0, 1, 4)
        for position, (old, place) in enumerate(zip(self.layer.outputs, places, strict=False)):
            if old is None or not (old.uses() or old.is_graph_output()):
                continue
            parts = [d.forward.outputs[place] for d in directions]
            if position:
                yield old, self._by_image(self._stack(parts, 0, (batch, units)), [1, 0, 2])
            else:
                whole = self._stack(parts, 1, (steps, batch, units))
                yield old, self._by_image(whole, [2, 0, 1, 3])

    # --- backward -----------------------------------------------------------------------------

    def _gradients(self, directions: Sequence[_Direction]) -> dict[int, ir.Value]:
        """The gradients of the inputs that there are notes of, by position."""
        layer = self.layer
        steps, batch, width = layer.extents
        wanted = {note.position for note in self.notes.values()}
        nodes = [self._go_back(i, d) for i, d in enumerate(directions)]
        found: dict[int, ir.Value] = {}
        if _X in wanted:
            total = self._input_gradient(directions, nodes)
            shaped = self._reshape(total, steps, batch, width)
            found[_X] = self._by_image(shaped, [1, 0, 2])
        sides = list(zip(directions, nodes, strict=True))
        if _W in wanted:
            parts = [self._weight_gradient(n.outputs[0], d.inputs) for d, n in sides]
            found[_W] = self._stack(parts, 0, dims(parts[0]))
        if _R in wanted:
            parts = [self._weight_gradient(_of_product(d, n), n.outputs[1]) for d, n in sides]
            found[_R] = self._stack(parts, 0, dims(parts[0]))
        if _BIAS in wanted:
            parts = [self._bias_gradient(d, n) for d, n in sides]
            found[_BIAS] = self._stack(parts, 0, dims(parts[0]))
        for position, place in ((_H0, 2), (_C0, 3)):
            if position in wanted:
                parts = [n.outputs[place] for n in nodes]
                found[position] = self._by_image(self._stack(parts, 0, dims(parts[0])), [1, 0, 2])
        return found

    def _go_back(self, i: int, direction: _Direction) -> ir.Node:
        """All steps of a direction backwards."""
        layer, forward, shape = self.layer, direction.forward, direction.shape
        dy, dh, dc = (*layer.gradients, None, None)[:3]
        dy = None if dy is None else self._side(self._by_step(dy, [1, 2, 0, 3]), i, axis=1)
        dh, dc = (None if g is None else self._side(self._by_step(g), i) for g in (dh, dc))
        has_kept = len(forward.outputs) > 2  # gates and cells or products, of a layer with gates
        gates, inner = forward.outputs[2:4] if has_kept else (None, None)
        depth = _GATES[Cell(shape.cell)] * shape.units
        packed = self._pack(direction.recurrent, PackShape(depth, shape.units, is_transposed=False))
        inputs = [gates, packed, direction.h0, forward.outputs[0], inner, direction.c0,
                  layer.inputs[_LENGTHS], dy, dh, dc]  # fmt: skip
        known = shape._replace(has_dy=dy is not None, has_dh=dh is not None, has_dc=dc is not None)
        rows, one = shape.steps * shape.batch, (shape.batch, shape.units)
        outputs = [(rows, depth), (rows, shape.units), one]
        last = {Cell.LSTM: [one], Cell.GRU: [(rows, depth)]}.get(Cell(shape.cell), [])
        return self._native("RecurrenceGradient", inputs, known, outputs + last)

    def _input_gradient(
        self, directions: Sequence[_Direction], nodes: Sequence[ir.Node]
    ) -> ir.Value:
        """That of all inputs, a row for each step and sequence: the sum of all directions."""
        total: list[ir.Value] = []
        for direction, node in zip(directions, nodes, strict=True):
            operands = [node.outputs[0], direction.weights, *total]
            total = [self._emit("Gemm", operands, dims(direction.inputs))]
        return total[0]

    def _weight_gradient(self, g: ir.Value, operand: ir.Value) -> ir.Value:
        return self._emit("Gemm", [g, operand], (dims(g)[1], dims(operand)[1]), transA=1)

    def _bias_gradient(self, direction: _Direction, node: ir.Node) -> ir.Value:
        """That of both biases, one behind the other."""
        of_inputs = self._sum_rows(node.outputs[0])
        is_apart = direction.shape.cell == Cell.GRU
        of_states = self._sum_rows(node.outputs[3]) if is_apart else of_inputs
        return self._emit("Concat", [of_inputs, of_states], (2 * dims(of_inputs)[0],), axis=0)

    def _sum_rows(self, g: ir.Value) -> ir.Value:
        axes = self._constant(np.array([0], np.int64))
        return self._emit("ReduceSum", [g, axes], (dims(g)[1],), keepdims=0)

    # --- nodes --------------------------------------------------------------------------------

    def _by_step(self, value: ir.Value, order: Sequence[int] = (1, 0, 2)) -> ir.Value:
        """A value of the node's own layout with its steps, or directions, first."""
        return self._transpose(value, order) if self.layer.is_by_image else value

    def _by_image(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        """A value in the node's own layout."""
        return self._transpose(value, order) if self.layer.is_by_image else value

    def _transpose(self, value: ir.Value, order: Sequence[int]) -> ir.Value:
        shape = tuple(dims(value)[i] for i in order)
        return self._emit("Transpose", [value], shape, perm=list(order))

    def _side(self, value: ir.Value, i: int, axis: int = 0) -> ir.Value:
        """The part of one direction, without the axis of directions."""
        shape = dims(value)
        rest = shape[:axis] + shape[axis + 1 :]
        if shape[axis] == 1:
            return self._reshape(value, *rest)
        index = self._constant(np.array(i, np.int64))
        return self._emit("Gather", [value, index], rest, axis=axis)

    def _stack(self, parts: Sequence[ir.Value], axis: int, shape: tuple[int, ...]) -> ir.Value:
        """The parts of all directions with an axis of directions."""
        wide = [self._reshape(p, *shape[:axis], 1, *shape[axis:]) for p in parts]
        if len(wide) == 1:
            return wide[0]
        made = (*shape[:axis], len(wide), *shape[axis:])
        return self._emit("Concat", wide, made, axis=axis)

    def _start(self, position: int, i: int) -> ir.Value:
        """The first state of a direction."""
        given = self.layer.inputs[position]
        if given is not None:
            return self._side(self._by_step(given), i)
        _, batch, _ = self.layer.extents
        return self._constant(np.zeros((batch, self.layer.units), np.float32))

    def _slice(self, value: ir.Value, start: int, end: int) -> ir.Value:
        bounds = [self._constant(np.array([n], np.int64)) for n in (start, end)]
        return self._emit("Slice", [value, *bounds], (end - start,))

    def _pack(self, weight: ir.Value, shape: PackShape) -> ir.Value:
        node = ir.Node(
            DOMAIN, "Pack", [weight], [ir.AttrInt64s("shape", shape)], num_outputs=1,
            name=self._name("Pack"),
        )  # fmt: skip
        node.outputs[0].name = node.name
        self.made.append(node)
        return node.outputs[0]

    def _reshape(self, value: ir.Value, *shape: int) -> ir.Value:
        if dims(value) == shape:
            return value
        wanted = self._constant(np.array(shape, np.int64))
        return self._emit("Reshape", [value, wanted], shape)

    def _constant(self, content: np.ndarray) -> ir.Value:
        name = self._name("constant")
        tensor = ir.tensor(content, name=name)
        value = ir.val(name, const_value=tensor)
        self.graph.register_initializer(value)
        return value

    def _emit(
        self,
        operator: str,
        inputs: Sequence[ir.Value],
        shape: tuple[int, ...],
        **attributes: int | list[int],
    ) -> ir.Value:
        """The output of a new standard node."""
        node = ir.node(
            operator, inputs, attributes=attributes, num_outputs=1, name=self._name(operator)
        )
        self.made.append(node)
        return _describe(node.outputs[0], str(node.name), shape)

    def _native(
        self,
        operator: str,
        inputs: Sequence[ir.Value | None],
        shape: RecurrenceShape,
        outputs: Sequence[tuple[int, ...]],
    ) -> ir.Node:
        while inputs[-1] is None:
            inputs = inputs[:-1]
        node = ir.Node(
            DOMAIN, operator, inputs, [ir.AttrInt64s("shape", [int(n) for n in shape])],
            num_outputs=len(outputs), name=self._name(operator),
        )  # fmt: skip
        for i, (value, extents) in enumerate(zip(node.outputs, outputs, strict=True)):
            _describe(value, f"{node.name}/{i}", extents)
        self.made.append(node)
        return node

    def _name(self, operator: str) -> str:
        first = next(iter(self.notes))
        return f"{first.name}/recurrence/{operator}_{next(self._names)}"


def _describe(value: ir.Value, name: str, shape: tuple[int, ...]) -> ir.Value:
    value.name, value.type, value.shape = name, ir.TensorType(ir.DataType.FLOAT), ir.Shape(shape)
    return value


def _of_product(direction: _Direction, node: ir.Node) -> ir.Value:
    """The gradient of the products of states and recurrent weights."""
    return node.outputs[3 if direction.shape.cell == Cell.GRU else 0]
