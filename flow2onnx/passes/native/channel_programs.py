"""The program of a node `FusedChannels`: stages, what each computes, and what goes in and out."""

import math
import struct
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from flow2onnx.graph.plans import CELLS, CHANNELS_FORMAT, FULL, ONE
from flow2onnx.graph.types import dims
from flow2onnx.passes.native.operations import COPY, DIV, Block, Part
from flow2onnx.passes.native.programs import DOMAIN

__all__ = ["ChannelProgram", "Extent"]


_Links = list[tuple[int, int]]
_TILE = 512  # of the kernel
_MOST_KEPT = 1 << 17  # elements: half of a usual second cache level


@dataclass(frozen=True)
class Extent:
    """The sizes that the tensors of a program have."""

    outer: int
    channels: int
    inner: int

    @property
    def block(self) -> int:
        """The number of elements that run through all stages together."""
        return self.outer * (self.inner if self.inner >= _TILE else _TILE)

    @property
    def total(self) -> int:
        """The number of elements."""
        return self.outer * self.channels * self.inner


@dataclass(frozen=True)
class _Register:
    """What a program knows: a cell, or a value for every element.

    Made by an operation of `operands`, or, without one, an input, a constant, or the sum of `of`.
    `stage`: the first that can have it.
    """

    is_cell: bool
    stage: int = 0
    operation: int | None = None
    operands: tuple[int, ...] = ()
    of: int | None = None


@dataclass
class ChannelProgram:
    """A program under construction."""

    extent: Extent
    registers: list[_Register] = field(default_factory=list)
    inputs: dict[ir.Value, int] = field(default_factory=dict)
    constants: dict[bytes, int] = field(default_factory=dict)
    known: dict[ir.Value, int] = field(default_factory=dict)
    _made: dict[_Register, int] = field(default_factory=dict)

    @property
    def stages(self) -> int:
        """How many there are that compute on tiles."""
        return 1 + max(r.stage for r in self.registers if not r.is_cell)

    def step(self, operation: int, *operands: int) -> int:
        """The register of what an operation makes, the same if it has been made before."""
        read = [self.registers[i] for i in operands]
        made = _Register(
            all(r.is_cell for r in read), max(r.stage for r in read), operation, operands
        )
        return self._once(made)

    def sum(self, value: ir.Value, at: int, part: Part) -> None:
        """Let a value be the sum, or mean, of a register over each channel."""
        sum_ = self._once(_Register(True, self.registers[at].stage + 1, of=at))
        if part.mean:
            sum_ = self.step(DIV, sum_, self.constant(self.extent.outer * self.extent.inner))
        self.known[value] = sum_

    def constant(self, number: float) -> int:
        """The cell that holds a number."""
        key = struct.pack("f", number)  # 0.0 and -0.0 are two
        if key not in self.constants:
            self.constants[key] = self._new(_Register(True))
        return self.constants[key]

    def read(self, value: ir.Value, block: Block | None) -> int:
        """The register of an operand; how its elements are spread tells its size."""
        if value in self.known:
            return self.known[value]
        content = value.const_value
        if content is not None and content.size == 1:
            return self.constant(float(content.numpy().reshape(())))
        if value not in self.inputs:
            self.inputs[value] = self._new(_Register(self._kind(value) != FULL))
        return self.inputs[value]

    def node(self, shown: Sequence[ir.Value], name: str) -> ir.Node:
        """The node that computes the values `shown`."""
        cells = {at: i for i, at in enumerate(self._cells())}
        kept = self._kept(shown)
        stages = [_Stage(self, cells, s, shown, kept) for s in range(self._last() + 1)]
        plan = [
            CHANNELS_FORMAT, self.extent.outer, self.extent.channels, self.extent.inner,
            max(1, *(s.places for s in stages)), max(1, len(cells)), len(kept),
            len(self.inputs), len(shown), len(self.constants), len(stages),
        ]  # fmt: skip
        for value, at in self.inputs.items():
            plan += [self._kind(value), cells.get(at, 0)]
        for value in shown:
            plan += [self._kind(value), cells.get(self.known[value], 0), len(dims(value))]
            plan += dims(value)
        plan += [cells[at] for at in self.constants.values()]
        plan += [number for stage in stages for number in stage.numbers]
        attributes = [ir.AttrInt64s("plan", plan)]
        if self.constants:
            values = [struct.unpack("f", key)[0] for key in self.constants]
            attributes.append(ir.AttrFloat32s("values", values))
        return ir.Node(DOMAIN, "FusedChannels", list(self.inputs), attributes,
                       num_outputs=len(shown), name=name)  # fmt: skip

    def roots(self, shown: Sequence[ir.Value], stage: int) -> tuple[_Links, _Links]:
        """What a stage sums up into which cells, and what it writes as which outputs."""
        sums = [
            (r.of, i)
            for i, r in enumerate(self.registers)
            if r.of is not None and r.stage == stage + 1
        ]
        written = [
            (at, i)
            for i, at in enumerate(self.known[v] for v in shown)
            if not self.registers[at].is_cell and self.registers[at].stage == stage
        ]
        return sums, written

    def needed(self, roots: Iterable[int], known: Container[int] = ()) -> list[int]:
        """The operations on tiles that roots are made of, in order, if some are known."""
        found, left = set[int](), list(roots)
        while left:
            at = left.pop()
            register = self.registers[at]
            is_made = not register.is_cell and register.operation is not None
            if is_made and at not in found and at not in known:
                found.add(at)
                left += register.operands
        return sorted(found)

    def _kept(self, shown: Sequence[ir.Value]) -> dict[int, int]:
        """What stages keep for later ones, and where.

        A stage that would make it again from more tensors finds less of them in the cache.
        """
        kept = dict[int, int]()
        for stage in range(1, self._last() + 1):
            roots = [at for links in self.roots(shown, stage) for at, _ in links]
            steps = self.needed(roots, kept)
            here = [at for at in steps if self.registers[at].stage == stage]
            used = {o for at in here for o in self.registers[at].operands} | set(roots)
            used = {o for o in used if not self.registers[o].is_cell and o not in here}
            read = {o for at in steps for o in self.registers[at].operands} | used
            tensors = {o for o in self.inputs.values() if not self.registers[o].is_cell}
            sources = read & (tensors | set(kept))
            made = sorted(used - sources)
            if len(used) < len(sources) and len(made) * self.extent.block <= _MOST_KEPT:
                kept |= {at: len(kept) + i for i, at in enumerate(made)}
        return kept

    def _kind(self, value: ir.Value) -> int:
        """Whether an operand is full, of cells, or one number."""
        size = math.prod(dims(value))
        kinds = {1: ONE, self.extent.channels: CELLS, self.extent.total: FULL}
        return kinds[size]

    def _cells(self) -> list[int]:
        return [i for i, r in enumerate(self.registers) if r.is_cell]

    def _last(self) -> int:
        """The last stage that computes anything."""
        return max(r.stage for r in self.registers if r.is_cell or r.operation is not None)

    def _once(self, register: _Register) -> int:
        if register not in self._made:
            self._made[register] = self._new(register)
        return self._made[register]

    def _new(self, register: _Register) -> int:
        self.registers.append(register)
        return len(self.registers) - 1


