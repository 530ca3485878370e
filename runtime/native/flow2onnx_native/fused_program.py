"""Code generation for `Fused`: a group of nodes as registers, steps, and what goes in and out."""

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from flow2onnx_native.abi import DOMAIN, FusedHead, FusedOperand, Mode, Operation, Step
from flow2onnx_native.elementwise import Broadcast, Fusible, broadcast_of
from flow2onnx_native.graph import detach, dims, number, replace_value, scalar, size
from flow2onnx_native.peephole import Instruction, simplify

__all__ = [
    "Nodes",
    "Program",
    "float_key",
    "float_of",
    "fuse",
    "fuse_all",
    "lower",
    "outputs_of",
    "replace_nodes",
    "three_operands",
]

Nodes = Sequence[tuple[ir.Node, Fusible]]


class Program(Protocol):
    """A program under construction, as `lower` needs it."""

    known: dict[ir.Value, int]

    def emit(self, operation: int, *operands: int) -> int: ...  # noqa: D102
    def constant(self, number: float) -> int: ...  # noqa: D102
    def read(self, value: ir.Value, spread: Broadcast | None) -> int: ...  # noqa: D102
    def sum(self, value: ir.Value, at: int, part: Fusible) -> None: ...  # noqa: D102


@dataclass
class _FusedProgram:
    """A program of virtual registers."""

    total: int
    row: int
    code: list[Instruction] = field(default_factory=list)
    registers: int = 0
    inputs: dict[tuple[ir.Value, Broadcast | None], int] = field(default_factory=dict)
    constants: dict[bytes, int] = field(default_factory=dict)
    known: dict[ir.Value, int] = field(default_factory=dict)
    sums: dict[ir.Value, tuple[int, Broadcast]] = field(default_factory=dict)

    def new_register(self) -> int:
        """One more register."""
        self.registers += 1
        return self.registers - 1

    def emit(self, operation: int, *operands: int) -> int:
        """The register of what an operation computes."""
        to = self.new_register()
        self.code.append(Instruction(operation, to, operands))
        return to

    def constant(self, number: float) -> int:
        """The register that holds a number."""
        key = float_key(number)
        if key not in self.constants:
            self.constants[key] = self.new_register()
        return self.constants[key]

    def read(self, value: ir.Value, spread: Broadcast | None) -> int:
        """The register of an operand; one that is not spread has as many elements as the program.

        A constant of one element is a number of the program.
        """
        if value in self.known:
            return self.known[value]
        content = scalar(value)
        if content is not None:
            return self.constant(content)
        key = (value, spread)
        if key not in self.inputs:
            self.inputs[key] = self.new_register()
        return self.inputs[key]

    def sum(self, value: ir.Value, at: int, part: Fusible) -> None:
        """Let a value be the sum, or mean, of a register over all but an index."""
        assert part.broadcast is not None, "a sum says what it keeps"
        if part.mean:
            factor = self.constant(part.broadcast.middle / self.total)
            at = self.emit(Operation.MUL, at, factor)
        self.sums[value] = (at, part.broadcast)


def fuse_all(
    graph: ir.Graph, groups: Iterable[Nodes], pays: Callable[[Nodes], bool] = bool
) -> None:
    """Replace each group of nodes that pays by one; the graph is to be sorted afterwards."""
    fused = list[ir.Node]()
    for i, nodes in enumerate(groups):
        if pays(nodes):
            fuse(graph, nodes, f"native/{i}")
            fused += [node for node, _ in nodes]
    graph.remove(fused)


def fuse(graph: ir.Graph, nodes: Nodes, name: str) -> ir.Node:
    """Let one node compute what `nodes` show, as `replace_nodes` does."""
    program = _FusedProgram(nodes[0][1].total, max(part.row for _, part in nodes))
    for node, part in nodes:
        lower(program, node, part)
    outputs = outputs_of(nodes)
    rows = {node.outputs[0] for node, part in nodes if part.kind == "row"}
    rows |= {v for node, part in nodes if part.kind == "norm" for v in node.outputs[1:]}
    fused = _node(program, outputs, rows, name)
    replace_nodes(graph, nodes, outputs, fused)
    return fused


def replace_nodes(
    graph: ir.Graph, nodes: Nodes, outputs: Sequence[ir.Value], fused: ir.Node
) -> None:
    """Let one node compute what `nodes` show, which stay as dead code.

    The graph is to be sorted afterwards.
    """
    graph.insert_after(nodes[-1][0], fused)
    for old, new in zip(outputs, fused.outputs, strict=True):
        replace_value(old, new)
    detach(node for node, _ in nodes)


