"""The ends of a Clip, and whether it is a limit or an activation, which saturates on its ends.

The standard has one operator for both. Frameworks differ between them: where an operand equals an
end, ReLU6 and hard tanh have the slope 0 and a clamp has the slope 1 (torch's `hardtanh_backward`
and `clamp_backward`, TensorFlow's `Relu6Grad`). Behind an activation that is 0 in a whole channel
every operand is on an end. What the exporter says of a node goes before what its ends are.
"""

from typing import Any

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.types import constant_of

__all__ = ["is_saturating", "known_end", "mark_saturation"]

_KEY = "saturates"
_FUNCTION = "pkg.torch.onnx.fx_node"
_ACTIVATIONS = ("aten.hardtanh", "aten.relu6")
_RELU6 = [0.0, 6.0]


def known_end(end: ir.Value | None) -> np.ndarray[Any, Any] | None:
    """The content of an end that is the same at every run, else None.

    Torch's exporter casts ends like the operand, which leaves them what they are.
    """
    maker = None if end is None else end.producer()
    is_cast = maker is not None and maker.op_type in ("Cast", "CastLike") and not maker.domain
    return constant_of(maker.inputs[0] if maker is not None and is_cast else end)


def mark_saturation(node: ir.Node, exported: ir.Node) -> None:
    """Mark a Clip that stands for a hard tanh or a ReLU6 of an exported model."""
    if node.op_type == "Clip" and exported.op_type == "Clip" and _is_activation(node, exported):
        node.meta[_KEY] = True


def is_saturating(node: ir.Node) -> bool:
    """True if a Clip was marked: no gradient passes where its operand equals an end."""
    return bool(node.meta.get(_KEY))


def _is_activation(node: ir.Node, exported: ir.Node) -> bool:
    ends = [known_end(end) for end in node.inputs[1:]]
    if len(ends) != 2 or any(end is None for end in ends):
        return False
    function = exported.metadata_props.get(_FUNCTION)
    if function is not None:
        return any(name in function for name in _ACTIVATIONS)
    return [float(x) for end in ends if end is not None for x in end.reshape(-1)] == _RELU6
