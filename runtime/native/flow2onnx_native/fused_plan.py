"""Plans of `Fused` as records: parsed, and written again."""

from collections.abc import Sequence
from typing import NamedTuple

import onnx_ir as ir

from flow2onnx_native.abi import FusedHead, FusedOperand, Mode, Step

__all__ = ["FusedPlan", "parse_fused", "parse_parts"]


class FusedPlan(NamedTuple):
    """The records of a plan, in their order; `shapes` are those of the outputs."""

    head: FusedHead
    inputs: tuple[FusedOperand, ...]
    outputs: tuple[FusedOperand, ...]
    shapes: tuple[tuple[int, ...], ...]
    constants: tuple[int, ...]
    steps: tuple[Step, ...]

    @property
    def has_sums(self) -> bool:
        """True if an output is a sum over elements."""
        return any(o.mode == Mode.SUMMED for o in self.outputs)


def parse_fused(numbers: Sequence[int], start: int = 0) -> tuple[FusedPlan, int]:
    """The plan that begins at `start`, and where it ends."""
    head = FusedHead(*numbers[start : start + len(FusedHead._fields)])
    at, width = start + len(head), len(FusedOperand._fields)
    operands, shapes = list[FusedOperand](), list[tuple[int, ...]]()
    for i in range(head.inputs + head.outputs):
        operands.append(FusedOperand(*numbers[at : at + width]))
        at += width
        if i >= head.inputs:
            rank = numbers[at]
            shapes.append(tuple(numbers[at + 1 : at + 1 + rank]))
            at += 1 + rank
    constants = tuple(numbers[at : at + head.constants])
    at, width = at + head.constants, len(Step._fields)
    end = at + width * head.steps
    steps = tuple(Step(*numbers[i : i + width]) for i in range(at, end, width))
    inputs, outputs = tuple(operands[: head.inputs]), tuple(operands[head.inputs :])
    return FusedPlan(head, inputs, outputs, tuple(shapes), constants, steps), end


def parse_parts(node: ir.Node) -> list[FusedPlan]:
    """The plans of a `Fused` or `FusedParts` node."""
    numbers, at = list(node.attributes["plan"].as_ints()), 0
    plans = list[FusedPlan]()
    while at < len(numbers):
        plan, at = parse_fused(numbers, at)
        plans.append(plan)
    return plans