def outputs_of(nodes: Nodes) -> list[ir.Value]:
    """The values that somebody outside reads."""
    inside = {node for node, _ in nodes}
    return [
        value
        for node, _ in nodes
        for value in node.outputs
        if value.name
        and (value.is_graph_output() or any(use.node not in inside for use in value.uses()))
    ]


def lower(program: Program, node: ir.Node, part: Fusible) -> None:
    """Let a program compute what a node does."""
    output, operands = node.outputs[0], [v for v in node.inputs if v is not None]
    if part.kind == "sum":
        program.sum(output, _summand(program, operands, part), part)
    elif part.kind == "norm":
        _normalize(program, node, part)
    else:
        program.known[output] = _lowered(program, node, operands, part)


def _lowered(program: Program, node: ir.Node, operands: Sequence[ir.Value], part: Fusible) -> int:
    """The register of what a node computes for every element."""
    if part.kind == "each":
        read = [program.read(v, _spread(v, node.outputs[0])) for v in operands]
        return program.emit(part.operation, *read)
    if part.kind == "row":
        return program.emit(part.operation, _summand(program, operands, part))
    x = program.read(operands[0], None)
    if part.kind == "affine":
        scaled = program.emit(Operation.MUL, x, program.read(operands[1], part.broadcast))
        return program.emit(Operation.ADD, scaled, program.read(operands[2], part.broadcast))
    if part.kind == "clamp":
        return _hard_sigmoid(program, node, x)
    return _gelu(program, x) if part.kind == "gelu" else x


def _normalize(program: Program, node: ir.Node, part: Fusible) -> None:
    """(x - mean) / sqrt(mean((x - mean)^2) + epsilon) * scale + shift, with mean and factor."""
    x, scale, shift = (*node.inputs, None)[:3]
    assert x is not None, "it is fusible"
    spread = Broadcast(part.row, 1)
    at = program.read(x, None)
    mean = program.emit(Operation.ROW_MEAN, at)
    centred = program.emit(Operation.SUB, at, mean)
    variance = program.emit(Operation.ROW_MEAN, program.emit(Operation.MUL, centred, centred))
    epsilon = program.constant(number(node, "epsilon", 1e-5))
    root = program.emit(Operation.SQRT, program.emit(Operation.ADD, variance, epsilon))
    factor = program.emit(Operation.RECIPROCAL, root)
    y = program.emit(Operation.MUL, centred, factor)
    if scale is not None:
        y = program.emit(Operation.MUL, y, program.read(scale, spread))
    if shift is not None:
        y = program.emit(Operation.ADD, y, program.read(shift, spread))
    program.known |= dict(zip(node.outputs, (y, mean, factor), strict=False))


def _summand(program: Program, operands: Sequence[ir.Value], part: Fusible) -> int:
    at = program.read(operands[0], None)
    return program.emit(Operation.MUL, at, at) if part.squares else at


def _hard_sigmoid(program: Program, node: ir.Node, at: int) -> int:
    """max(0, min(1, alpha * x + beta))."""
    alpha, beta = number(node, "alpha", 0.2), number(node, "beta", 0.5)
    at = program.emit(Operation.MUL, at, program.constant(alpha))
    if beta:
        at = program.emit(Operation.ADD, at, program.constant(beta))
    at = program.emit(Operation.MIN, at, program.constant(1.0))
    return program.emit(Operation.MAX, at, program.constant(0.0))


def _gelu(program: Program, x: int) -> int:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    scaled = program.emit(Operation.MUL, x, program.constant(math.sqrt(0.5)))
    erf = program.emit(Operation.ERF, scaled)
    twice = program.emit(Operation.ADD, erf, program.constant(1.0))
    half = program.emit(Operation.MUL, x, program.constant(0.5))
    return program.emit(Operation.MUL, half, twice)


def _spread(value: ir.Value, output: ir.Value) -> Broadcast | None:
    return None if size(value) == size(output) else broadcast_of(dims(value), dims(output))


