"""The kinds of value a setting takes, each with its check."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from flow2onnx.dtypes import dtypes, element_type
from flow2onnx.errors import ConfigError, DTypeError, spelling_hint
from flow2onnx.source import user_frame

__all__ = [
    "AUTO_OR_COUNT",
    "BOOL",
    "DATA_TYPE",
    "FLOAT",
    "INT",
    "MACHINE",
    "NATURAL",
    "NOTHING",
    "PARTS",
    "POSITIVE",
    "POSITIVE_FLOAT",
    "SCOPE",
    "STR",
    "VIEW",
    "Kind",
    "SwitchOr",
    "UnknownSettingError",
    "failure",
    "unknown",
    "wrong_value",
]


_HALF = "call enable_auto_mixed_precision(True) of the job's configuration"
_RATE = "the optimizer has the rate: flow.optimizer.SGD(0.1)"
# What other tools call a setting, and where it is here.
_ELSEWHERE = {
    **dict.fromkeys(("amp", "enable_amp", "fp16", "half", "use_fp16"), _HALF),
    **dict.fromkeys(("learning_rate", "lr", "rate"), _RATE),
    "batch_size": "the shapes of the placeholders have the batch",
    "device": 'flow.scope.placement("gpu", "0:0"), or default_placement_scope',
    "seed": "flow.config.random_seed(n)",
}


class UnknownSettingError(ConfigError, AttributeError):
    """A setting of a name that does not exist; also an AttributeError, so `hasattr` works."""

    def __init__(self, message: str, *, hint: str | None, source: str | None) -> None:
        super().__init__(message, hint=hint, source=source)
        self.obj = None  # keeps Python's own "Did you mean" from being printed after ours


def failure(message: str, hint: str | None = None) -> ConfigError:
    """A `ConfigError` that points at the user's line."""
    return ConfigError(message, hint=hint or _where_to_read(message), source=user_frame())


def unknown(what: str, name: str, known: Iterable[str]) -> UnknownSettingError:
    """The error for a name that `known` does not hold, with the close ones."""
    hint = _ELSEWHERE.get(name) or spelling_hint(name, known, "`flow2onnx flags` lists them all")
    return UnknownSettingError(f"{what} has no setting {name!r}", hint=hint, source=user_frame())


def wrong_value(flag: str, kind: "Kind", value: object, hint: str | None = None) -> ConfigError:
    """The error for a value that is not of the kind a flag takes."""
    got = f"{value!r} ({type(value).__name__})"
    return failure(f"{flag} takes {kind.accepts}; got {got}", hint)


def _where_to_read(flag: str) -> str:
    name = flag.split()[0].rpartition(".")[2]
    return f"`flow2onnx flags {name}` tells what it does"


class Kind(Protocol):
    """The values that a setting takes."""

    @property
    def accepts(self) -> str:
        """The values taken, in words."""
        ...

    def check(self, flag: str, value: object) -> object:
        """The value to keep; raises `ConfigError` naming `flag` where it is not of this kind."""
        ...


@dataclass(frozen=True)
class Scalar:
    """A value of exactly one of `types`, from `least` on."""

    accepts: str
    types: tuple[type, ...]
    least: float | None = None
    above: float | None = None

    def check(self, flag: str, value: object) -> object:
        """The value, when its exact type fits: True is no int, a numpy scalar is no float."""
        if type(value) not in self.types or not self._in_range(value):
            raise wrong_value(flag, self, value)
        return value

    def _in_range(self, value: object) -> bool:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            return True
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
        )


BOOL = Scalar("True or False", (bool,))
STR = Scalar("a str", (str,))
INT = Scalar("an int", (int,))
NATURAL = Scalar("an int from 0", (int,), least=0)
POSITIVE = Scalar("an int from 1", (int,), least=1)
FLOAT = Scalar("a finite float or int", (float, int))
POSITIVE_FLOAT = Scalar("a float or int above 0", (float, int), above=0)


@dataclass(frozen=True)
class SwitchOr:
    """True, False, or one of a few names."""

    names: tuple[str, ...]

    @property
    def accepts(self) -> str:
        """The values, in words."""
        return f"True, False or {' or '.join(map(repr, self.names))}"

    def check(self, flag: str, value: object) -> object:
        """The value, when it is one of these."""
        if type(value) is bool or (type(value) is str and value in self.names):
            return value
        raise wrong_value(flag, self, value)


@dataclass(frozen=True)
class _AutoOrCount:
    accepts: str = "'auto' or a number from 1"

    def check(self, flag: str, value: object) -> object:
        if value == "auto" or (type(value) is int and value >= 1):
            return value
        raise wrong_value(flag, self, value)


@dataclass(frozen=True)
class _Parts:
    accepts: str = "True, False, a number from 2, or names of layers and scopes"

    def check(self, flag: str, value: object) -> object:
        is_number = type(value) is int and value >= 2
        is_list = isinstance(value, list | tuple) and bool(value)
        if is_list and all(isinstance(name, str) and name for name in value):  # type: ignore[attr-defined]  # as is_list says
            return tuple(value)  # type: ignore[arg-type]  # as is_list says
        if type(value) is bool or is_number:
            return value
        raise wrong_value(flag, self, value)


@dataclass(frozen=True)
class _Such:
    """A value for which `holds` is true."""

    accepts: str
    holds: Callable[[Any], bool]
    hint: str | None = None

    def check(self, flag: str, value: object) -> object:
        if not self.holds(value):
            raise wrong_value(flag, self, value, self.hint)
        return value


@dataclass(frozen=True)
class _Machine:
    accepts: str = "an address, or a dict with addr, ctrl_port_agent and data_port_agent"

    def check(self, flag: str, value: object) -> object:
        entry = {"addr": value} if type(value) is str else value
        if type(entry) is not dict or type(entry.get("addr")) is not str:
            raise wrong_value(flag, self, value)
        for key in entry.keys() - {"addr"}:
            if key not in ("ctrl_port_agent", "data_port_agent"):
                raise wrong_value(flag, self, value, f"{key!r} is no key of a machine")
            NATURAL.check(f"{flag}[{key!r}]", entry[key])
        return dict(entry)


@dataclass(frozen=True)
class _DataType:
    accepts: str = f"an element type, {', '.join(f'flow.{dtype.name}' for dtype in dtypes())}"

    def check(self, flag: str, value: object) -> object:
        try:
            return element_type(value)
        except DTypeError as error:
            raise wrong_value(flag, self, value, error.hint) from None


@dataclass(frozen=True)
class _Nothing:
    accepts: str = "no value: it is read-only"

    def check(self, flag: str, value: object) -> object:
        raise failure(f"{flag} cannot be set; it is read-only")


DATA_TYPE = _DataType()
AUTO_OR_COUNT: Kind = _AutoOrCount()
PARTS = _Parts()
SCOPE = _Such(
    "a scope made by flow.scope.placement(...)",
    lambda value: hasattr(value, "device_tag") and hasattr(value, "device_ids"),
    'such as flow.scope.placement("cpu", "0:0")',
)
VIEW = _Such(
    "flow.scope.consistent_view() or flow.scope.mirrored_view()",
    lambda value: getattr(value, "view", None) in ("consistent", "mirrored"),
)
MACHINE = _Machine()
NOTHING = _Nothing()
