"""Convolutions and their transposes: what becomes of their gradients."""

from flow2onnx.autodiff.registry import vjp
from flow2onnx.autodiff.rules.convolution_input import input_gradient
from flow2onnx.autodiff.rules.convolution_shape import convolution_of, transposed_of
from flow2onnx.autodiff.rules.convolution_weight import weight_gradient
from flow2onnx.graph.types import dims
from flow2onnx.lowering.sums import channel_sum


@vjp("Conv")
def _(b, n, g):
    x, w, *bias = n.inputs
    s = convolution_of(n)
    return input_gradient(b, s, w, g), weight_gradient(b, s, x, g), *_bias_gradient(b, bias, g)


@vjp("ConvTranspose")
def _(b, n, g):
    # the gradient in the input is the convolution that the node transposes
    x, w, *bias = n.inputs
    s = transposed_of(n, g)
    gx = b.Conv(
        g, w, strides=s.strides, dilations=s.dilations, pads=s.before + s.after, group=s.groups
    )
    if dims(gx) != dims(x):  # output_padding or output_shape made room for more windows
        gx = b.Slice(gx, [0] * len(s.kernel), list(s.outputs), s.axes)
    return gx, weight_gradient(b, s, g, x), *_bias_gradient(b, bias, g)


def _bias_gradient(b, bias, g):
    if not bias or bias[0] is None:
        return []
    return [channel_sum(b, None, g)]
