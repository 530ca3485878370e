"""Settings given as dicts: their keys, the kinds and defaults of their fields."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flow2onnx_runtime.spelling import spelling_hint

from flow2onnx.config.kinds import (
    BOOL,
    FLOAT,
    INT,
    NATURAL,
    POSITIVE,
    STR,
    Kind,
    failure,
    wrong_value,
)

__all__ = [
    "EXPERIMENTAL_RUN",
    "INDEXED_SLICES",
    "INITIALIZER",
    "MODEL_UPDATE",
    "REQUIRED",
    "Choice",
    "Field",
    "Listed",
    "Message",
    "Texts",
]


@dataclass(frozen=True)
class Choice:
    """One of a few names; an int selects by position where the protocol had an enum."""

    names: tuple[str, ...]
    numbered: bool = False

    @property
    def accepts(self) -> str:
        """The names."""
        listed = " or ".join(map(repr, self.names))
        return f"{listed}, or its number from 0" if self.numbered else listed

    def check(self, flag: str, value: object) -> object:
        """The name chosen."""
        if type(value) is str and value in self.names:
            return value
        if self.numbered and type(value) is int and 0 <= value < len(self.names):
            return self.names[value]
        raise wrong_value(flag, self, value)


@dataclass(frozen=True)
class Listed:
    """A list or tuple of items of one kind, kept as a tuple."""

    item: Kind

    @property
    def accepts(self) -> str:
        """The kind of the items."""
        return f"a list, each item {self.item.accepts}"

    def check(self, flag: str, value: object) -> object:
        """The items, each checked."""
        if type(value) not in (list, tuple):
            raise wrong_value(flag, self, value)
        items: list[object] | tuple[object, ...] = value  # type: ignore[assignment]  # just checked
        return tuple(self.item.check(f"{flag}[{i}]", item) for i, item in enumerate(items))


@dataclass(frozen=True)
class Texts:
    """A dict of texts by dotted name, as the runtime's own settings have them.

    `example` is a name; with `groups`, a name begins with one of them.
    """

    example: str
    groups: tuple[str, ...] = ()

    @property
    def accepts(self) -> str:
        """The shape of the dict."""
        return f"a dict of str by dotted name, such as {{{self.example!r}: '1'}}"

    def check(self, flag: str, value: object) -> object:
        """A copy, each name and text checked."""
        if type(value) is not dict:
            raise wrong_value(flag, self, value)
        for name, text in value.items():
            STR.check(f"a name of {flag}", name)
            STR.check(f"{flag} {name!r}", text)
            if self.groups and name.partition(".")[0] not in self.groups:
                listed = " or ".join(f"{group!r}" for group in self.groups)
                raise failure(f"{flag}: {name!r} does not begin with {listed} and a dot",
                              spelling_hint(name.partition(".")[0], self.groups, None))  # fmt: skip
        return dict(value)


REQUIRED = object()
_ABSENT = object()


@dataclass(frozen=True)
class Field:
    """One entry of a message: its kind and default, REQUIRED, or none at all."""

    kind: Kind
    default: object = _ABSENT


@dataclass(frozen=True)
class Message:
    """A dict with known keys, as the fields of a protocol message.

    `one_of` lists groups of keys that exclude each other; of `exactly_one` there must be one.
    """

    fields: Mapping[str, Field] = field(default_factory=dict)
    one_of: tuple[tuple[str, ...], ...] = ()
    exactly_one: tuple[str, ...] = ()

    @property
    def accepts(self) -> str:
        """The keys."""
        return f"a dict with the keys {', '.join(self.fields)}" if self.fields else "an empty dict"

    def check(self, flag: str, value: object) -> object:
        """A new dict with every field checked and the defaults of scalar fields filled in."""
        if type(value) is not dict:
            raise wrong_value(flag, self, value, "pass a dict, such as {'naive_conf': {}}")
        self._check_keys(flag, value)
        kept = {k: f.kind.check(f"{flag}.{k}", value[k]) for k, f in self._present(value)}
        missing = {k: f.default for k, f in self.fields.items() if k not in value}
        for key in (k for k, default in missing.items() if default is REQUIRED):
            raise failure(f"{flag} needs the key {key!r}, which takes {self._accepts(key)}")
        return kept | {k: d for k, d in missing.items() if d is not _ABSENT}

    def _present(self, value: Mapping[str, object]) -> list[tuple[str, Field]]:
        return [(k, f) for k, f in self.fields.items() if k in value]

    def _accepts(self, key: str) -> str:
        return self.fields[key].kind.accepts

    def _check_keys(self, flag: str, value: Mapping[object, object]) -> None:
        for key in value:
            if key not in self.fields:
                raise failure(
                    f"{flag} has no key {key!r}; it takes {self.accepts}", self._near(key)
                )
        for group in (*self.one_of, self.exactly_one):
            both = [key for key in group if key in value]
            if len(both) > 1:
                raise failure(f"{flag} takes one of {', '.join(group)}; got {', '.join(both)}")
        if self.exactly_one and not any(key in value for key in self.exactly_one):
            raise failure(f"{flag} needs one of {', '.join(self.exactly_one)}; got {value!r}")

    def _near(self, key: object) -> str | None:
        return spelling_hint(key, self.fields, None) if isinstance(key, str) else None


_Fields = dict[str, tuple[Kind, object]]


def _message(**fields: tuple[Kind, object]) -> Field:
    return Field(Message({name: Field(*given) for name, given in fields.items()}))


def _one_of(fields: Mapping[str, Field]) -> Message:
    return Message(fields, exactly_one=tuple(fields))


# --- initializers: names and defaults of the protocol -------------------------------------------
_NORM = Choice(("kFanIn", "kFanOut", "kAverage"), numbered=True)
_DISTRIBUTION = Choice(("kRandomUniform", "kRandomNormal", "kTruncatedNormal"), numbered=True)
_FAN: _Fields = {"variance_norm": (_NORM, REQUIRED), "data_format": (STR, REQUIRED)}

INITIALIZER = _one_of(
    {
        "constant_conf": _message(value=(FLOAT, 0.0)),
        "constant_int_conf": _message(value=(INT, 0)),
        "random_uniform_conf": _message(min=(FLOAT, 0.0), max=(FLOAT, 1.0)),
        "random_uniform_int_conf": _message(min=(INT, 0), max=(INT, 1)),
        "random_normal_conf": _message(mean=(FLOAT, 0.0), std=(FLOAT, 1.0)),
        "truncated_normal_conf": _message(mean=(FLOAT, 0.0), std=(FLOAT, 0.05)),
        "xavier_conf": _message(**_FAN),
        "msra_conf": _message(**_FAN),
        "range_conf": _message(start=(FLOAT, 0.0), stride=(FLOAT, 1.0), axis=(INT, -1)),
        "int_range_conf": _message(start=(INT, 0), stride=(INT, 1), axis=(INT, -1)),
        "variance_scaling_conf": _message(
            scale=(FLOAT, REQUIRED), distribution=(_DISTRIBUTION, REQUIRED), **_FAN
        ),
        "empty_conf": _message(),
    }
)

# --- the optimizer of generations a and b -------------------------------------------------------
_BETAS: _Fields = {"beta1": (FLOAT, 0.9), "beta2": (FLOAT, 0.999), "epsilon": (FLOAT, 1e-8)}
_DECAY: _Fields = {"decay_batches": (POSITIVE, REQUIRED)}
_RATE: _Fields = _DECAY | {"decay_rate": (FLOAT, REQUIRED), "staircase": (BOOL, False)}

_OPTIMIZERS: dict[str, Field] = {
    "naive_conf": _message(),
    "momentum_conf": _message(beta=(FLOAT, 0.9)),
    "rmsprop_conf": _message(
        decay_rate=(FLOAT, 0.99), epsilon=(FLOAT, 1e-8), centered=(BOOL, False)
    ),
    "lars_conf": _message(
        momentum_beta=(FLOAT, 0.9), epsilon=(FLOAT, 1e-9), lars_coefficient=(FLOAT, 0.0001)
    ),
    # false up to 0.4, and in the recorded programs; the message of 0.6 says true
    "adam_conf": _message(**_BETAS, do_bias_correction=(BOOL, False), amsgrad=(BOOL, False)),
    "lazy_adam_conf": _message(**_BETAS),
    "lamb_conf": _message(
        beta1=(FLOAT, REQUIRED), beta2=(FLOAT, REQUIRED), epsilon=(FLOAT, REQUIRED)
    ),
    "adagrad_conf": _message(
        lr_decay=(FLOAT, 0.0), initial_accumulator_value=(FLOAT, 0.0), epsilon=(FLOAT, 1e-10)
    ),
}

_LEARNING_RATE_DECAY = _one_of(
    {
        "exponential_conf": _message(**_RATE),
        "inverse_time_conf": _message(**_RATE),
        "natural_exp_conf": _message(**_RATE),
        "piecewise_constant_conf": _message(
            boundaries=(Listed(NATURAL), ()), values=(Listed(FLOAT), ())
        ),
        "polynomial_conf": _message(
            **_DECAY, end_learning_rate=(FLOAT, 0.0001), power=(FLOAT, 1.0), cycle=(BOOL, False)
        ),
        "cosine_conf": _message(**_DECAY, alpha=(FLOAT, 0.0)),
        "linear_cosine_conf": _message(
            **_DECAY, num_periods=(FLOAT, 0.5), alpha=(FLOAT, 0.0), beta=(FLOAT, 0.001)
        ),
        "piecewise_scaling_conf": _message(
            boundaries=(Listed(NATURAL), ()), scales=(Listed(FLOAT), ())
        ),
    }
)

_WARMUP = _one_of(
    {
        "constant_conf": _message(warmup_batches=(NATURAL, REQUIRED), multiplier=(FLOAT, REQUIRED)),
        "linear_conf": _message(
            warmup_batches=(NATURAL, REQUIRED), start_multiplier=(FLOAT, REQUIRED)
        ),
    }
)
_CLIP = _one_of({"clip_by_global_norm": _message(clip_norm=(FLOAT, REQUIRED))})
_PATTERNS = _message(pattern=(Listed(STR), ()))
_WEIGHT_DECAY = Message(
    {
        "weight_decay_rate": Field(FLOAT, REQUIRED),
        "includes": _PATTERNS,
        "excludes": _PATTERNS,
    },
    one_of=(("includes", "excludes"),),
)

MODEL_UPDATE = Message(
    _OPTIMIZERS
    | {
        "learning_rate_decay": Field(_LEARNING_RATE_DECAY),
        "warmup_conf": Field(_WARMUP),
        "clip_conf": Field(_CLIP),
        "weight_decay_conf": Field(_WEIGHT_DECAY),
    },
    exactly_one=tuple(_OPTIMIZERS),
)

# --- the others ---------------------------------------------------------------------------------
INDEXED_SLICES = Message(
    {
        "enable": Field(BOOL, True),
        "include_op_names": Field(Message({"op_name": Field(Listed(STR), ())}), REQUIRED),
    }
)
EXPERIMENTAL_RUN = Message(
    {"piece_num_of_experiment_phase": Field(INT, -1), "enable_experiment_run": Field(BOOL, False)}
)
