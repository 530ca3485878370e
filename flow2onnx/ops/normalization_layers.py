"""Layers that normalise. Batch normalization keeps moving statistics, which train jobs update."""

from functools import partial
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, float16, float32
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Value
from flow2onnx.ops import array, normalization, unary
from flow2onnx.ops.arguments import axis_of
from flow2onnx.ops.arithmetic import add, multiply
from flow2onnx.ops.layers import Activation, activate, layer_variable
from flow2onnx.ops.variable import get_variable
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.initializers import Constant, Initializer
from flow2onnx.trace.job import Job
from flow2onnx.trace.op import Operator, composite
from flow2onnx.trace.variables import Regularizer

_ZERO, _ONE = Constant(0.0), Constant(1.0)


def _parameters_of(x: Blob) -> DType:
    """Half precision is too little for statistics."""
    return float32 if x.dtype == float16 else x.dtype


def _constant(number: float, shape: tuple[int, ...], dtype: DType) -> Blob:
    return Blob(current_job("layers").b.const(np.full(shape, number, dtype.numpy)))


def normalize_by_batch(
    x: Blob,
    axis: int,
    momentum: float,
    epsilon: float,
    gamma: Blob,
    beta: Blob,
    moving_mean: Blob,
    moving_variance: Blob,
) -> tuple[Blob, Blob, Blob]:
    """`x` by its own statistics, which the moving ones follow; mean and 1/deviation."""
    job = current_job("normalization")
    b = job.b
    with b.under(job.full_name("normalization")):
        folded = Blob(normalization.channels_second(b, x.value, axis))
    y, mean, variance, rate = normalization.by_batch(folded, gamma, beta, epsilon)
    with b.under(job.full_name("moving")):
        for moving, now in ((moving_mean, mean), (moving_variance, variance)):
            job.assign(_name_of(job, moving), _follow(job, moving.value, now.value, momentum))
        return y if y.shape == x.shape else Blob(b.Reshape(y.value, list(x.shape))), mean, rate


def _follow(job: Job, moving: Value, now: Value, momentum: float) -> Value:
    return job.b.Add(job.b.Mul(moving, momentum), job.b.Mul(now, 1.0 - momentum))


def _name_of(job: Job, variable: Blob) -> str:
    for name, value in job.values.items():
        if value is variable.value:
            return name
    raise ArgumentError(f"{variable!r} is no variable", hint="statistics move in a variable")


@composite(
    "layers.batch_normalization",
    catalogued=True,
)
def batch_normalization(
    inputs: Blob,
    axis: int,
    momentum: float,
    epsilon: float,
    center: bool,
    scale: bool,
    beta_initializer: Initializer | str | None,
    gamma_initializer: Initializer | str | None,
    beta_regularizer: Regularizer | str | None,
    gamma_regularizer: Regularizer | str | None,
    moving_mean_initializer: Initializer | str | None,
    moving_variance_initializer: Initializer | str | None,
    trainable: bool,
    training: bool,
    name: str,
    gamma_name: str | None,
    beta_name: str | None,
    moving_mean_name: str | None,
    moving_variance_name: str | None,
) -> Blob:
    """Every channel normalised: in train jobs by the batch, else by the moving statistics."""
    job = current_job("layers.batch_normalization")
    layer = job.name_layer(name or "BatchNorm", "BatchNorm")
    axis = axis_of(axis, len(inputs.shape))
    shape, dtype = (inputs.shape[axis],), _parameters_of(inputs)
    if len(inputs.shape) < 2:
        raise ArgumentError(f"batch_normalization needs two dimensions or more, got {inputs.shape}")
    own = partial(layer_variable, layer, shape=shape, dtype=dtype)
    beta = (
        own("beta", initializer=beta_initializer or _ZERO, regularizer=beta_regularizer,
            trainable=trainable, full_name=beta_name)
        if center
        else _constant(0, shape, dtype)
    )  # fmt: skip
    gamma = (
        own("gamma", initializer=gamma_initializer or _ONE, regularizer=gamma_regularizer,
            trainable=trainable, full_name=gamma_name)
        if scale
        else _constant(1, shape, dtype)
    )  # fmt: skip
    mean = own("moving_mean", initializer=moving_mean_initializer or _ZERO, trainable=False,
               full_name=moving_mean_name)  # fmt: skip
    variance = own("moving_variance", initializer=moving_variance_initializer or _ONE,
                   trainable=False, full_name=moving_variance_name)  # fmt: skip
    with job.namespace(layer):
        x = array.cast(inputs, dtype, name="widened") if inputs.dtype != dtype else inputs
        if training and trainable and job.is_trainable:
            y, _, _ = normalize_by_batch(x, axis, momentum, epsilon, gamma, beta, mean, variance)
        else:
            y = normalization.batch_normalization(x, mean, variance, beta, gamma, epsilon, axis)
        return array.cast(y, inputs.dtype, name="narrowed") if inputs.dtype != dtype else y


