"""Nodes that stand for what processes pass between them: no runtime has them, no model keeps them.

The pairs of what processes have of a value, and what it takes to have another. S(i): its own part
along axis i. B: all of it. P: a part of a sum. @r: process r has all of it, the others nothing.

| from, to | S(j) | B | P | @t |
|---|---|---|---|---|
| S(i) | all-to-all; nothing if i is j | all-gather | zeros around its own | gather |
| B | its own part | nothing | the first one's, zeros elsewhere | nothing |
| P | reduce-scatter | all-reduce | nothing | reduce |
| @s | scatter | broadcast | zeros elsewhere | send and receive; nothing if s is t |

The gradient goes the other way: of an all-gather a reduce-scatter, of a broadcast a reduce, of an
all-reduce an all-reduce, as every process has a part of the gradient of what all have.

Rows that are looked up in a table go by their owners: of a P whose elements are zeros but at the
process that keeps the row, each process sends its rows to those that read them, which makes S(j),
and their gradients come back. Every process knows all indices, and so who sends how much.
"""

from dataclasses import dataclass
from typing import Literal

import onnx_ir as ir

from flow2onnx.graph.nodes import attribute

__all__ = ["TRANSFER_DOMAIN", "Kind", "Transfer", "transfer_node", "transfer_of"]

TRANSFER_DOMAIN = "flow2onnx"

Kind = Literal[
    "all_to_all", "all_gather", "place_part", "gather",
    "own_part", "first_alone", "only",
    "reduce_scatter", "all_reduce", "reduce",
    "scatter", "broadcast", "fill", "send",
    "all_max",
    "to_readers", "to_owners",
]  # fmt: skip
# Each with its gradient; what has two numbers has them the other way round in it.
_BACK: dict[str, Kind] = {
    "all_to_all": "all_to_all",
    "all_gather": "reduce_scatter",
    "reduce_scatter": "all_gather",
    "place_part": "own_part",
    "own_part": "place_part",
    "gather": "scatter",
    "scatter": "gather",
    "first_alone": "first_alone",
    "only": "fill",
    "fill": "only",
    "all_reduce": "all_reduce",
    "reduce": "broadcast",
    "broadcast": "reduce",
    "send": "send",
    "to_readers": "to_owners",
    "to_owners": "to_readers",
}


@dataclass(frozen=True)
class Transfer:
    """A transfer of a value of `shape`, from axis or process `source` to `target`.

    Rows of a table go "to_readers" from `source` owned rows to their axis `target`; "to_owners"
    has the two the other way round. Both have the indices beside the value.
    """

    kind: Kind
    shape: tuple[int, ...]
    source: int = -1
    target: int = -1

    @property
    def back(self) -> "Transfer | None":
        """The transfer of the gradient; None where there is none."""
        kind = _BACK.get(self.kind)
        return None if kind is None else Transfer(kind, self.shape, self.target, self.source)

    @property
    def is_between_two(self) -> bool:
        """True where two processes take part, and not all."""
        return self.kind == "send"

    @property
    def text(self) -> str:
        """All that it is, in a word."""
        return f"{self.kind} {self.source} {self.target} {'x'.join(map(str, self.shape))}"


def transfer_node(transfer: Transfer, value: ir.Value, indices: ir.Value | None = None) -> ir.Node:
    """The node of a transfer, without the name and the shape of what comes out."""
    values = [value] if indices is None else [value, indices]
    text = ir.AttrString("transfer", transfer.text)
    node = ir.Node(TRANSFER_DOMAIN, transfer.kind, values, [text], num_outputs=1)
    node.outputs[0].type = value.type
    return node


def transfer_of(node: ir.Node) -> Transfer | None:
    """The transfer that a node stands for; None for one that computes."""
    if node.domain != TRANSFER_DOMAIN:
        return None
    kind, source, target, shape = attribute(node, "transfer").split(" ")
    sizes = tuple(int(size) for size in shape.split("x") if size)
    return Transfer(kind, sizes, int(source), int(target))
