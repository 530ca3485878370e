"""Initializers and regularizers under OneFlow's names."""

from flow2onnx.dtypes import DType, float32
from flow2onnx.errors import ArgumentError
from flow2onnx.trace.initializers import (
    Constant,
    Initializer,
    Kaiming,
    Normal,
    TruncatedNormal,
    Uniform,
    VarianceScaling,
)
from flow2onnx.trace.registry import register
from flow2onnx.trace.variables import Regularizer


def constant_initializer(value: float = 0, dtype: DType = float32) -> Initializer:
    """Every element is `value`."""
    return Constant(value)


def zeros_initializer(dtype: DType = float32) -> Initializer:
    """Every element is 0."""
    return Constant(0)


def empty_initializer(dtype: DType = float32) -> Initializer:
    """Any value, where OneFlow leaves memory as it is: every element is 0."""
    return Constant(0)


def ones_initializer(dtype: DType = float32) -> Initializer:
    """Every element is 1."""
    return Constant(1)


def random_uniform_initializer(
    minval: float = 0, maxval: float = 1, dtype: DType = float32
) -> Initializer:
    """Uniform on [minval, maxval); whole numbers for an integer variable."""
    return Uniform(minval, maxval)


def random_normal_initializer(
    mean: float = 0.0, stddev: float = 1.0, seed: None = None, dtype: None = None
) -> Initializer:
    """Normal with this mean and standard deviation."""
    if seed is not None or dtype is not None:
        raise ArgumentError(
            "random_normal_initializer takes no seed and no dtype",
            hint="give random_seed and dtype to get_variable",
        )
    return Normal(mean, stddev)


def truncated_normal_initializer(mean: float = 0.0, stddev: float = 1.0) -> Initializer:
    """Normal, cut at two standard deviations."""
    return TruncatedNormal(mean, stddev)


def truncated_normal(stddev: float = 1.0) -> Initializer:
    """Normal around 0, cut at two standard deviations."""
    return TruncatedNormal(0.0, stddev)


def variance_scaling_initializer(
    scale: float = 1.0,
    mode: str = "fan_in",
    distribution: str = "truncated_normal",
    data_format: str = "",
) -> Initializer:
    """Variance `scale` / fan. `data_format` changes nothing, as in OneFlow from 0.3 on."""
    return VarianceScaling(scale, mode, distribution)


def glorot_uniform_initializer(data_format: str = "") -> Initializer:
    """Uniform with variance 1 / mean of fan-in and fan-out."""
    return VarianceScaling(1.0, "fan_avg", "random_uniform")


def glorot_normal_initializer(data_format: str = "") -> Initializer:
    """Normal with variance 1 / mean of fan-in and fan-out."""
    return VarianceScaling(1.0, "fan_avg", "random_normal")


def kaiming_initializer(
    shape: tuple[int, ...],
    distribution: str = "random_normal",
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    negative_slope: float = 0.0,
    data_format: str = "NCHW",
) -> Initializer:
    """Standard deviation gain / sqrt(fan) of a weight of `shape`."""
    if not isinstance(shape, tuple):
        raise ArgumentError(f"shape is a tuple, got {shape!r}")
    return Kaiming(
        weight_shape=shape,
        distribution=distribution,
        mode=mode,
        nonlinearity=nonlinearity,
        negative_slope=negative_slope,
        data_format=data_format,
    )


def l1(l: float = 0.01) -> Regularizer:  # noqa: E741  # OneFlow's name
    """Adds l sign(w) to the gradient."""
    return Regularizer(l1=l)


def l2(l: float = 0.01) -> Regularizer:  # noqa: E741
    """Adds l w to the gradient."""
    return Regularizer(l2=l)


def l1_l2(l1: float = 0.01, l2: float = 0.01) -> Regularizer:
    """Adds l1 sign(w) + l2 w to the gradient."""
    return Regularizer(l1=l1, l2=l2)


for _initializer in (
    constant_initializer, empty_initializer, glorot_normal_initializer, glorot_uniform_initializer,
    kaiming_initializer, ones_initializer, random_normal_initializer, random_uniform_initializer,
    truncated_normal, truncated_normal_initializer, variance_scaling_initializer, zeros_initializer,
):  # fmt: skip
    register(_initializer.__name__, _initializer)
register("xavier_normal_initializer", glorot_normal_initializer)
register("xavier_uniform_initializer", glorot_uniform_initializer)
for _regularizer in (l1, l2, l1_l2):
    register(f"regularizers.{_regularizer.__name__}", _regularizer)
