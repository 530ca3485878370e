"""Layers: operators together with the variables they own."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flow2onnx.dtypes import DType, float32
from flow2onnx.errors import ArgumentError, UnsupportedError
from flow2onnx.ops import array, conv, nn
from flow2onnx.ops.named_settings import activation_of
from flow2onnx.ops.spatial import Ints, Padding, is_channels_last, per_axis
from flow2onnx.ops.variable import get_variable
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.distribution import Distribute, hint_of, split
from flow2onnx.trace.initializers import Constant, Initializer, VarianceScaling
from flow2onnx.trace.op import Operator, composite
from flow2onnx.trace.variables import Regularizer

__all__ = ["Activation", "activate", "layer_variable"]

Activation = Callable[..., Blob]
_ZERO = Constant(0.0)
_XAVIER = VarianceScaling(1.0, "fan_avg", "random_uniform")


def layer_variable(
    name: str | None,
    suffix: str,
    shape: Sequence[int],
    initializer: Initializer | str,
    regularizer: Regularizer | str | None = None,
    trainable: bool = True,
    full_name: str | None = None,
    dtype: DType = float32,
    distribute: Any = None,
) -> Blob:
    """The variable ``<layer>-<suffix>``, or exactly `full_name`."""
    arguments = {
        "shape": tuple(shape),
        "dtype": dtype,
        "initializer": initializer,
        "regularizer": regularizer,
        "trainable": trainable,
        "model_name": suffix,
        "distribute": distribute,
        "reuse": False,
    }
    if full_name is not None:
        return get_variable.lower(full_name, **arguments)
    with current_job("layers").namespace(str(name)):
        return get_variable.lower(suffix, **arguments)


def activate(x: Blob, activation: Activation | str | None) -> Blob:
    """`x` through the layer's activation, if it has one."""
    function = activation_of(activation)
    if function is None:
        return x
    result = function(x)
    if not isinstance(result, Blob):
        raise ArgumentError(f"activation gave {result!r}", hint="it gives a blob")
    return result


@composite("layers.dense")
def dense(
    inputs: Blob,
    units: int,
    activation: Activation | str | None = None,
    use_bias: bool = True,
    kernel_initializer: Initializer | str | None = None,
    bias_initializer: Initializer | str | None = None,
    kernel_regularizer: Regularizer | str | None = None,
    bias_regularizer: Regularizer | str | None = None,
    trainable: bool = True,
    name: str = "Dense",
    model_distribute: Any = None,
) -> Blob:
    """x Wᵀ + b over the last axis; ``weight`` (units, in) and ``bias`` (units,) are 0 at first."""
    if len(inputs.shape) < 2:
        raise ArgumentError(f"dense needs two dimensions or more, got {inputs.shape}")
    layer = current_job("layers.dense").name_layer(name or "Dense", "Dense")
    fan_in, lead = inputs.shape[-1], inputs.shape[:-1]
    hint = _model_hint(inputs, model_distribute)
    own = partial(layer_variable, layer, trainable=trainable, dtype=inputs.dtype, distribute=hint)
    weight = own("weight", (units, fan_in), kernel_initializer or _ZERO, kernel_regularizer)
    bias = own("bias", (units,), bias_initializer or _ZERO, bias_regularizer) if use_bias else None
    with current_job("layers.dense").namespace(layer):
        x = inputs if len(lead) == 1 else array.reshape(inputs, (-1, fan_in))
        y = array.matmul(x, weight, transpose_b=True, name="matmul")
        y = nn.bias_add(y, bias, name="bias_add") if bias is not None else y
        y = activate(y, activation)
    return y if len(lead) == 1 else array.reshape(y, (*lead, units))


def _model_hint(inputs: Blob, given: Any) -> Distribute | None:
    """The layout that `model_distribute` says; a dense layer's output units alone can be split."""
    hint = hint_of(given)
    if hint is None or hint.kind in ("auto", "broadcast"):
        return None
    if current_job("layers.dense").spread > 1 and (hint != split(0) or len(inputs.shape) != 2):
        raise UnsupportedError(
            f"model_distribute is {hint}, of inputs of {len(inputs.shape)} dimensions",
            hint="flow.distribute.split(0) splits the output units of a layer whose inputs have "
            "two; a kernel of your own may be split on any axis: "
            "flow.get_variable(..., distribute=flow.distribute.split(axis))",
        )
    return hint


