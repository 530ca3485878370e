"""Notes on nodes that say what they compute, for whoever knows a better way to compute it.

A note is beside the graph, in `meta`: neither files nor any pass know of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["GradientOf", "gradient_noted", "note_gradient"]

_KEY = "flow2onnx.gradient"


@dataclass(frozen=True)
class GradientOf:
    """A value is the gradient for input `position` of a node, from those of its outputs."""

    op_type: str
    attributes: Mapping[str, ir.Attr]
    inputs: tuple[ir.Value | None, ...]
    outputs: tuple[ir.Value, ...]
    gradients: tuple[ir.Value | None, ...]
    position: int


def note_gradient(node: ir.Node, gradients: Sequence[ir.Value | None], made: object) -> None:
    """Say of what a rule of `node` made which gradient it is."""
    parts = made if isinstance(made, tuple | list) else (made,)
    known = {v for v in (*gradients, *node.inputs, *node.outputs) if v is not None}
    for position, part in enumerate(parts):
        maker = part.producer() if isinstance(part, ir.Value) and part not in known else None
        if maker is not None and _KEY not in maker.meta and len(maker.outputs) == 1:
            maker.meta[_KEY] = GradientOf(
                node.op_type, dict(node.attributes), tuple(node.inputs), tuple(node.outputs),
                tuple(gradients), position,
            )  # fmt: skip


def gradient_noted(node: ir.Node) -> GradientOf | None:
    """What is said of the output of a node."""
    noted: GradientOf | None = node.meta.get(_KEY)
    return noted
