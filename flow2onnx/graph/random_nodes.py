"""Nodes that draw: what tells two copies of one draw apart."""

import onnx_ir as ir

__all__ = ["has_seed", "reseed"]

_APART = 7919
_LIMIT = 2**24  # the float attribute holds whole numbers below it exactly


def has_seed(node: ir.Node) -> bool:
    """Whether a node draws from a generator with a seed of its own."""
    return "seed" in node.attributes


def reseed(node: ir.Node, number: int) -> None:
    """Let copy `number` of a drawing node draw other values than the node it was copied from."""
    if has_seed(node):
        held = node.attributes["seed"]
        seed = (held.value + _APART * number) % _LIMIT
        node.attributes["seed"] = ir.Attr("seed", held.type, seed)
