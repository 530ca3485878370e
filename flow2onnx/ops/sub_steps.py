"""The time dimension: sub-steps of one call, unrolled in its graph."""

from collections.abc import Callable, Sequence

from flow2onnx.errors import ArgumentError, ShapeError
from flow2onnx.ops.arithmetic import add_n
from flow2onnx.ops.array import concat
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.op import composite
from flow2onnx.trace.sub_steps import SubSteps, parts_of


@composite("repeat")
def repeat(input: Blob, repeat_num: int, name: str | None = None) -> Blob:
    """The same value in each of `repeat_num` sub-steps, as variables are read in all of them."""
    count = _count("repeat_num", repeat_num)
    return SubSteps([part for part in parts_of(input) for _ in range(count)])


@composite("unpack")
def unpack(input: Blob, unpack_num: int, name: str | None = None) -> Blob:
    """Equal pieces along axis 0, one in each of `unpack_num` sub-steps."""
    count = _count("unpack_num", unpack_num)
    if not input.shape or input.shape[0] % count:
        raise ShapeError(
            f"shape {input.shape} has no {count} equal pieces along axis 0",
            hint="give a divisor of the first size",
        )
    rows = input.shape[0] // count
    return SubSteps(
        [part[i * rows : (i + 1) * rows] for part in parts_of(input) for i in range(count)]
    )


@composite("pack")
def pack(input: Blob, pack_num: int, name: str | None = None) -> Blob:
    """The values of `pack_num` sub-steps one behind the other along axis 0."""
    return _combine("pack_num", input, pack_num, lambda parts: concat(parts, 0))


@composite("acc")
def acc(one: Blob, max_acc_num: int, name: str | None = None) -> Blob:
    """The sum of the values of `max_acc_num` sub-steps."""
    return _combine("max_acc_num", one, max_acc_num, add_n)


def _combine(what: str, blob: Blob, number: int, gather: Callable[[Sequence[Blob]], Blob]) -> Blob:
    """One value of each `number` sub-steps; a plain blob where that is one in all."""
    parts, count = list(parts_of(blob)), _count(what, number)
    if len(parts) % count:
        raise ArgumentError(
            f"{what} is {number}, and there are {len(parts)} sub-steps",
            hint="give their number, or a divisor of it",
        )
    found = [gather(parts[i : i + count]) for i in range(0, len(parts), count)]
    return found[0] if len(found) == 1 else SubSteps(found)


def _count(what: str, number: int) -> int:
    if type(number) is not int or number < 1:
        raise ArgumentError(f"{what} is {number!r}", hint="give a whole number of at least 1")
    return number
