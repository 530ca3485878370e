"""Folding of batch normalisations into convolutions, in models for prediction.

The runtime does so for its own convolutions alone, which others take the place of before.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from flow2onnx_native.graph import is_float, is_standard, number, only_user, replace_value
from flow2onnx_native.node_builder import NodeBuilder

__all__ = ["fold_batch_norms"]

_EPSILON = 1e-5  # that ONNX has


def fold_batch_norms(graph: ir.Graph) -> None:
    """Put a convolution with other weights and bias in the place of one and its normalisation.

    With scale, beta, mean and variance, factor = scale / sqrt(variance + epsilon): the weights
    times factor, and (bias - mean) factor + beta. What computed the results before stays, unread.
    """
    for node in list(graph):
        if is_standard(node, "BatchNormalization"):
            conv = _convolution(node)
            if conv is not None:
                _fold(graph, conv, node)


def _convolution(node: ir.Node) -> ir.Node | None:
    """The convolution that nothing but a normalisation reads, of constants as the latter is."""
    if len(node.outputs) > 1 or number(node, "training_mode", 0) or node.inputs[0] is None:
        return None
    conv = node.inputs[0].producer()
    if conv is None or not is_standard(conv, "Conv", "ConvTranspose"):
        return None
    if only_user(node.inputs[0]) is not node:
        return None
    if conv.op_type == "ConvTranspose" and number(conv, "group", 1) != 1:
        return None
    return conv if _are_constants((*conv.inputs[1:], *node.inputs[1:])) else None


def _are_constants(values: Iterable[ir.Value | None]) -> bool:
    return all(v is None or (v.const_value is not None and is_float(v)) for v in values)


def _fold(graph: ir.Graph, conv: ir.Node, node: ir.Node) -> None:
    scale, beta, mean, variance = (_numbers(v) for v in node.inputs[1:5])
    weight, bias = _numbers(conv.inputs[1]), (*conv.inputs, None)[2]
    factor = scale / np.sqrt(variance + number(node, "epsilon", _EPSILON))
    shift = ((0.0 if bias is None else _numbers(bias)) - mean) * factor + beta
    channels = 0 if conv.op_type == "Conv" else 1  # the axis of the weight with those it makes
    wide = factor.reshape([-1 if axis == channels else 1 for axis in range(weight.ndim)])
    constant = NodeBuilder(graph, node, f"{node.name}/folded").constant
    inputs = [conv.inputs[0], constant(weight * wide, np.float32), constant(shift, np.float32)]
    attributes = conv.attributes.values()
    folded = ir.Node("", conv.op_type, inputs, attributes, num_outputs=1, name=conv.name)
    graph.insert_before(node, folded)
    replace_value(node.outputs[0], folded.outputs[0])


def _numbers(value: ir.Value | None) -> npt.NDArray[np.float64]:
    assert value is not None, "it is there"
    assert value.const_value is not None, "it was asked for"
    return value.const_value.numpy().astype(np.float64)
