"""Effects of settings: what each row of the tables leads to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flow2onnx_runtime.session_options import runtime_names

__all__ = [
    "ALIAS",
    "CALL",
    "IGNORED",
    "LATER",
    "PROVIDER",
    "RECORDED",
    "SESSION",
    "TRACE",
    "UNSUPPORTED",
    "Effect",
    "Values",
    "describe",
    "note",
    "translated",
]

# From a flag's value to the runtime's. A value left out, or mapped to None, leaves the runtime's
# own default alone; no map at all hands the value over as it is.
Values = Mapping[object, object] | Callable[[object], object] | None


@dataclass(frozen=True)
class TRACE:
    """The compiler or the engine reads the value: `what` it decides."""

    what: str


@dataclass(frozen=True)
class SESSION:
    """Fields of the runtime's `Options`, or entries of its session where a name has a dot."""

    settings: tuple[str, ...]
    values: Values = None
    caveat: str = ""


@dataclass(frozen=True)
class PROVIDER:
    """An option of an execution provider; without `option`, asking for the provider itself."""

    provider: str
    option: str | None = None
    values: Values = None
    caveat: str = ""


@dataclass(frozen=True)
class IGNORED:
    """Accepted for compatibility, for good; `unless` are values that hold here anyway."""

    reason: str
    unless: tuple[object, ...] = ()


@dataclass(frozen=True)
class LATER:
    """Recorded, and without effect in this version."""

    reason: str


@dataclass(frozen=True)
class RECORDED:
    """Kept for runs on several devices, and harmless where a job runs on one."""

    reason: str


@dataclass(frozen=True)
class ALIAS:
    """Another name of the flag `of`; `values` go from this flag's values to that flag's."""

    of: str
    values: Mapping[object, object] | None = None

    def forward(self, value: object) -> object:
        """The value of the flag meant."""
        return value if self.values is None else self.values[value]

    def back(self, value: object) -> object:
        """This flag's reading of the value of the flag meant."""
        if self.values is None:
            return value
        return next((mine for mine, theirs in self.values.items() if theirs == value), None)


@dataclass(frozen=True)
class UNSUPPORTED:
    """Setting it raises, except to a value of `unless`; `hint` is the nearest thing that works."""

    reason: str
    hint: str
    unless: tuple[object, ...] = ()


@dataclass(frozen=True)
class CALL:
    """Not a value: a call answered by the method `method` of `Settings`."""

    method: str


Effect = TRACE | SESSION | PROVIDER | IGNORED | LATER | RECORDED | ALIAS | UNSUPPORTED | CALL


def translated(effect: SESSION | PROVIDER, value: object) -> object:
    """The runtime's value for a flag's value, or None to leave the runtime's default alone."""
    if effect.values is None:
        return value
    return effect.values(value) if callable(effect.values) else effect.values.get(value)


def note(effect: Effect, value: object, default: object) -> str | None:
    """The message, shown once, when a flag with this effect is set to `value`."""
    match effect:
        case SESSION(caveat=caveat) | PROVIDER(caveat=caveat) if caveat and value != default:
            return f"is followed in part: {caveat}"
        case IGNORED(reason, unless) if value not in unless:
            return f"has no effect: {reason}"
        case LATER(reason) if value != default:
            return f"is recorded and has no effect in this version: {reason}"
        case RECORDED(reason):
            return f"is recorded and changes nothing here: {reason}"
    return None


def describe(effect: Effect) -> str:
    """One line for the table of flags."""
    match effect:
        case TRACE(what):
            return what
        case SESSION(settings):
            return f"session option {', '.join(n for s in settings for n in runtime_names(s))}"
        case PROVIDER(provider, None):
            return f"asks for {provider}"
        case PROVIDER(provider, option):
            return f"{provider} option {option}"
        case IGNORED(reason):
            return f"none: {reason}"
        case LATER(reason):
            return f"recorded, not built yet: {reason}"
        case RECORDED(reason):
            return f"recorded: {reason}"
        case ALIAS(of):
            return f"sets {of}"
        case UNSUPPORTED(reason):
            return f"refused: {reason}"
        case CALL():
            return "a call, not a value"
