"""Annotations of nodes that say which gradient they compute, for whoever computes it otherwise.

They are beside the graph, in `meta`: neither files nor any pass know of them.
"""

from collections.abc import Sequence

import onnx_ir as ir
from flow2onnx_runtime.extensions import GRADIENT_OF, GradientOf

__all__ = ["annotate_gradients"]


def annotate_gradients(
    node: ir.Node, gradients: Sequence[ir.Value | None], computed: object
) -> None:
    """Say of what a rule of `node` computed which gradient it is."""
    parts = computed if isinstance(computed, tuple | list) else (computed,)
    known = {v for v in (*gradients, *node.inputs, *node.outputs) if v is not None}
    for position, part in enumerate(parts):
        maker = part.producer() if isinstance(part, ir.Value) and part not in known else None
        if maker is not None and GRADIENT_OF not in maker.meta and len(maker.outputs) == 1:
            maker.meta[GRADIENT_OF] = GradientOf(
                node.op_type, dict(node.attributes), tuple(node.inputs), tuple(node.outputs),
                tuple(gradients), position,
            )  # fmt: skip
