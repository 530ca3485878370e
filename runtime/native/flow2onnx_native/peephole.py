"""Instructions of a fused program, and sequences of them that one instruction computes."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flow2onnx_native.abi import Operation

__all__ = ["Instruction", "simplify"]


@dataclass(frozen=True)
class Instruction:
    """One operation; operands and result are numbers of virtual registers, each written once."""

    operation: int
    to: int
    operands: tuple[int, ...]


_X = "x"
# An expression: x, a number, or what an operation makes of operands.
_Pattern: TypeAlias = str | float | tuple[int, "_Pattern"] | tuple[int, "_Pattern", "_Pattern"]
_O = Operation
_COMMUTATIVE = frozenset({_O.ADD, _O.MUL, _O.MAX, _O.MIN})

_U: _Pattern = (_O.MUL, _X, math.sqrt(0.5))
_BELL: _Pattern = (_O.DIV, _U, (_O.EXP, (_O.MUL, _U, _U)))
_CDF: _Pattern = (_O.ADD, (_O.MUL, (_O.ERF, _U), 0.5), 0.5)
_DENSITY: _Pattern = (
    _O.MUL, (_O.EXP, (_O.MUL, (_O.MUL, _X, _X), -0.5)), 1 / math.sqrt(2 * math.pi),
)  # fmt: skip
_TWICE_CDF: _Pattern = (_O.ADD, (_O.ERF, _U), 1.0)
# as gradients of Gelu have it, in either form, and `math.gelu_grad`
_SLOPES: tuple[_Pattern, ...] = (
    (
        _O.ADD,
        (_O.MUL, _BELL, 1 / math.sqrt(math.pi)),
        (_O.MAX, (_O.MIN, _CDF, 1.0), 0.0),
    ),
    (_O.MUL, (_O.ADD, _TWICE_CDF, (_O.MUL, _BELL, 2 / math.sqrt(math.pi))), 0.5),
    (_O.ADD, (_O.MUL, _TWICE_CDF, 0.5), (_O.MUL, _X, _DENSITY)),
)


def simplify(
    code: Sequence[Instruction], constants: Mapping[int, float], results: Iterable[int]
) -> list[Instruction]:
    """Code that leaves the same in the registers `results`, with one instruction for several.

    `constants`: the registers that hold numbers.
    """
    makers = {step.to: step for step in code}
    for x in _operands_of_gelu(makers, constants):
        for step in code:
            if any(_matches(step.to, slope, x, makers, constants) for slope in _SLOPES):
                makers[step.to] = Instruction(_O.GELU_SLOPE, step.to, (x,))
    return _without_dead_code([makers[step.to] for step in code], results)


def _operands_of_gelu(
    makers: Mapping[int, Instruction], constants: Mapping[int, float]
) -> list[int]:
    """The registers x of which a program computes erf(x / sqrt(2))."""
    factors = [s for s in makers.values() if s.operation == _O.MUL]
    read = {s.operands[0] for s in makers.values() if s.operation == _O.ERF}
    return sorted({x for s in factors if s.to in read for x in s.operands if x not in constants})


def _matches(
    at: int,
    pattern: _Pattern,
    x: int,
    makers: Mapping[int, Instruction],
    constants: Mapping[int, float],
) -> bool:
    """True if a register holds the expression of register x."""
    if isinstance(pattern, str):
        return at == x
    if isinstance(pattern, float):
        return constants.get(at) == np.float32(pattern)
    step = makers.get(at)
    if step is None or step.operation != pattern[0]:
        return False
    operands = pattern[1:]
    orders = [operands, operands[::-1]] if pattern[0] in _COMMUTATIVE else [operands]
    return any(
        all(_matches(o, p, x, makers, constants) for o, p in zip(step.operands, order, strict=True))
        for order in orders
    )


def _without_dead_code(code: Sequence[Instruction], results: Iterable[int]) -> list[Instruction]:
    read, live = set(results), list[Instruction]()
    for step in reversed(code):
        if step.to in read:
            read.update(step.operands)
            live.append(step)
    return live[::-1]
