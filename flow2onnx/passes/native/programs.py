"""A group of nodes as one node `Fused`: registers, instructions, and what goes in and out."""

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import onnx_ir as ir

from flow2onnx.graph.plans import FORMAT, FULL, PER_ROW, SPREAD, SUMMED
from flow2onnx.graph.types import dims, dtype_of
from flow2onnx.passes.base import replace_output
from flow2onnx.passes.native.operations import (
    ADD,
    COPY,
    ERF,
    MAX,
    MIN,
    MUL,
    Block,
    Part,
    block_of,
    number,
)
from flow2onnx.passes.native.steps import Step, simplified

__all__ = [
    "DOMAIN",
    "Nodes",
    "Translating",
    "fuse",
    "put_in_place",
    "shown_by",
    "take_place",
    "translate",
]

DOMAIN = "flow2onnx.native"
_ELEMENTS = {"float32": 1, "bool": 9}

Nodes = Sequence[tuple[ir.Node, Part]]


class Translating(Protocol):
    """What a program offers to those who write it."""

    known: dict[ir.Value, int]

    def step(self, operation: int, *operands: int) -> int: ...  # noqa: D102
    def constant(self, number: float) -> int: ...  # noqa: D102
    def read(self, value: ir.Value, block: Block | None) -> int: ...  # noqa: D102
    def sum(self, value: ir.Value, at: int, part: Part) -> None: ...  # noqa: D102


@dataclass
class _Program:
    """A program under construction."""

    total: int
    row: int
    steps: list[Step] = field(default_factory=list)
    registers: int = 0
    inputs: dict[tuple[ir.Value, Block | None], int] = field(default_factory=dict)
    constants: dict[bytes, int] = field(default_factory=dict)
    known: dict[ir.Value, int] = field(default_factory=dict)
    sums: dict[ir.Value, tuple[int, Block]] = field(default_factory=dict)

    def new(self) -> int:
        """One more register."""
        self.registers += 1
        return self.registers - 1

    def step(self, operation: int, *operands: int) -> int:
        """The register of what an operation makes."""
        to = self.new()
        self.steps.append(Step(operation, to, operands))
        return to

    def constant(self, number: float) -> int:
        """The register that holds a number."""
        key = struct.pack("f", number)  # 0.0 and -0.0 are two
        if key not in self.constants:
            self.constants[key] = self.new()
        return self.constants[key]

    def read(self, value: ir.Value, block: Block | None) -> int:
        """The register of an operand; without a block it has as many elements as the program."""
        if value in self.known:
            return self.known[value]
        content = value.const_value
        if content is not None and content.size == 1:
            return self.constant(float(content.numpy().reshape(())))
        key = (value, block)
        if key not in self.inputs:
            self.inputs[key] = self.new()
        return self.inputs[key]

    def sum(self, value: ir.Value, at: int, part: Part) -> None:
        """Let a value be the sum, or mean, of a register over all but a block."""
        assert part.block is not None, "a sum says what it keeps"
        if part.mean:
            at = self.step(MUL, at, self.constant(part.block.middle / self.total))
        self.sums[value] = (at, part.block)


def fuse(graph: ir.Graph, nodes: Nodes, name: str) -> ir.Node:
    """Put one node in the place of `nodes`; the graph is to be sorted afterwards."""
    program = _Program(nodes[0][1].total, max(part.row for _, part in nodes))
    for node, part in nodes:
        translate(program, node, part)
    shown = shown_by(nodes)
    made = _node(program, shown, {n.outputs[0] for n, p in nodes if p.kind == "row"}, name)
    put_in_place(graph, nodes, shown, made)
    return made


def put_in_place(graph: ir.Graph, nodes: Nodes, shown: Sequence[ir.Value], made: ir.Node) -> None:
    """Let one node compute what `nodes` show; the graph is to be sorted afterwards."""
    graph.insert_after(nodes[-1][0], made)
    for old, new in zip(shown, made.outputs, strict=True):
        take_place(graph, old, new)
    graph.remove([node for node, _ in nodes], safe=True)


