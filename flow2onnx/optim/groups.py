"""Parameter groups: patterns of names, and what is different for the variables that they match."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flow2onnx.errors import ArgumentError, spelling_hint
from flow2onnx.optim.settings import is_number
from flow2onnx.trace.call_text import known_names, parse_call

__all__ = ["Group", "Groups", "match_groups", "read_group", "read_groups"]

Groups = Mapping[str | tuple[str, ...], Mapping[str, Any]] | None
_SETTINGS = ("lr", "weight_decay", "frozen", "optimizer")


@dataclass(frozen=True, kw_only=True)
class Group:
    """The variables whose names match one of some shell patterns.

    They have a rate, a decay or an optimizer of their own where these are not None; a frozen group
    is not trained. `names` are the variables, where they are known already.
    """

    patterns: tuple[str, ...]
    names: frozenset[str] | None = None
    lr: float | None = None
    weight_decay: float | None = None
    optimizer: str | None = None
    frozen: bool = False

    @property
    def title(self) -> str:
        """The patterns, as an error shows them."""
        return " ".join(self.patterns)

    def chooses(self, name: str, aliases: Iterable[str]) -> bool:
        """True if a pattern matches a name of the variable."""
        if self.names is not None:
            return name in self.names
        return any(fnmatch.fnmatchcase(n, p) for n in (name, *aliases) for p in self.patterns)


def read_groups(given: Any) -> tuple[Group, ...]:
    """The groups that a mapping from a pattern, or a tuple of patterns, to settings describes."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):
        raise ArgumentError(
            f"groups is {given!r}",
            hint="give a dict such as {'*.bias': {'weight_decay': 0.0, 'lr': 1e-4}}",
        )
    return tuple(_group(patterns, settings) for patterns, settings in given.items())


def read_group(text: str) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The patterns and settings of a text such as ``*.bias norm*: weight_decay=0, lr=1e-4``."""
    patterns, colon, settings = text.rpartition(":")
    try:
        found = parse_call(f"group({settings})", "group")[1]
    except ArgumentError:
        colon = ""
    if not colon or not patterns.split():
        raise ArgumentError(
            f"group {text!r} is not understood",
            hint="write '*.bias norm*: weight_decay=0, lr=1e-4'",
        )
    return tuple(patterns.split()), found


def match_groups(
    groups: Sequence[Group], names: Mapping[str, Sequence[str]]
) -> dict[Group, frozenset[str]]:
    """The variables that each group chooses; none may choose nothing, or what another one does.

    `names` are the variables, each with the other names that it has.
    """
    found: dict[Group, frozenset[str]] = {}
    owners: dict[str, Group] = {}
    known = [n for name, aliases in names.items() for n in (name, *aliases)]
    for group in groups:
        for pattern in group.patterns if group.names is None else ():
            if not fnmatch.filter(known, pattern):
                raise ArgumentError(
                    f"groups: {pattern!r} matches nothing that is trained",
                    hint=known_names(pattern, known),
                )
        found[group] = frozenset(n for n, aliases in names.items() if group.chooses(n, aliases))
        for name in sorted(found[group]):
            if name in owners:
                raise ArgumentError(
                    f"groups: {name} is in two of them, {owners[name].title!r} and {group.title!r}",
                    hint="let each tensor be in one group: make the patterns narrower",
                )
            owners[name] = group
    return found


def _group(patterns: Any, settings: Any) -> Group:
    chosen = (patterns,) if isinstance(patterns, str) else patterns
    if not isinstance(chosen, tuple) or not chosen or not all(isinstance(p, str) for p in chosen):
        raise ArgumentError(
            f"groups: {patterns!r} is no pattern", hint="give a text such as '*.bias', or several"
        )
    if not isinstance(settings, Mapping) or not settings:
        raise ArgumentError(
            f"groups: {' '.join(chosen)!r} has {settings!r}",
            hint=f"give a dict with some of {', '.join(_SETTINGS)}",
        )
    _check_known(settings)
    group = Group(patterns=chosen, **settings)
    _check(group)
    return group


def _check_known(settings: Iterable[Any]) -> None:
    for name in settings:
        if name not in _SETTINGS:
            hint = spelling_hint(str(name), _SETTINGS, f"there are {', '.join(_SETTINGS)}")
            raise ArgumentError(f"groups: there is no setting {name!r}", hint=hint)


def _check(group: Group) -> None:
    for name in ("lr", "weight_decay"):
        value = getattr(group, name)
        if value is not None and not (is_number(value) and value >= 0):
            raise ArgumentError(
                f"groups: {group.title!r} has {name} {value!r}",
                hint="give a float32 number of at least 0",
            )
    if not isinstance(group.frozen, bool):
        raise ArgumentError(f"groups: frozen is {group.frozen!r}", hint="it is True or False")
    if group.optimizer is not None and not isinstance(group.optimizer, str):
        raise ArgumentError(
            f"groups: optimizer is {group.optimizer!r}", hint="give a name such as 'adamw'"
        )
    others = (group.lr, group.weight_decay, group.optimizer)
    if group.frozen and any(v is not None for v in others):
        raise ArgumentError(
            f"groups: {group.title!r} is frozen and has other settings",
            hint="what is frozen is not trained: leave them out",
        )
