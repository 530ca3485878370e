"""Code generation for `FusedChannels`: stages, what each computes, and what goes in and out."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from flow2onnx_native.abi import (
    CHANNEL_TILE,
    DOMAIN,
    ChannelsHead,
    ChannelsOperand,
    Kind,
    Link,
    Operation,
    Step,
)
from flow2onnx_native.elementwise import Broadcast, Fusible
from flow2onnx_native.fused_program import float_key, float_of, three_operands
from flow2onnx_native.graph import dims, scalar, size

__all__ = ["MOST_KEPT", "ChannelProgram", "Extent"]

MOST_KEPT = 1 << 17  # elements: half of a usual second cache level


@dataclass(frozen=True)
class Extent:
    """The sizes that the tensors of a program have."""

    outer: int
    channels: int
    inner: int

    @property
    def block(self) -> int:
        """The number of elements that run through all stages together."""
        return self.outer * (self.inner if self.inner >= CHANNEL_TILE else CHANNEL_TILE)

    @property
    def total(self) -> int:
        """The number of elements."""
        return self.outer * self.channels * self.inner


@dataclass(frozen=True)
class _Register:
    """One number that a program knows for a channel, a cell, or a value for every element.

    Computed by an operation of `operands`, or, without one, an input, a constant, or the sum of
    `sum_of`. `stage`: the first that can have it.
    """

    is_cell: bool
    stage: int = 0
    operation: int | None = None
    operands: tuple[int, ...] = ()
    sum_of: int | None = None


@dataclass
class ChannelProgram:
    """A program under construction; it keeps at most so many elements from stage to stage."""

    extent: Extent
    most_kept: int = MOST_KEPT
    registers: list[_Register] = field(default_factory=list)
    inputs: dict[ir.Value, int] = field(default_factory=dict)
    constants: dict[bytes, int] = field(default_factory=dict)
    known: dict[ir.Value, int] = field(default_factory=dict)
    _numbers: dict[_Register, int] = field(default_factory=dict)

    @property
    def tile_stages(self) -> int:
        """How many stages there are that compute on tiles."""
        return 1 + max(r.stage for r in self.registers if not r.is_cell)

    def emit(self, operation: int, *operands: int) -> int:
        """The register of what an operation computes, the same if it is there already."""
        read = [self.registers[i] for i in operands]
        is_cell, stage = all(r.is_cell for r in read), max(r.stage for r in read)
        return self._unique(_Register(is_cell, stage, operation, operands))

    def sum(self, value: ir.Value, at: int, part: Fusible) -> None:
        """Let a value be the sum, or mean, of a register over each channel."""
        cell = self._unique(_Register(True, self.registers[at].stage + 1, sum_of=at))
        if part.mean:
            count = self.constant(self.extent.outer * self.extent.inner)
            cell = self.emit(Operation.DIV, cell, count)
        self.known[value] = cell

    def constant(self, number: float) -> int:
        """The cell that holds a number."""
        key = float_key(number)
        if key not in self.constants:
            self.constants[key] = self._new(_Register(True))
        return self.constants[key]

    def read(self, value: ir.Value, spread: Broadcast | None) -> int:
        """The register of an operand; how its elements are spread tells its size."""
        if value in self.known:
            return self.known[value]
        content = scalar(value)
        if content is not None:
            return self.constant(content)
        if value not in self.inputs:
            self.inputs[value] = self._new(_Register(self._kind(value) != Kind.FULL))
        return self.inputs[value]

    def node(self, outputs: Sequence[ir.Value], name: str) -> ir.Node:
        """The node that computes the values `outputs`."""
        registers = enumerate(self.registers)
        cells = {at: i for i, at in enumerate(at for at, r in registers if r.is_cell)}
        kept = self._kept(outputs)
        stages = [_Stage(self, cells, s, outputs, kept) for s in range(self._last_stage() + 1)]
        head = ChannelsHead(
            self.extent.outer, self.extent.channels, self.extent.inner,
            max(1, *(s.places for s in stages)), max(1, len(cells)), len(kept),
            len(self.inputs), len(outputs), len(self.constants), len(stages),
        )  # fmt: skip
        plan = [*head]
        for value, at in self.inputs.items():
            plan += self._operand(value, cells.get(at, 0))
        for value in outputs:
            plan += self._operand(value, cells.get(self.known[value], 0))
            plan += [len(dims(value)), *dims(value)]
        plan += [cells[at] for at in self.constants.values()]
        plan += [number for stage in stages for number in stage.plan]
        attributes = [ir.AttrInt64s("plan", plan)]
        if self.constants:
            attributes.append(ir.AttrFloat32s("values", [float_of(k) for k in self.constants]))
        return ir.Node(
            DOMAIN, "FusedChannels", list(self.inputs), attributes, num_outputs=len(outputs),
            name=name,
        )  # fmt: skip

    def roots(self, outputs: Sequence[ir.Value], stage: int) -> tuple[list[Link], list[Link]]:
        """Registers that a stage sums up into cells, and those that it writes as outputs."""
        sums = [
            Link(r.sum_of, i)
            for i, r in enumerate(self.registers)
            if r.sum_of is not None and r.stage == stage + 1
        ]
        written = [
            Link(at, i)
            for i, at in enumerate(self.known[v] for v in outputs)
            if not self.registers[at].is_cell and self.registers[at].stage == stage
        ]
        return sums, written

    def tile_code(self, roots: Iterable[int], known: Container[int] = ()) -> list[int]:
        """The operations on tiles that roots are made of, in order, if some are known."""
        needed, pending = set[int](), list(roots)
        while pending:
            at = pending.pop()
            register = self.registers[at]
            is_computed = not register.is_cell and register.operation is not None
            if is_computed and at not in needed and at not in known:
                needed.add(at)
                pending += register.operands
        return sorted(needed)

    def _kept(self, outputs: Sequence[ir.Value]) -> dict[int, int]:
        """The place of each register that stages keep for later ones.

        A stage that would compute it again from more tensors finds less of them in the cache.
        """
        kept = dict[int, int]()
        for stage in range(1, self._last_stage() + 1):
            roots = [link.start for links in self.roots(outputs, stage) for link in links]
            code = self.tile_code(roots, kept)
            here = [at for at in code if self.registers[at].stage == stage]
            used = {o for at in here for o in self.registers[at].operands} | set(roots)
            used = {o for o in used if not self.registers[o].is_cell and o not in here}
            read = {o for at in code for o in self.registers[at].operands} | used
            tensors = {o for o in self.inputs.values() if not self.registers[o].is_cell}
            sources = read & (tensors | set(kept))
            computed = sorted(used - sources)
            if len(used) < len(sources) and len(computed) * self.extent.block <= self.most_kept:
                kept |= {at: len(kept) + i for i, at in enumerate(computed)}
        return kept

    def _operand(self, value: ir.Value, cell: int) -> ChannelsOperand:
        assert value.dtype is not None, "it is fusible"
        return ChannelsOperand(self._kind(value), cell, int(value.dtype))

    def _kind(self, value: ir.Value) -> Kind:
        extent = self.extent
        return {1: Kind.ONE, extent.channels: Kind.CELLS, extent.total: Kind.FULL}[size(value)]

    def _last_stage(self) -> int:
        """The last stage that computes anything."""
        return max(r.stage for r in self.registers if r.is_cell or r.operation is not None)

    def _unique(self, register: _Register) -> int:
        if register not in self._numbers:
            self._numbers[register] = self._new(register)
        return self._numbers[register]

    def _new(self, register: _Register) -> int:
        self.registers.append(register)
        return len(self.registers) - 1


class _Stage:
    """The part of a plan that is one stage: cells first, then what its sums and outputs need."""

    def __init__(
        self,
        program: ChannelProgram,
        cells: dict[int, int],
        stage: int,
        outputs: Sequence[ir.Value],
        kept: dict[int, int],
    ) -> None:
        self.registers, self.places, self.place = program.registers, 0, dict[int, int]()
        sums, written = program.roots(outputs, stage)
        keeps = [Link(at, to) for at, to in kept.items() if self.registers[at].stage == stage]
        roots = [link.start for link in (*sums, *written, *keeps)]
        known = {at for at in kept if self.registers[at].stage < stage}
        order = program.tile_code(roots, known)
        operands = dict.fromkeys(o for at in order for o in self.registers[at].operands)
        operands |= dict.fromkeys(roots)
        number = {at: i for i, at in enumerate(program.inputs.values())}
        reads = [Link(number[at], self._own_place(at)) for at in operands
                 if at in number and at not in cells]  # fmt: skip
        spreads = [Link(cells[at], self._own_place(at)) for at in operands if at in cells]
        recalls = [Link(kept[at], self._own_place(at)) for at in operands if at in known]
        writes, copies = self._outputs(written, order)
        keeping, more = self._outputs(keeps, order)
        code = self._allocate(order, set(roots))
        for to, at in (*copies, *more):
            code.append(Step(Operation.COPY, to, *[self.place[at]] * 3))
        summed = [Link(self.place[at], cells[to]) for at, to in sums]
        on_cells = self._cell_code(cells, stage)
        tables: tuple[Sequence[Link | Step], ...] = (
            on_cells, reads, spreads, writes, recalls, keeping, code, summed,
        )  # fmt: skip
        self.plan = [n for t in tables for n in (len(t), *(n for row in t for n in row))]

    def _cell_code(self, cells: dict[int, int], stage: int) -> list[Step]:
        """The operations on cells that this stage begins with."""
        return [
            Step(r.operation, cells[i], *(cells[o] for o in three_operands(r.operands)))
            for i, r in enumerate(self.registers)
            if r.is_cell and r.operation is not None and r.stage == stage
        ]

    def _own_place(self, at: int | None) -> int:
        """A place of its own, for a register or for none."""
        self.places += 1
        if at is not None:
            self.place[at] = self.places - 1
        return self.places - 1

    def _outputs(
        self, written: Sequence[Link], order: Sequence[int]
    ) -> tuple[list[Link], list[Link]]:
        """Outputs with their places, and the places of those that are copies of registers."""
        writes, copies = list[Link](), list[Link]()
        for at, output in written:
            if at in order and at not in self.place:
                writes.append(Link(output, self._own_place(at)))
            else:  # an output has memory of its own
                writes.append(Link(output, self._own_place(None)))
                copies.append(Link(writes[-1].to, at))
        return writes, copies

    def _allocate(self, order: Sequence[int], roots: set[int]) -> list[Step]:
        """The operations with places; those without one free theirs after their last use."""
        last = {o: at for at in order for o in (*self.registers[at].operands, at)}
        fixed, free = set(self.place) | roots, list[int]()
        code = list[Step]()
        for at in order:
            register = self.registers[at]
            if at not in self.place:
                self.place[at] = free.pop() if free else self._own_place(None)
            operands = [self.place[o] for o in three_operands(register.operands)]
            code.append(Step(int(register.operation or 0), self.place[at], *operands))
            ended = {o for o in (*register.operands, at) if o not in fixed and last[o] == at}
            free += [self.place[o] for o in ended]
        return code
