"""Settings of layers by the field's names: activations, initializers, regularizers, as texts.

A text is a name, with settings where there are some: ``"he_normal"``, ``"l2(l2=0.01)"``.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from flow2onnx.errors import ArgumentError
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.call_text import find_entry, known_names
from flow2onnx.trace.initializers import (
    Constant,
    Initializer,
    Normal,
    TruncatedNormal,
    Uniform,
    VarianceScaling,
)
from flow2onnx.trace.registry import operator
from flow2onnx.trace.variables import Regularizer

__all__ = ["activation_of", "initializer_of", "regularizer_of"]

_Kind = TypeVar("_Kind")


def _scaled(scale: float, mode: str, distribution: str) -> Callable[[], Initializer]:
    return lambda: VarianceScaling(scale, mode, distribution)


def _constant(value: float = 0.0) -> Initializer:
    return Constant(value)


def _normal(mean: float = 0.0, stddev: float = 0.05) -> Initializer:
    return Normal(mean, stddev)


def _truncated_normal(mean: float = 0.0, stddev: float = 0.05) -> Initializer:
    return TruncatedNormal(mean, stddev)


def _uniform(minval: float = -0.05, maxval: float = 0.05) -> Initializer:
    return Uniform(minval, maxval)


# Keras's names with Keras's defaults, and torch's: glorot and he are cut at two standard
# deviations there, xavier and kaiming are not.
_INITIALIZERS: dict[str, Callable[..., Initializer]] = {
    "zeros": lambda: Constant(0.0), "ones": lambda: Constant(1.0), "constant": _constant,
    "normal": _normal, "random_normal": _normal, "truncated_normal": _truncated_normal,
    "uniform": _uniform, "random_uniform": _uniform,
    "glorot_uniform": _scaled(1.0, "fan_avg", "random_uniform"),
    "glorot_normal": _scaled(1.0, "fan_avg", "truncated_normal"),
    "xavier": _scaled(1.0, "fan_avg", "random_uniform"),
    "xavier_uniform": _scaled(1.0, "fan_avg", "random_uniform"),
    "xavier_normal": _scaled(1.0, "fan_avg", "random_normal"),
    "he_uniform": _scaled(2.0, "fan_in", "random_uniform"),
    "he_normal": _scaled(2.0, "fan_in", "truncated_normal"),
    "kaiming_uniform": _scaled(2.0, "fan_in", "random_uniform"),
    "kaiming_normal": _scaled(2.0, "fan_in", "random_normal"),
    "lecun_uniform": _scaled(1.0, "fan_in", "random_uniform"),
    "lecun_normal": _scaled(1.0, "fan_in", "truncated_normal"),
}  # fmt: skip


def _l1(l1: float = 0.01) -> Regularizer:
    return Regularizer(l1=l1)


def _l2(l2: float = 0.01) -> Regularizer:
    return Regularizer(l2=l2)


def _l1_l2(l1: float = 0.01, l2: float = 0.01) -> Regularizer:
    return Regularizer(l1, l2)


_REGULARIZERS = {"l1": _l1, "l2": _l2, "l1_l2": _l1_l2}
# Activations by the name of their operator below `flow`; those of other names in the second table.
_ACTIVATIONS = {
    **{n: f"nn.{n}" for n in ("elu", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish",
                              "relu", "relu6", "softmax", "swish")},
    **{n: f"math.{n}" for n in ("exp", "gelu", "sigmoid", "softplus", "tanh")},
    "hard_sigmoid": "nn.hardsigmoid", "hard_swish": "nn.hardswish", "hard_tanh": "nn.hardtanh",
    "log_softmax": "nn.logsoftmax", "logsoftmax": "nn.logsoftmax", "silu": "nn.swish",
}  # fmt: skip
_NONE = ("linear", "identity", "none")


def activation_of(given: Any) -> Callable[[Blob], Any] | None:
    """The activation that a function or a name such as ``"relu"`` stands for; None for linear."""
    if given is None or (isinstance(given, str) and given.lower() in _NONE):
        return None
    if isinstance(given, str):
        found = _ACTIVATIONS.get(given.lower())
        if found is None:
            raise ArgumentError(
                f"there is no activation {given!r}", hint=known_names(given, sorted(_ACTIVATIONS))
            )
        return _with_name(operator(found))
    if not callable(given):
        raise ArgumentError(
            f"activation is {given!r}", hint="give a function such as flow.nn.relu, or 'relu'"
        )
    return _with_name(given)


def _with_name(function: Callable[..., Any]) -> Callable[[Blob], Any]:
    """The function, called with the name ``activation`` where it takes names."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature
        return function
    takes = any(p.name == "name" or p.kind is p.VAR_KEYWORD for p in parameters)
    return (lambda x: function(x, name="activation")) if takes else function


def initializer_of(given: Any) -> Initializer | None:
    """The initializer that an object or a text such as ``"he_normal"`` stands for."""
    hint = "give flow.constant_initializer(0.1), or a name such as 'xavier_uniform'"
    return _setting(given, Initializer, _INITIALIZERS, hint)


def regularizer_of(given: Any) -> Regularizer | None:
    """The regularizer that an object or a text such as ``"l2(l2=0.01)"`` stands for."""
    hint = "give flow.regularizers.l2(0.01), or a text such as 'l2(l2=0.01)'"
    return _setting(given, Regularizer, _REGULARIZERS, hint)


def _setting(
    given: Any, kind: type[_Kind], table: Mapping[str, Callable[..., _Kind]], hint: str
) -> _Kind | None:
    """An object of this kind as it is, a text by the table; ArgumentError for anything else."""
    word = kind.__name__.lower()
    if given is None or isinstance(given, kind):
        return given
    if isinstance(given, str):
        make, settings = find_entry(table, given, word)
        made: _Kind = make(**settings)
        return made
    raise ArgumentError(f"the {word} is a {type(given).__name__}, {given!r}", hint=hint)
