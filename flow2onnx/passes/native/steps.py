"""The steps of a fused program, and which of them together are one operation."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from flow2onnx.passes.native.operations import ADD, DIV, ERF, EXP, GELU_SLOPE, MAX, MIN, MUL

__all__ = ["Step", "simplified"]


@dataclass(frozen=True)
class Step:
    """One operation; operands and result are numbers of virtual registers, each written once."""

    operation: int
    to: int
    operands: tuple[int, ...]


_X = "x"
# What a register holds: x, a number, or what an operation makes of operands.
_Form: TypeAlias = str | float | tuple[int, "_Form"] | tuple[int, "_Form", "_Form"]
_COMMUTATIVE = frozenset({ADD, MUL, MAX, MIN})

_U: _Form = (MUL, _X, math.sqrt(0.5))
_BELL: _Form = (DIV, _U, (EXP, (MUL, _U, _U)))
_HALF_SURE: _Form = (ADD, (MUL, (ERF, _U), 0.5), 0.5)
_DENSITY: _Form = (
    MUL, (EXP, (MUL, (MUL, _X, _X), -0.5)), 1 / math.sqrt(2 * math.pi),
)  # fmt: skip
# as gradients of Gelu have it, in either form, and `math.gelu_grad`
_SLOPES: tuple[_Form, ...] = (
    (ADD, (MUL, _BELL, 1 / math.sqrt(math.pi)), (MAX, (MIN, _HALF_SURE, 1.0), 0.0)),
    (MUL, (ADD, (ADD, (ERF, _U), 1.0), (MUL, _BELL, 2 / math.sqrt(math.pi))), 0.5),
    (ADD, (MUL, (ADD, (ERF, _U), 1.0), 0.5), (MUL, _X, _DENSITY)),
)


def simplified(
    steps: Sequence[Step], constants: Mapping[int, float], kept: Iterable[int]
) -> list[Step]:
    """Steps that leave the same in the registers `kept`, fewer where there is one for several.

    `constants`: the registers that hold numbers.
    """
    made = {step.to: step for step in steps}
    for x in _operands_of_gelu(made, constants):
        for step in steps:
            if any(_has(step.to, form, x, made, constants) for form in _SLOPES):
                made[step.to] = Step(GELU_SLOPE, step.to, (x,))
    return _needed([made[step.to] for step in steps], kept)


def _operands_of_gelu(made: Mapping[int, Step], constants: Mapping[int, float]) -> list[int]:
    """The registers x of which a program computes erf(x / sqrt(2))."""
    factors = [s for s in made.values() if s.operation == MUL]
    read = {s.operands[0] for s in made.values() if s.operation == ERF}
    return sorted({x for s in factors if s.to in read for x in s.operands if x not in constants})


def _has(
    at: int, form: _Form, x: int, made: Mapping[int, Step], constants: Mapping[int, float]
) -> bool:
    """Whether a register holds what a form makes of register x."""
    if isinstance(form, str):
        return at == x
    if isinstance(form, float):
        return constants.get(at) == np.float32(form)
    step = made.get(at)
    if step is None or step.operation != form[0]:
        return False
    operands = form[1:]
    orders = [operands, operands[::-1]] if form[0] in _COMMUTATIVE else [operands]
    return any(
        all(_has(o, f, x, made, constants) for o, f in zip(step.operands, order, strict=True))
        for order in orders
    )


def _needed(steps: Sequence[Step], kept: Iterable[int]) -> list[Step]:
    """The steps without those whose results nobody reads."""
    read, found = set(kept), list[Step]()
    for step in reversed(steps):
        if step.to in read:
            read.update(step.operands)
            found.append(step)
    return found[::-1]