def take_place(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let everyone who reads `old` read `new`, which takes over its name, type and shape."""
    new.name, new.type, new.shape = old.name, old.type, old.shape
    replace_output(graph, old, new)


def shown_by(nodes: Nodes) -> list[ir.Value]:
    """The values that somebody outside reads."""
    inside = {node for node, _ in nodes}
    return [
        value
        for node, _ in nodes
        for value in node.outputs
        if value.name
        and (value.is_graph_output() or any(use.node not in inside for use in value.uses()))
    ]


def translate(program: Translating, node: ir.Node, part: Part) -> None:
    """Let a program compute what a node does."""
    output, operands = node.outputs[0], [v for v in node.inputs if v is not None]
    if part.kind == "alias":
        program.known[output] = program.read(operands[0], None)
    elif part.kind == "affine":
        x, scale, shift = operands[:3]
        scaled = program.step(MUL, program.read(x, None), program.read(scale, part.block))
        program.known[output] = program.step(ADD, scaled, program.read(shift, part.block))
    elif part.kind == "clamp":
        program.known[output] = _clamped(program, node, program.read(operands[0], None))
    elif part.kind == "gelu":
        program.known[output] = _gelu(program, program.read(operands[0], None))
    elif part.kind == "row":
        program.known[output] = program.step(part.operation, _summand(program, operands, part))
    elif part.kind == "sum":
        program.sum(output, _summand(program, operands, part), part)
    else:
        read = [program.read(v, _block(v, output)) for v in operands]
        program.known[output] = program.step(part.operation, *read)


def _summand(program: Translating, operands: Sequence[ir.Value], part: Part) -> int:
    at = program.read(operands[0], None)
    return program.step(MUL, at, at) if part.squares else at


def _clamped(program: Translating, node: ir.Node, at: int) -> int:
    """max(0, min(1, alpha * x + beta))."""
    alpha, beta = number(node, "alpha", 0.2), number(node, "beta", 0.5)
    at = program.step(MUL, at, program.constant(alpha))
    if beta:
        at = program.step(ADD, at, program.constant(beta))
    at = program.step(MIN, at, program.constant(1.0))
    return program.step(MAX, at, program.constant(0.0))


def _gelu(program: Translating, x: int) -> int:
    """x / 2 * (1 + erf(x / sqrt(2)))."""
    erf = program.step(ERF, program.step(MUL, x, program.constant(math.sqrt(0.5))))
    twice = program.step(ADD, erf, program.constant(1.0))
    return program.step(MUL, program.step(MUL, x, program.constant(0.5)), twice)


def _block(value: ir.Value, output: ir.Value) -> Block | None:
    if math.prod(dims(value)) == math.prod(dims(output)):
        return None
    return block_of(dims(value), dims(output))


def _node(
    program: _Program,
    shown: list[ir.Value],
    rows: set[ir.Value],
    name: str,
) -> ir.Node:
    outputs = [_output(program, v, v in rows) for v in shown]
    _simplify(program, [o[0] for o in outputs])
    places, count = _allocated(program, outputs)
    inputs = [_input(program, v, block, at) for (v, block), at in program.inputs.items()]
    plan = [
        FORMAT, program.total, program.row, count, len(inputs), len(outputs),
        len(program.constants), len(program.steps),
    ]  # fmt: skip
    for at, *rest in (*inputs, *outputs):
        plan += [places[at], *rest]
    plan += [places[at] for at in program.constants.values()]
    for step in program.steps:
        a, b, c = (*step.operands, *(step.operands[:1] * 2))[:3]
        plan += [step.operation, places[step.to], places[a], places[b], places[c]]
    attributes = [ir.AttrInt64s("plan", plan)]
    if program.constants:
        attributes.append(ir.AttrFloat32s("values", [_unpacked(k) for k in program.constants]))
    return ir.Node(
        DOMAIN, "Fused", [v for v, _ in program.inputs], attributes,
        num_outputs=len(shown), name=name,
    )  # fmt: skip


def _simplify(program: _Program, kept: Sequence[int]) -> None:
    """Let a program do with fewer steps, and without the constants that only others needed."""
    numbers = {at: _unpacked(key) for key, at in program.constants.items()}
    program.steps = simplified(program.steps, numbers, kept)
    read = {*kept, *(at for step in program.steps for at in step.operands)}
    program.constants = {key: at for key, at in program.constants.items() if at in read}


def _unpacked(key: bytes) -> float:
    found: float = struct.unpack("f", key)[0]
    return found


def _input(program: _Program, value: ir.Value, block: Block | None, at: int) -> list[int]:
    element = _ELEMENTS[dtype_of(value).name]
    if block is None:
        return [at, FULL, program.total, 1, element]
    return [at, SPREAD, block.middle, block.inner, element]


def _output(program: _Program, value: ir.Value, is_row: bool) -> list[int]:
    shape, element = dims(value), _ELEMENTS[dtype_of(value).name]
    if value in program.sums:
        at, block = program.sums[value]
        return [at, SUMMED, block.middle, block.inner, element, len(shape), *shape]
    at = program.known[value]
    if is_row:
        rows = program.total // program.row
        return [at, PER_ROW, rows, program.row, element, len(shape), *shape]
    # an output has memory of its own: what is an input, or another output too, is copied
    at = program.step(COPY, at)
    return [at, FULL, program.total, 1, element, len(shape), *shape]


def _allocated(program: _Program, outputs: list[list[int]]) -> tuple[dict[int, int], int]:
    """The place of each virtual register, and how many places there are.

    Inputs, constants and outputs have one for themselves; others give theirs back after their
    last use.
    """
    _without_copies(program, outputs)
    own = dict.fromkeys(
        [*program.inputs.values(), *program.constants.values(), *(o[0] for o in outputs)]
    )
    places = {at: i for i, at in enumerate(own)}
    last = {at: i for i, step in enumerate(program.steps) for at in (*step.operands, step.to)}
    count, free = len(places), list[int]()
    for i, step in enumerate(program.steps):
        if step.to not in places:
            if not free:
                free.append(count)
                count += 1
            places[step.to] = free.pop()
        ended = {at for at in (*step.operands, step.to) if at not in own and last[at] == i}
        free += [places[at] for at in ended]
    return places, count


def _without_copies(program: _Program, outputs: list[list[int]]) -> None:
    """Let what is computed only to be copied into an output be computed there."""
    made = {step.to: step for step in program.steps}
    for output in outputs:
        copy = made.get(output[0])
        if copy is None or copy.operation != COPY or output[1] != FULL:
            continue
        source = copy.operands[0]
        is_taken = any(o is not output and o[:2] == [source, FULL] for o in outputs)
        if source not in made or is_taken:
            continue
        program.steps.remove(copy)
        output[0] = source