def _kernel_shape(
    inputs: Blob, filters: int, kernel: Sequence[int], is_last: bool, groups: int
) -> tuple[int, ...]:
    channels = inputs.shape[-1 if is_last else 1]
    if channels % groups or filters % groups:
        raise ArgumentError(
            f"{groups} groups do not divide {channels} channels and {filters} filters"
        )
    taken = channels // groups
    return (filters, *kernel, taken) if is_last else (filters, taken, *kernel)


def _conv(axes: int, convolve: Callable[..., Blob]) -> Operator[Blob]:
    """Publish the layer of `convolve`, which has `axes` spatial axes."""
    kind = f"Conv{axes}d"

    def layer_of(
        inputs: Blob,
        filters: int,
        kernel_size: Ints,
        strides: Ints,
        padding: Padding,
        data_format: str,
        dilation_rate: Ints | None,
        groups: int,
        activation: Activation | str | None,
        use_bias: bool,
        kernel_initializer: Initializer | str | None,
        bias_initializer: Initializer | str | None,
        kernel_regularizer: Regularizer | str | None,
        bias_regularizer: Regularizer | str | None,
        trainable: bool,
        name: str,
        weight_name: str | None,
        bias_name: str | None,
    ) -> Blob:
        job = current_job(f"layers.conv{axes}d")
        layer = job.name_layer(name or kind, kind)
        shape = _kernel_shape(inputs, filters, per_axis(kernel_size, axes, "kernel_size"),
                              is_channels_last(data_format), groups)  # fmt: skip
        default = _ZERO if job.spec.is_before("0.1.9") else _XAVIER
        own = partial(layer_variable, layer, trainable=trainable, dtype=inputs.dtype)
        kernel = kernel_initializer or default
        weight = own("weight", shape, kernel, kernel_regularizer, full_name=weight_name)
        zero = bias_initializer or _ZERO
        bias = (
            own("bias", (filters,), zero, bias_regularizer, full_name=bias_name)
            if use_bias
            else None
        )
        with job.namespace(layer):
            y = convolve(
                inputs, weight, strides=strides, padding=padding, data_format=data_format,
                dilations=dilation_rate, groups=groups, name="conv",
            )  # fmt: skip
            y = (
                nn.bias_add(y, bias, data_format=data_format, name="bias_add")
                if bias is not None
                else y
            )
            return activate(y, activation)

    layer_of.__name__ = f"conv{axes}d"
    layer_of.__doc__ = (
        f"nn.conv{axes}d with its variables ``weight`` (xavier uniform) and ``bias`` (0)."
    )
    return composite(f"layers.conv{axes}d", catalogued=True)(layer_of)


conv1d, conv2d, conv3d = _conv(1, conv.conv1d), _conv(2, conv.conv2d), _conv(3, conv.conv3d)


@composite("layers.prelu")
def prelu(
    inputs: Blob,
    alpha_initializer: Initializer | str | None = None,
    alpha_regularizer: Regularizer | str | None = None,
    shared_axes: Sequence[int] | None = None,
    trainable: bool = True,
    name: str = "PRelu",
    model_distribute: Any = None,
) -> Blob:
    """x where it is positive, else alpha x; ``alpha`` (0) is one number along `shared_axes`."""
    shape = list(inputs.shape[1:])
    for axis in shared_axes or ():
        if not 1 <= axis < len(inputs.shape):
            raise ArgumentError(f"shared axis {axis} is outside 1 … {len(inputs.shape) - 1}")
        shape[axis - 1] = 1
    layer = current_job("layers.prelu").name_layer(name or "PRelu", "PRelu")
    alpha = layer_variable(
        layer, "alpha", shape, alpha_initializer or _ZERO, alpha_regularizer, trainable,
        dtype=inputs.dtype, distribute=model_distribute,
    )  # fmt: skip
    y: Blob = nn.prelu_by(inputs, alpha, name=layer)
    return y