@composite("layers.batch_normalization_add_relu", like=batch_normalization)
def batch_normalization_add_relu(inputs: Blob, addend: Blob | None = None, **options: Any) -> Blob:
    """max(batch_normalization + addend, 0); the addend may be left out."""
    y = batch_normalization.lower(inputs, **options)
    result: Blob = unary.relu(y if addend is None else add(y, addend))
    return result


@composite("layers.batch_normalization_relu", like=batch_normalization)
def batch_normalization_relu(inputs: Blob, **options: Any) -> Blob:
    """max(batch_normalization, 0)."""
    names = dict.fromkeys(("gamma_name", "beta_name", "moving_mean_name", "moving_variance_name"))
    result: Blob = unary.relu(batch_normalization.lower(inputs, **names, **options))
    return result


@composite("layers.layer_norm")
def layer_norm(
    inputs: Blob,
    center: bool = True,
    scale: bool = True,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    epsilon: float = 1e-05,
    name: str = "LayerNorm",
) -> Blob:
    """nn.layer_norm with its variables ``beta`` (0) and ``gamma`` (1)."""
    job = current_job("layers.layer_norm")
    layer = job.name_layer(name or "LayerNorm", "LayerNorm")
    shape = inputs.shape[axis_of(begin_params_axis, len(inputs.shape)) :]
    beta, gamma = (
        layer_variable(layer, suffix, shape, first, None, trainable, None, inputs.dtype)
        if wanted
        else None
        for suffix, first, wanted in (("beta", _ZERO, center), ("gamma", _ONE, scale))
    )
    with job.namespace(layer):
        y: Blob = normalization.layer_norm(
            inputs, gamma, beta, begin_norm_axis, begin_params_axis, epsilon
        )
        return y


def _by_group(
    kind: str,
    x: Blob,
    groups: int | None,
    eps: float,
    affine: bool,
    name: str | None,
    rank: int | None,
) -> Blob:
    job = current_job(f"nn.{kind}")
    if rank is not None and len(x.shape) != rank:
        raise ArgumentError(f"{kind} takes {rank} dimensions, got {x.shape}")
    if len(x.shape) < 3:
        raise ArgumentError(f"{kind} takes 3 dimensions or more, got {x.shape}")
    groups = x.shape[1] if groups is None else groups
    if not isinstance(groups, int) or groups < 1 or x.shape[1] % groups:
        raise ArgumentError(f"{groups} groups do not divide the channels of {x.shape}")
    layer = name or job.name_op(None, kind)
    gamma, beta = (
        get_variable.lower(f"{layer}_{suffix}", (1, x.shape[1], 1), x.dtype, first, reuse=False)
        if affine
        else None
        for suffix, first in (("gamma", _ONE), ("beta", _ZERO))
    )
    y: Blob = normalization.by_group(x, gamma, beta, groups, eps)
    return y


@composite("nn.GroupNorm")
def group_norm(
    x: Blob, num_groups: int = 32, eps: float = 1e-05, affine: bool = True, name: str | None = None
) -> Blob:
    """The channels of each sample normalised in groups, with variables ``_gamma`` and ``_beta``."""
    return _by_group("GroupNorm", x, num_groups, eps, affine, name, None)


def _instance_norm(axes: int) -> Operator[Blob]:
    """Publish the normalisation of samples with `axes` spatial axes."""

    def norm(x: Blob, eps: float = 1e-05, affine: bool = True, name: str | None = None) -> Blob:
        """Each channel of each sample normalised, with variables ``_gamma`` and ``_beta``."""
        return _by_group(f"InstanceNorm{axes}d", x, None, eps, affine, name, axes + 2)

    norm.__name__ = f"instance_norm_{axes}d"
    return composite(f"nn.InstanceNorm{axes}d")(norm)


instance_norm_1d, instance_norm_2d, instance_norm_3d = map(_instance_norm, (1, 2, 3))


@composite("layers.affine_channel")
def affine_channel(
    inputs: Blob,
    axis: int,
    use_bias: bool = True,
    scale_initializer: Initializer | str | None = None,
    bias_initializer: Initializer | str | None = None,
    activation: Activation | str | None = None,
    trainable: bool = True,
    name: str | None = None,
    model_distribute: Any = None,
) -> Blob:
    """scale x + bias along `axis`, with variables ``scale`` (1) and ``bias`` (0)."""
    job = current_job("layers.affine_channel")
    layer = job.name_layer(name or "AffineChannel", "AffineChannel")
    axis = axis_of(axis, len(inputs.shape))
    shape, spread = (inputs.shape[axis],), [-1] + [1] * (len(inputs.shape) - 1 - axis)
    y = inputs
    for suffix, first, combined in (
        ("scale", scale_initializer or _ONE, multiply),
        ("bias", bias_initializer or _ZERO, add),
    ):
        if suffix == "scale" or use_bias:
            numbers = layer_variable(
                layer, suffix, shape, first, None, trainable, None, inputs.dtype, model_distribute
            )
            y = combined(y, array.reshape(numbers, spread))
    with job.namespace(layer):
        return activate(y, activation)
