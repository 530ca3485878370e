"""Statistics of a batch that each device takes of its own rows, as batch normalisation does."""

import onnx_ir as ir

__all__ = ["are_own_statistics", "mark_own_statistics"]

_KEY = "own statistics"


def mark_own_statistics(value: ir.Value) -> ir.Value:
    """The value, noted as one that devices compute apart and do not add up."""
    node = value.producer()
    assert node is not None, "a statistic is computed"
    node.meta[_KEY] = True
    return value


def are_own_statistics(node: ir.Node) -> bool:
    """True for what `mark_own_statistics` has noted."""
    return _KEY in node.meta