def _node(
    program: _FusedProgram, outputs: Sequence[ir.Value], rows: set[ir.Value], name: str
) -> ir.Node:
    written = [_write(program, v, v in rows) for v in outputs]
    _simplify(program, [w.at for w in written])
    _write_in_place_of_copies(program, written)
    _sort_inputs(program)
    places, count = _allocate(program, [w.at for w in written])
    head = FusedHead(
        program.total, program.row, count, len(program.inputs), len(outputs),
        len(program.constants), len(program.code),
    )  # fmt: skip
    plan = [*head]
    for (value, spread), at in program.inputs.items():
        plan += _input(program, value, spread, places[at])
    for value, operand in zip(outputs, written, strict=True):
        plan += [*operand._replace(at=places[operand.at]), len(dims(value)), *dims(value)]
    plan += [places[at] for at in program.constants.values()]
    for step in program.code:
        operands = [places[at] for at in three_operands(step.operands)]
        plan += Step(step.operation, places[step.to], *operands)
    attributes = [ir.AttrInt64s("plan", plan)]
    if program.constants:
        attributes.append(ir.AttrFloat32s("values", [float_of(k) for k in program.constants]))
    return ir.Node(
        DOMAIN, "Fused", [v for v, _ in program.inputs], attributes,
        num_outputs=len(outputs), name=name,
    )  # fmt: skip


def _sort_inputs(program: _FusedProgram) -> None:
    """Put inputs in the order of their first use, so that alike programs have alike plans."""
    order = list(dict.fromkeys(at for step in program.code for at in step.operands))
    uses = {at: i for i, at in enumerate(order)}
    ordered = sorted(program.inputs.items(), key=lambda item: uses.get(item[1], len(uses)))
    program.inputs = dict(ordered)


def three_operands(operands: tuple[int, ...]) -> tuple[int, ...]:
    """The operands of a step, the first in the place of those that an operation has not."""
    return (*operands, *(operands[:1] * 2))[:3]


def _simplify(program: _FusedProgram, results: Sequence[int]) -> None:
    """Let a program do with fewer steps, and without the constants that only others needed."""
    numbers = {at: float_of(key) for key, at in program.constants.items()}
    program.code = simplify(program.code, numbers, results)
    read = {*results, *(at for step in program.code for at in step.operands)}
    program.constants = {key: at for key, at in program.constants.items() if at in read}


def float_key(number: float) -> bytes:
    """A number in single precision, as something by which 0.0 and -0.0 are two."""
    return struct.pack("f", number)


def float_of(key: bytes) -> float:
    """The number of a `float_key`."""
    number: float = struct.unpack("f", key)[0]
    return number


def _input(
    program: _FusedProgram, value: ir.Value, spread: Broadcast | None, at: int
) -> FusedOperand:
    element = _element(value)
    if spread is None:
        return FusedOperand(at, Mode.FULL, program.total, 1, element)
    return FusedOperand(at, Mode.SPREAD, spread.middle, spread.inner, element)


def _write(program: _FusedProgram, value: ir.Value, is_row: bool) -> FusedOperand:
    """How an output is written, and from which virtual register."""
    element = _element(value)
    if value in program.sums:
        at, kept = program.sums[value]
        return FusedOperand(at, Mode.SUMMED, kept.middle, kept.inner, element)
    at = program.known[value]
    if is_row:
        return FusedOperand(at, Mode.PER_ROW, program.total // program.row, program.row, element)
    # an output has memory of its own: what is an input, or another output too, is copied
    at = program.emit(Operation.COPY, at)
    return FusedOperand(at, Mode.FULL, program.total, 1, element)


def _element(value: ir.Value) -> int:
    assert value.dtype is not None, "it is fusible"
    return int(value.dtype)


def _allocate(program: _FusedProgram, written: Sequence[int]) -> tuple[dict[int, int], int]:
    """The place of each virtual register, and how many places there are.

    Inputs, constants and outputs have one for themselves; others free theirs after their last use.
    """
    own = dict.fromkeys([*program.inputs.values(), *program.constants.values(), *written])
    places = {at: i for i, at in enumerate(own)}
    last = {at: i for i, step in enumerate(program.code) for at in (*step.operands, step.to)}
    count, free = len(places), list[int]()
    for i, step in enumerate(program.code):
        if step.to not in places:
            if not free:
                free.append(count)
                count += 1
            places[step.to] = free.pop()
        ended = {at for at in (*step.operands, step.to) if at not in own and last[at] == i}
        free += [places[at] for at in ended]
    return places, count


def _write_in_place_of_copies(program: _FusedProgram, written: list[FusedOperand]) -> None:
    """Let what is computed only to be copied into an output be computed there."""
    makers = {step.to: step for step in program.code}
    for i, operand in enumerate(written):
        copy = makers.get(operand.at)
        if copy is None or copy.operation != Operation.COPY or operand.mode != Mode.FULL:
            continue
        source = copy.operands[0]
        is_taken = any(
            other.at == source and other.mode == Mode.FULL
            for k, other in enumerate(written)
            if k != i
        )
        if source not in makers or is_taken:
            continue
        program.code.remove(copy)
        written[i] = operand._replace(at=source)
