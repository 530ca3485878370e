"""The equation of an Einsum: a letter for every axis of its operands and of its result."""

import string

import onnx_ir as ir

from flow2onnx.graph.nodes import attribute
from flow2onnx.graph.types import rank_of

__all__ = ["einsum_terms"]


def einsum_terms(node: ir.Node) -> tuple[list[str], str]:
    """The letters of every operand and of the result, with letters for what `...` stands for."""
    text = attribute(node, "equation").replace(" ", "")
    left, *right = text.split("->")
    terms = left.split(",")
    operands = [v for v in node.inputs if v is not None]
    free = [c for c in string.ascii_letters if c not in text]
    ranks = [rank_of(v) - len(t) + 3 for v, t in zip(operands, terms, strict=True) if "..." in t]
    more = "".join(free[: max(ranks, default=0)])

    def expand_ellipsis(term: str, rank: int) -> str:
        return term.replace("...", more[len(more) - (rank - len(term) + 3) :] if rank else more)

    if right:
        result = right[0].replace("...", more)
    else:
        once = sorted(c for c in set(left) - set(".,") if left.count(c) == 1)
        result = more + "".join(once)
    full = [
        expand_ellipsis(t, rank_of(v)) if "..." in t else t
        for v, t in zip(operands, terms, strict=True)
    ]
    return full, result
