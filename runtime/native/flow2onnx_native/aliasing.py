"""Which of the library's operators may overwrite their inputs, for an in-place analysis."""

from collections.abc import Sequence

import onnx_ir as ir

from flow2onnx_native.abi import ChannelsHead, ChannelsOperand, Kind, Mode
from flow2onnx_native.fused_plan import FusedPlan, parse_parts

__all__ = ["index_operands", "overwrites_safely"]

# A table is followed by indices of its rows, and by others: how many from one table to the next.
_OPERANDS = {"AddNamedRows": 2, "AddRows": 3, "PutRows": 3, "Rows": 2}


def index_operands(node: ir.Node) -> list[tuple[int, int, int]]:
    """Each input with indices, which one they point into, and along which axis."""
    if node.op_type == "CrossEntropy":
        return [(1, 0, -1)]
    each = _OPERANDS.get(node.op_type)
    return [] if each is None else [(at + 1, at, 0) for at in range(0, len(node.inputs), each)]


def overwrites_safely(node: ir.Node, places: Sequence[int], output: str) -> bool:
    """True if an output may lie in the memory of the inputs at `places`."""
    position = [v.name for v in node.outputs].index(output)
    if node.op_type in ("Fused", "FusedParts"):
        return _is_of_one_program(parse_parts(node), places, position)
    if node.op_type == "FusedChannels":
        return _is_of_cells(list(node.attributes["plan"].as_ints()), places, position)
    if node.op_type in ("AddRows", "PutRows"):
        return set(places) <= {position * _OPERANDS[node.op_type]}
    return node.op_type == "Product" and set(places) <= {2}  # element upon element


def _is_of_one_program(plans: Sequence[FusedPlan], places: Sequence[int], position: int) -> bool:
    """True if inputs and an output are of one program, which reads before it writes."""
    each, made = len(plans[0].inputs), len(plans[0].outputs)
    part, output = divmod(position, made)
    if part >= len(plans) or any(at // each != part for at in places):
        return False
    return _is_elementwise(plans[part], [at % each for at in places], output)


def _is_elementwise(plan: FusedPlan, places: Sequence[int], position: int) -> bool:
    """True if an output and inputs are whole, and read before the output is written."""
    written, read = plan.outputs[position], [plan.inputs[i] for i in places]
    if any(operand.mode != Mode.FULL for operand in (written, *read)):
        return False
    registers = {operand.at for operand in read}
    writing = [i for i, step in enumerate(plan.steps) if step.to == written.at]
    reading = [i for i, step in enumerate(plan.steps) if registers & {step.a, step.b, step.c}]
    copied = {operand.at for operand in plan.outputs if operand is not written}
    return bool(writing) and not registers & copied and max(reading, default=-1) <= min(writing)


def _is_of_cells(plan: list[int], places: Sequence[int], position: int) -> bool:
    """True if an output and inputs are of one element for each channel.

    Those of a channel are all read before its results are written.
    """
    head = ChannelsHead(*plan[: len(ChannelsHead._fields)])
    width = len(ChannelsOperand._fields)
    ends = len(head) + width * head.inputs
    kinds = plan[len(head) : ends : width]
    at = ends
    for _ in range(position):
        at += width + 1 + plan[at + width]
    return plan[at] == Kind.CELLS and all(kinds[i] == Kind.CELLS for i in places)
