"""Transfers in a job being compiled, with their gradients: what goes to others comes back."""

from functools import partial

from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.transfers import Transfer
from flow2onnx.graph.types import dims
from flow2onnx.trace.job import Job, Region

__all__ = ["move"]


def move(
    job: Job, transfer: Transfer, value: Value, before: Node | None, indices: Value | None = None
) -> Value:
    """The part of a value that processes have after a transfer; its gradient goes the other way."""
    made = job.b.transfer(transfer, value, dims(value), before, indices)
    node = made.producer()
    assert node is not None, "a transfer has a node"
    operands = (value,) if indices is None else (value, indices)
    job.regions[node] = Region(operands, (made,), partial(_back, transfer))
    return made


def _back(
    transfer: Transfer, b: Builder, inputs: tuple[Value, ...], outputs: object, g: Value
) -> tuple[Value | None, ...]:
    back, (value, *indices) = transfer.back, inputs
    made = None if back is None else b.transfer(back, g, dims(value), None, *indices)
    return made, *[None] * len(indices)
