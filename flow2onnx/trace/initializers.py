"""Initializers: how the first value of a variable is drawn, as nodes of the init graph."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flow2onnx.dtypes import DType, float32
from flow2onnx.errors import ArgumentError
from flow2onnx.graph import Builder, Value

__all__ = [
    "Constant",
    "Initializer",
    "Kaiming",
    "Normal",
    "TruncatedNormal",
    "Uniform",
    "VarianceScaling",
    "from_conf",
]

# The standard deviation of a unit normal cut at two standard deviations.
_TRUNCATED_STD = 0.87962566103423978
_TWO_SIGMA = math.erf(2 / math.sqrt(2))

# Giles, "Approximating the erfinv function", GPU Computing Gems (2011); highest power first.
_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip


@dataclass(frozen=True)
class Initializer:
    """The first value of a variable: `emit` draws it, from its seed alone."""

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """The first value of a variable of this shape and element type."""
        raise NotImplementedError


@dataclass(frozen=True)
class Constant(Initializer):
    """Every element is `value`."""

    value: float = 0.0

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """A filled tensor."""
        fill = np.asarray([self.value], dtype.numpy)
        return b.ConstantOfShape(np.asarray(shape, np.int64), value=fill)


@dataclass(frozen=True)
class Uniform(Initializer):
    """Uniform on [low, high); whole numbers for integer variables."""

    low: float = 0.0
    high: float = 1.0

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """One uniform draw for each element."""
        if dtype.is_floating_point:
            return _cast(b, _uniform(b, shape, self.low, self.high, seed), dtype)
        return b.Cast(b.Floor(_uniform(b, shape, self.low, self.high, seed)), to=dtype)


@dataclass(frozen=True)
class Normal(Initializer):
    """Normal with this mean and standard deviation."""

    mean: float = 0.0
    stddev: float = 1.0

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """One normal draw for each element."""
        draw = b.RandomNormal(
            shape=shape or (1,), mean=self.mean, scale=self.stddev, seed=seed, dtype=float32
        )
        return _cast(b, draw if shape else b.Reshape(draw, []), dtype)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal with everything beyond two standard deviations drawn again."""

    mean: float = 0.0
    stddev: float = 1.0

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """The inverse distribution function of one uniform draw for each element.

        sqrt(2) erfinv(u) with u uniform on ±erf(2/sqrt 2) is the normal cut at ±2, without any
        redraw; |u| stays below 0.9545, where the central polynomial of Giles holds.
        """
        u = _uniform(b, shape, -_TWO_SIGMA, _TWO_SIGMA, seed)
        w = b.Sub(b.Neg(b.Log(b.Sub(1.0, b.Mul(u, u)))), 2.5)
        p: Value | float = _CENTRE[0]
        for coefficient in _CENTRE[1:]:
            p = b.Add(b.Mul(w, p), coefficient)
        unit = b.Mul(b.Mul(u, p), math.sqrt(2.0))
        return _cast(b, b.Add(b.Mul(unit, self.stddev), self.mean), dtype)


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Variance `scale` / fan.

    OneFlow from 0.3 on counts fan-out as shape[0] * prod(shape[1:-1]) in every layout (a misspelt
    comparison); old hyper-parameters were tuned on that.
    """

    scale: float = 1.0
    mode: str = "fan_in"
    distribution: str = "truncated_normal"

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """The draw of the distribution with that variance."""
        variance = self.scale / max(1.0, _fan(self.mode, shape, shape[1:-1]))
        return self._distribution(variance).emit(b, shape, dtype, seed)

    def _distribution(self, variance: float) -> Initializer:
        if self.distribution == "truncated_normal":
            return TruncatedNormal(0.0, math.sqrt(variance) / _TRUNCATED_STD)
        if self.distribution == "random_normal":
            return Normal(0.0, math.sqrt(variance))
        if self.distribution == "random_uniform":
            limit = math.sqrt(3.0 * variance)
            return Uniform(-limit, limit)
        raise ArgumentError(
            f"distribution {self.distribution!r} is not one of truncated_normal, random_normal, "
            "random_uniform"
        )


_GAINS = {"linear": 1.0, "sigmoid": 1.0, "tanh": 5.0 / 3.0, "relu": math.sqrt(2.0)}


@dataclass(frozen=True, kw_only=True)
class Kaiming(Initializer):
    """Standard deviation gain / sqrt(fan) of a weight of `weight_shape`."""

    weight_shape: tuple[int, ...]
    distribution: str = "random_normal"
    mode: str = "fan_in"
    nonlinearity: str = "leaky_relu"
    negative_slope: float = 0.0
    data_format: str = "NCHW"

    def emit(self, b: Builder, shape: tuple[int, ...], dtype: DType, seed: float) -> Value:
        """The draw, whatever `shape` the variable has."""
        is_channels_last = self.data_format.endswith("C")
        receptive = self.weight_shape[1:-1] if is_channels_last else self.weight_shape[2:]
        std = self._gain() / math.sqrt(_fan(self.mode, self.weight_shape, receptive))
        drawn: Initializer
        if self.distribution == "random_normal":
            drawn = Normal(0.0, std)
        elif self.distribution == "random_uniform":
            drawn = Uniform(-math.sqrt(3.0) * std, math.sqrt(3.0) * std)
        else:
            raise ArgumentError(
                f"distribution {self.distribution!r} is not one of random_normal, random_uniform"
            )
        return drawn.emit(b, shape, dtype, seed)

    def _gain(self) -> float:
        if self.nonlinearity == "leaky_relu":
            return math.sqrt(2.0 / (1.0 + self.negative_slope**2))
        if self.nonlinearity not in _GAINS:
            known = ", ".join([*_GAINS, "leaky_relu"])
            raise ArgumentError(f"nonlinearity {self.nonlinearity!r} is not one of {known}")
        return _GAINS[self.nonlinearity]


_FANS = {"kFanIn": "fan_in", "kFanOut": "fan_out", "kAverage": "fan_avg"}
_DISTRIBUTIONS = {
    "kRandomUniform": "random_uniform",
    "kRandomNormal": "random_normal",
    "kTruncatedNormal": "truncated_normal",
}
# What `default_initializer_conf` describes, by its one key; its fields are checked and complete.
_FROM_CONF: dict[str, Callable[[dict[str, Any]], Initializer]] = {
    **dict.fromkeys(("constant_conf", "constant_int_conf"), lambda c: Constant(c["value"])),
    **dict.fromkeys(("random_uniform_conf", "random_uniform_int_conf"),
                    lambda c: Uniform(c["min"], c["max"])),
    "random_normal_conf": lambda c: Normal(c["mean"], c["std"]),
    "truncated_normal_conf": lambda c: TruncatedNormal(c["mean"], c["std"]),
    "xavier_conf": lambda c: VarianceScaling(1.0, _FANS[c["variance_norm"]], "random_uniform"),
    "msra_conf": lambda c: VarianceScaling(2.0, _FANS[c["variance_norm"]], "random_normal"),
    "variance_scaling_conf": lambda c: VarianceScaling(
        c["scale"], _FANS[c["variance_norm"]], _DISTRIBUTIONS[c["distribution"]]),
    "empty_conf": lambda c: Constant(0.0),
}  # fmt: skip


def from_conf(conf: dict[str, Any]) -> Initializer:
    """The initializer that a configuration dictionary of one key describes."""
    ((key, fields),) = conf.items()
    if key not in _FROM_CONF:
        raise ArgumentError(f"{key!r} is not one of {', '.join(_FROM_CONF)}")
    return _FROM_CONF[key](fields)


def _fan(mode: str, shape: tuple[int, ...], receptive: tuple[int, ...]) -> float:
    """Fan of a weight whose dimension 0 is the output; `receptive` multiplies into fan-out."""
    if len(shape) < 2:
        raise ArgumentError(
            f"a weight of shape {shape} has no fan", hint="give it at least two dimensions"
        )
    fan_in, fan_out = math.prod(shape[1:]), shape[0] * math.prod(receptive)
    fans = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
    if mode not in fans:
        raise ArgumentError(f"mode {mode!r} is not one of {', '.join(fans)}")
    return fans[mode]


def _uniform(b: Builder, shape: tuple[int, ...], low: float, high: float, seed: float) -> Value:
    draw = b.RandomUniform(shape=shape or (1,), low=low, high=high, seed=seed, dtype=float32)
    value: Value = draw if shape else b.Reshape(draw, [])
    return value


def _cast(b: Builder, value: Value, dtype: DType) -> Value:
    return value if dtype is float32 else b.Cast(value, to=dtype)
