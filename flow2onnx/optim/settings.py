"""The ranges of the settings that optimizers and schedules by name have."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_origin

import numpy as np

from flow2onnx.errors import ArgumentError

__all__ = ["LARGEST", "check_own", "check_settings", "is_number"]

LARGEST = float(np.finfo(np.float32).max)  # of the numbers of a step


@dataclass(frozen=True)
class _Range:
    """The values that a setting takes, in words and as a test."""

    words: str
    fits: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """True for a number that is finite in float32, and no truth."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    return is_real and abs(value) <= LARGEST


def _is_rising(value: Any) -> bool:
    steps = list(value) if isinstance(value, list | tuple) else []
    return (
        bool(steps) and all(type(s) is int and s > 0 for s in steps) and steps == sorted(set(steps))
    )


_SIZE = _Range("a float32 number of at least 0", lambda v: is_number(v) and v >= 0)
_POSITIVE = _Range("a float32 number above 0", lambda v: is_number(v) and v > 0)
_FRACTION = _Range("at least 0 and below 1", lambda v: is_number(v) and 0 <= v < 1)
_SHARE = _Range("above 0 and below 1", lambda v: is_number(v) and 0 < v < 1)
_COUNT = _Range("a whole number of at least 1", lambda v: type(v) is int and v >= 1)
_COUNT_OR_NONE = _Range("a whole number of at least 0", lambda v: type(v) is int and v >= 0)
_FLAG = _Range("True or False", lambda v: isinstance(v, bool))
_STEPS = _Range("a rising list of steps, such as [30, 80]", _is_rising)

_BY_NAME = {
    **dict.fromkeys(("beta1", "beta2", "adamw_beta1", "adamw_beta2"), _FRACTION),
    **dict.fromkeys(("alpha", "rho", "momentum", "dampening"), _FRACTION),
    **dict.fromkeys(("div_factor", "final_div_factor", "gamma"), _POSITIVE),
    **dict.fromkeys(("ns_steps", "total_steps", "period", "multiplier"), _COUNT),
    **dict.fromkeys(("step_size", "timescale"), _COUNT),
    "warmup_steps": _COUNT_OR_NONE,
    "milestones": _STEPS,
    "pct_start": _SHARE,
}


def check_settings(record: Any, skipped: Collection[str] = ()) -> None:
    """Raise for a field of a dataclass whose value is out of the range of its name.

    Numbers without a row of their own are at least 0; None is taken where it is the default.
    """
    for setting in fields(record):
        value, name = getattr(record, setting.name), setting.name
        if name in skipped or (value is None and setting.default is None):
            continue
        allowed = _range(name, setting.type)
        if not allowed.fits(value):
            raise ArgumentError(f"{name} is {value!r}", hint=f"it is {allowed.words}")


# OneFlow's optimizers take what torch's do; a momentum of 1 or more is allowed there.
_ONEFLOW = {
    **dict.fromkeys(("beta1", "beta2"), _FRACTION),
    "decay_rate": _Range("from 0 to 1", lambda v: is_number(v) and 0 <= v <= 1),
}


def check_own(name: str, value: Any) -> float | bool:
    """The setting of an optimizer of OneFlow's as a number, or a truth as it is.

    Raises ArgumentError for what is neither, or out of the range of its name.
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    number = float(value) if isinstance(value, int | float | np.number) else value
    allowed = _ONEFLOW.get(name, _SIZE)
    if not allowed.fits(number):
        raise ArgumentError(f"{name} is {value!r}", hint=f"it is {allowed.words}")
    return float(number)


def _range(name: str, kind: Any) -> _Range:
    if kind is bool:
        return _FLAG
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return _Range(" or ".join(map(repr, choices)), lambda v: v in choices)
    return _BY_NAME.get(name, _SIZE)
