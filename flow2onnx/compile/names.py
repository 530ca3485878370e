"""Names of what goes in and out of a compiled job; inputs and state have the user's names."""

from collections.abc import Collection

from flow2onnx_runtime.manifest import NEXT

from flow2onnx.graph import Value
from flow2onnx.optim.exchange import BUCKET, MOVED, OWN, PARTIAL, RANK, ROWS, SHARD, SUM
from flow2onnx.passes.cut import LINK
from flow2onnx.trace.job import input_name

__all__ = [
    "BUCKET",
    "LINK",
    "MOVED",
    "OWN",
    "PARTIAL",
    "RANK",
    "ROWS",
    "SHARD",
    "SUM",
    "first_value",
    "loss_name",
    "next_name",
    "rename_clashes",
    "result_name",
    "watch_name",
    "written_state",
]


def result_name(index: int) -> str:
    """The output that is a result of the job."""
    return f"out/{index}"


def loss_name(index: int) -> str:
    """The output that shows a loss which is no result."""
    return f"loss/{index}"


def watch_name(index: int, piece: int | None = None) -> str:
    """The output for a watch handler, or for one of the values that the handler gets."""
    return f"watch/{index}" if piece is None else f"watch/{index}/{piece}"


def next_name(state: str) -> str:
    """The output that is the next value of a state tensor."""
    return f"{NEXT}{state}"


def first_value(state: str) -> str:
    """The input of an init model that becomes a tensor of the weights file."""
    return f"stored/{state}"


def written_state(outputs: Collection[Value]) -> tuple[str, ...]:
    """The state tensors that have a next value among the outputs of a model."""
    names = (str(v.name) for v in outputs)
    return tuple(name.removeprefix(NEXT) for name in names if name.startswith(NEXT))


def rename_clashes(
    inputs: Collection[Value], feeds: Collection[str], variables: Collection[str]
) -> dict[str, str]:
    """Rename the feeds that have the name of a variable; returns the new names by the old ones.

    A runtime tells data from state by name; OneFlow never named an input after a parameter.
    """
    renamed = {}
    for value in inputs:
        name = str(value.name)
        if name in feeds and name in variables:
            value.name = renamed[name] = input_name(name)
    return renamed
