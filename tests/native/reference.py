"""Programs of `Fused` and `FusedChannels` in float64: what their plans say, by numpy."""

import math
from collections.abc import Sequence

import numpy as np
from flow2onnx_native.abi import (
    ChannelsHead,
    ChannelsOperand,
    Kind,
    Link,
    Mode,
    Operation,
    Step,
)
from flow2onnx_native.fused_plan import FusedPlan

from tests.native.running import Array

_erf = np.vectorize(math.erf, otypes=[np.float64])
_O = Operation


def apply(operation: int, a: Array, b: Array, c: Array) -> Array:
    """The result of an operation; a truth is 1 or 0."""
    with np.errstate(all="ignore"):
        return _apply(operation, a, b, c)


def _apply(operation: int, a: Array, b: Array, c: Array) -> Array:
    unary = {
        _O.COPY: lambda: a.copy(), _O.NEG: lambda: -a, _O.ABS: lambda: abs(a),
        _O.SQRT: lambda: np.sqrt(a), _O.RECIPROCAL: lambda: 1 / a, _O.EXP: lambda: np.exp(a),
        _O.ERF: lambda: _erf(a), _O.SIGMOID: lambda: 1 / (1 + np.exp(-a)),
        _O.RELU: lambda: np.where(a > 0, a, np.where(np.isnan(a), a, 0)),
        _O.NOT: lambda: a == 0, _O.TRUTH: lambda: a != 0,
        _O.SIGN: lambda: (a > 0) * 1.0 - (a < 0), _O.GELU_SLOPE: lambda: _gelu_slope(a),
        _O.ADD: lambda: a + b, _O.SUB: lambda: a - b, _O.MUL: lambda: a * b, _O.DIV: lambda: a / b,
        _O.GREATER: lambda: a > b, _O.GREATER_EQUAL: lambda: a >= b, _O.LESS: lambda: a < b,
        _O.LESS_EQUAL: lambda: a <= b, _O.EQUAL: lambda: a == b,
        _O.AND: lambda: (a != 0) & (b != 0), _O.OR: lambda: (a != 0) | (b != 0),
        _O.MAX: lambda: np.where((a > b) | np.isnan(a), a, b),
        _O.MIN: lambda: np.where((a < b) | np.isnan(a), a, b),
        _O.WHERE: lambda: np.where(a != 0, b, c),
    }  # fmt: skip
    return np.asarray(unary[_O(operation)](), np.float64)


def _gelu_slope(x: Array) -> Array:
    return 0.5 * (1 + _erf(x / math.sqrt(2))) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def run_fused(plan: FusedPlan, values: Sequence[float], inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a program, of its inputs in float64 and its constants."""
    total, row = plan.head.total, plan.head.row
    index = np.arange(total)
    registers = np.zeros((plan.head.registers, total))
    for operand, x in zip(plan.inputs, inputs, strict=True):
        flat = np.asarray(x, np.float64).reshape(-1)
        is_full = operand.mode == Mode.FULL
        at = index if is_full else index // operand.inner % operand.middle
        registers[operand.at] = flat[at]
    for at, number in zip(plan.constants, values, strict=True):
        registers[at] = number
    for step in plan.steps:
        a, b, c = (registers[i] for i in (step.a, step.b, step.c))
        if step.operation < Operation.ROW_SUM:
            registers[step.to] = apply(step.operation, a, b, c)
        else:
            reduce = np.sum if step.operation == Operation.ROW_SUM else np.mean
            registers[step.to] = np.repeat(reduce(a.reshape(-1, row), axis=1), row)
    outputs = list[Array]()
    for operand, shape in zip(plan.outputs, plan.shapes, strict=True):
        found = registers[operand.at]
        if operand.mode == Mode.SUMMED:
            which = index // operand.inner % operand.middle
            found = np.bincount(which, weights=found, minlength=operand.middle)
        elif operand.mode == Mode.PER_ROW:
            found = found[::row]
        outputs.append(found.reshape(shape))
    return outputs


class _Numbers:
    """The numbers of a plan, one record after another."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self.numbers, self.at = list(numbers), 0

    def take(self, count: int) -> list[int]:
        self.at += count
        return self.numbers[self.at - count : self.at]

    def table(self, record: type) -> list:
        (count,) = self.take(1)
        return [record(*self.take(len(record._fields))) for _ in range(count)]


def run_channels(
    numbers: Sequence[int], values: Sequence[float], inputs: Sequence[Array]
) -> list[Array]:
    """The outputs of a program in stages, of its inputs in float64 and its constants."""
    plan = _Numbers(numbers)
    head = ChannelsHead(*plan.take(len(ChannelsHead._fields)))
    extent = (head.outer, head.channels, head.inner)
    cells = np.zeros((head.cells, head.channels))
    tensors, outputs = dict[int, Array](), list[tuple[ChannelsOperand, list[int]]]()
    for i, x in enumerate(inputs):
        operand = ChannelsOperand(*plan.take(3))
        if operand.kind == Kind.FULL:
            tensors[i] = np.asarray(x, np.float64).reshape(extent)
        else:
            cells[operand.cell] = np.asarray(x, np.float64).reshape(-1)
    for _ in range(head.outputs):
        operand = ChannelsOperand(*plan.take(3))
        outputs.append((operand, plan.take(plan.take(1)[0])))
    for at, number in zip(plan.take(head.constants), values, strict=True):
        cells[at] = number
    made, kept = dict[int, Array](), dict[int, Array]()
    for _ in range(head.stages):
        on_cells, *links, code, sums = (
            plan.table(record) for record in (Step, Link, Link, Link, Link, Link, Step, Link)
        )
        reads, spreads, writes, recalls, keeps = links
        for step in on_cells:
            a, b, c = (cells[i] for i in (step.a, step.b, step.c))
            cells[step.to] = apply(step.operation, a, b, c)
        places = np.zeros((head.places, *extent))
        for link in reads:
            places[link.to] = tensors[link.start]
        for link in spreads:
            places[link.to] = cells[link.start][None, :, None]
        for link in recalls:
            places[link.to] = kept[link.start]
        for step in code:
            a, b, c = (places[i] for i in (step.a, step.b, step.c))
            places[step.to] = apply(step.operation, a, b, c)
        made |= {link.start: places[link.to].copy() for link in writes}
        kept |= {link.start: places[link.to].copy() for link in keeps}
        for link in sums:
            cells[link.to] = places[link.start].sum(axis=(0, 2))
    return [
        (made[i] if operand.kind == Kind.FULL else cells[operand.cell]).reshape(shape)
        for i, (operand, shape) in enumerate(outputs)
    ]
