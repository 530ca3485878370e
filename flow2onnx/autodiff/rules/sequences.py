"""Sequences of tensors: whoever reads one reads the tensors that it is made of instead."""

from flow2onnx.autodiff.registry import expansion, no_gradient
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.functions import expand_sequence


@expansion("ConcatFromSequence", "SequenceAt")
def _(b, n):
    try:
        return expand_sequence(b, n, n.inputs)
    except UnsupportedError as error:
        raise no_gradient(n, f"here: {error.message}") from None
