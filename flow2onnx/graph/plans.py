"""The format of programs of the native operators `Fused` and `FusedChannels`, as others read it.

A plan is a list of whole numbers. Of `Fused`: eight of them as a head (format, elements, length of
a row, registers, inputs, outputs, constants, steps); five for each input (register, mode, middle,
inner, element type); as many for each output, then its rank and sizes; a register for each
constant; five for each step (operation, result, three operands).

Of `FusedChannels`: eleven (format, sizes before, of and behind channels, places, cells, what is
kept, inputs, outputs, constants, stages); kind and cell of each input and each output, of outputs
rank and sizes too; the rest concerns the kernel alone.
"""

from collections.abc import Sequence

import onnx_ir as ir

__all__ = [
    "CELLS",
    "CHANNELS_FORMAT",
    "FORMAT",
    "FULL",
    "ONE",
    "PER_ROW",
    "SPREAD",
    "SUMMED",
    "overwrites_safely",
]

FORMAT = 1
FULL, SPREAD, PER_ROW, SUMMED = 0, 1, 1, 2  # modes: of inputs the first two, of outputs the others
CHANNELS_FORMAT = 1
CELLS, ONE = 1, 2  # kinds of operands of `FusedChannels` beside FULL
_HEAD, _OPERAND, _STEP = 8, 5, 5
_CHANNELS_HEAD = 11


def overwrites_safely(node: ir.Node, places: Sequence[int], output: str) -> bool:
    """Whether an output may lie in the memory of the inputs at `places`, element upon element.

    It may if both are whole, and no step reads the input once the output is written.
    """
    plan = list(node.attributes["plan"].as_ints())
    if node.op_type == "FusedChannels":
        return _is_of_cells(plan, places, [v.name for v in node.outputs].index(output))
    inputs, outputs, steps = _parts(plan)
    written = outputs[[v.name for v in node.outputs].index(output)]
    read = [inputs[i] for i in places]
    if written[1] != FULL or any(r[1] != FULL for r in read):
        return False
    registers = {r[0] for r in read}
    writing = [i for i, step in enumerate(steps) if step[1] == written[0]]
    reading = [i for i, step in enumerate(steps) if registers & set(step[2:])]
    shown = {o[0] for o in outputs if o is not written}
    return bool(writing) and not registers & shown and max(reading, default=-1) <= min(writing)


def _is_of_cells(plan: list[int], places: Sequence[int], output: int) -> bool:
    """Whether an output and inputs are of one element for each channel.

    Those of a channel are all read before its results are written.
    """
    at = _CHANNELS_HEAD
    kinds = [plan[at + 2 * i] for i in range(plan[_CHANNELS_HEAD - 4])]
    at += 2 * len(kinds)
    for _ in range(output):
        at += 3 + plan[at + 2]
    return plan[at] == CELLS and all(kinds[i] == CELLS for i in places)


def _parts(plan: list[int]) -> tuple[list[list[int]], list[list[int]], list[list[int]]]:
    """The inputs, outputs and steps of a plan."""
    _, _, _, _, inputs, outputs, constants, steps = plan[:_HEAD]
    at, found = _HEAD, list[list[int]]()
    for i in range(inputs + outputs):
        found.append(plan[at : at + _OPERAND])
        at += _OPERAND + (0 if i < inputs else 1 + plan[at + _OPERAND])
    at += constants
    ends = [plan[at + _STEP * i : at + _STEP * (i + 1)] for i in range(steps)]
    return found[:inputs], found[inputs:], ends
