"""`flow.summary` outside jobs: summaries of texts and of hyper-parameters, as messages."""

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from flow2onnx.errors import ArgumentError
from flow2onnx.proto.summary import STRINGS, HParamsPluginData, Summary
from flow2onnx.source import user_frame

__all__ = ["HParam", "IntegerRange", "Metric", "RealRange", "ValueSet", "hparams", "text"]

_KINDS = (int, float, bool, str)


class _Range:
    """The numbers between two of one kind."""

    _kind: type

    def __init__(self, min_value: Any, max_value: Any) -> None:
        for name, value in (("max_value", max_value), ("min_value", min_value)):
            if not isinstance(value, self._kind):
                raise _WrongTypeError(f"{name} is no {self._kind.__name__}: {value!r}")
        if min_value > max_value:
            raise _wrong_value(f"max_value {max_value!r} is below min_value {min_value!r}")
        self.min_value, self.max_value = min_value, max_value


class _WrongTypeError(ArgumentError, TypeError):
    """An argument of another class."""


def _wrong_value(message: str) -> ArgumentError:
    return ArgumentError(message, source=user_frame(), hint="see the hyper-parameter's own values")


class IntegerRange(_Range):
    """The whole numbers from `min_value` to `max_value`."""

    _kind = int


class RealRange(_Range):
    """The floats from `min_value` to `max_value`."""

    _kind = float


class ValueSet:
    """Some values of one kind, sorted."""

    def __init__(self, values: Iterable[Any], dtype: type | None = None) -> None:
        given = list(values)
        kind = type(given[0]) if dtype is None and given else dtype
        if kind not in _KINDS:
            raise _wrong_value(f"values are int, float, bool or str, not {kind!r}")
        wrong = [v for v in given if not isinstance(v, kind)]
        if wrong:
            raise _WrongTypeError(
                f"{wrong[0]!r} is no {kind.__name__}", hint="give values of one kind"
            )
        self.dtype, self.values = kind, sorted(given)


class HParam:
    """A hyper-parameter's name, and the values it may have."""

    def __init__(self, name: str, dtype: IntegerRange | RealRange | ValueSet | None = None) -> None:
        if not isinstance(dtype, IntegerRange | RealRange | ValueSet | None):
            raise _wrong_value(f"{dtype!r} is no IntegerRange, RealRange or ValueSet")
        self.name, self.dtype = name, dtype


class Metric:
    """The name of a result that hyper-parameters are compared by."""

    def __init__(self, name: str, dtype: type | None = None) -> None:
        if dtype not in (None, int, float):
            raise _wrong_value(f"a metric is int or float, not {dtype!r}")
        self.name, self.dtype = name, dtype or float


def text(text: Sequence[str], tag: str | None = None) -> Any:
    """A summary of a list of texts; None for anything else, as in OneFlow."""
    if not isinstance(text, list | tuple) or not text:
        return None
    summary = Summary()
    value = summary.value.add(tag=tag if isinstance(tag, str) else "text")
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.dtype = STRINGS
    value.tensor.tensor_shape.dim.add(size=len(text))
    value.tensor.string_val.extend(line.encode() for line in text)
    return summary


def hparams(hparams: Mapping[Any, Any]) -> Any:
    """A summary of one run's hyper-parameters and metrics: keys are texts, HParams and Metrics."""
    chosen, metrics = _sorted_out(hparams)
    content = HParamsPluginData(version=0)
    start = content.session_start_info
    joined = json.dumps(chosen, sort_keys=True, separators=(",", ":"))
    start.group_name = hashlib.sha256(joined.encode()).hexdigest()
    start.start_time_secs = time.time()
    for name in sorted(chosen):
        _set(start.hparams[name], chosen[name])
    for name, number in metrics.items():
        if not isinstance(number, int | float):
            raise _WrongTypeError(f"metric {name} is {number!r}", hint="give a number")
        start.metrics[name].number_value = number
    summary = Summary()
    value = summary.value.add(tag="_hparams_/session_start_info")
    value.metadata.plugin_data.plugin_name = "hparams"
    value.metadata.plugin_data.content = content.SerializeToString()
    value.tensor.dtype = 1
    value.tensor.tensor_shape.dim.add(size=0)
    return summary


def _sorted_out(given: Mapping[Any, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Hyper-parameters and metrics by name."""
    chosen: dict[str, Any] = {}
    metrics: dict[str, Any] = {}
    for key, value in given.items():
        name = key.name if isinstance(key, HParam | Metric) else key
        if name in chosen or name in metrics:
            raise _wrong_value(f"{name!r} is given twice")
        side = metrics if isinstance(key, Metric) else chosen
        side[name] = value.item() if isinstance(value, np.generic) else value
    return chosen, metrics


def _set(held: Any, value: Any) -> None:
    if isinstance(value, str):
        held.string_value = value
    elif isinstance(value, bool):
        held.bool_value = value
    elif isinstance(value, int | float):
        held.number_value = value
    else:
        raise _WrongTypeError(f"a hyper-parameter is {value!r}", hint="give a text or a number")
