"""Annotations of nodes that say which gradient they compute, for whoever computes it otherwise.

They are beside the graph, in `meta`: neither files nor any pass know of them.
"""

from collections.abc import Mapping, Sequence

import onnx_ir as ir
from flow2onnx_runtime.extensions import GRADIENT_OF, GRADIENT_OF_EXPANDED, GradientOf

__all__ = ["annotate_expanded", "annotate_gradients"]


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


def annotate_expanded(
    node: ir.Node,
    outputs: Sequence[ir.Value],
    gradients: Sequence[ir.Value | None],
    computed: Mapping[ir.Value, Sequence[ir.Value]],
) -> None:
    """Say of what the nodes that stand for `node` computed which of its gradients it is.

    `outputs` are theirs, `computed` is what they added to the gradient of each input. Nothing is
    said where that is no single value of its own: whoever computes it otherwise needs all.
    """
    inputs = [v for v in node.inputs if v is not None]
    makers = [_only_maker(computed[v]) for v in inputs if computed[v]]
    if len(set(inputs)) < len(inputs) or len({m for m in makers if m is not None}) < len(makers):
        return
    for position, value in enumerate(node.inputs):
        maker = _only_maker(computed[value]) if value is not None and computed[value] else None
        if maker is not None:
            maker.meta[GRADIENT_OF_EXPANDED] = GradientOf(
                node.op_type, dict(node.attributes), tuple(node.inputs), tuple(outputs),
                tuple(gradients), position,
            )  # fmt: skip


def _only_maker(parts: Sequence[ir.Value]) -> ir.Node | None:
    """The node that makes the only part and nothing else."""
    maker = parts[0].producer() if len(parts) == 1 else None
    return maker if maker is not None and len(maker.outputs) == 1 else None