class _Stage:
    """One stage as numbers: cells first, then all that its sums and outputs are made of."""

    def __init__(
        self,
        program: ChannelProgram,
        cells: dict[int, int],
        stage: int,
        shown: Sequence[ir.Value],
        kept: dict[int, int],
    ) -> None:
        self.registers, self.places, self.place = program.registers, 0, dict[int, int]()
        sums, written = program.roots(shown, stage)
        keeps = [at for at in kept if self.registers[at].stage == stage]
        roots = [*(at for at, _ in (*sums, *written)), *keeps]
        known = {at for at in kept if self.registers[at].stage < stage}
        steps = program.needed(roots, known)
        operands = dict.fromkeys(o for at in steps for o in self.registers[at].operands)
        operands |= dict.fromkeys(roots)
        number = {at: i for i, at in enumerate(program.inputs.values())}
        reads = [(number[at], self._own(at)) for at in operands
                 if at in number and at not in cells]  # fmt: skip
        spreads = [(cells[at], self._own(at)) for at in operands if at in cells]
        recalls = [(kept[at], self._own(at)) for at in operands if at in known]
        writes, copies = self._outputs(written, steps)
        keeping, more = self._outputs([(at, kept[at]) for at in keeps], steps)
        copies += more
        code = self._allocated(steps, set(roots))
        code += [[COPY, to, *[self.place[at]] * 3] for to, at in copies]
        summed = [(self.place[at], cells[to]) for at, to in sums]
        on_cells = self._on_cells(cells, stage)
        tables = (on_cells, reads, spreads, writes, recalls, keeping, code, summed)
        self.numbers = [n for t in tables for n in (len(t), *(n for row in t for n in row))]

    def _on_cells(self, cells: dict[int, int], stage: int) -> list[list[int]]:
        """The operations on cells that this stage begins with."""
        return [
            [r.operation, cells[i], *(cells[o] for o in _three(r.operands))]
            for i, r in enumerate(self.registers)
            if r.is_cell and r.operation is not None and r.stage == stage
        ]

    def _own(self, at: int | None) -> int:
        """A place of its own, for a register or for none."""
        self.places += 1
        if at is not None:
            self.place[at] = self.places - 1
        return self.places - 1

    def _outputs(
        self, written: Sequence[tuple[int, int]], steps: Sequence[int]
    ) -> tuple[_Links, _Links]:
        """Outputs with their places, and the places of those that are copies of registers."""
        writes, copies = _Links(), _Links()
        for at, output in written:
            if at in steps and at not in self.place:
                writes.append((output, self._own(at)))
            else:  # an output has memory of its own
                writes.append((output, self._own(None)))
                copies.append((writes[-1][1], at))
        return writes, copies

    def _allocated(self, steps: Sequence[int], kept: set[int]) -> list[list[int]]:
        """The operations with places; those without one give theirs back after their last use."""
        last = {o: at for at in steps for o in (*self.registers[at].operands, at)}
        fixed, free = set(self.place) | kept, list[int]()
        code = list[list[int]]()
        for at in steps:
            register = self.registers[at]
            if at not in self.place:
                self.place[at] = free.pop() if free else self._own(None)
            operands = [self.place[o] for o in _three(register.operands)]
            code.append([int(register.operation or 0), self.place[at], *operands])
            ended = {o for o in (*register.operands, at) if o not in fixed and last[o] == at}
            free += [self.place[o] for o in ended]
        return code


def _three(operands: tuple[int, ...]) -> tuple[int, ...]:
    return (*operands, *(operands[:1] * 2))[:3]
