"""Calls written as text, such as ``huber(delta=0.5)``: a name and settings."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from flow2onnx_runtime import call_text

from flow2onnx.errors import ArgumentError, spelling_hint

__all__ = ["find_entry", "known_names", "parse_call"]


def parse_call(text: str, what: str) -> tuple[str, dict[str, Any]]:
    """The name and the keyword arguments in a text, whose values are Python literals."""
    found = call_text.parse_call(text)
    if found is not None:
        return found
    raise ArgumentError(
        f"{what} {text!r} is not understood", hint=f"write {what} or {what}(setting=value)"
    )


def find_entry(
    table: Mapping[str, Callable[..., Any]],
    text: str,
    what: str,
    skipped: int = 0,
    hidden: Collection[str] = (),
    common: Collection[str] = (),
) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The entry of a table that a text names, and its settings, all of which it has.

    The first `skipped` parameters of an entry are no settings, and those called as in `hidden`;
    `common` ones are settings of all entries.
    """
    name, settings = parse_call(text, what)
    entry = table.get(name.lower().replace("-", "_"))
    if entry is None:
        raise ArgumentError(f"there is no {what} {name!r}", hint=known_names(name, table))
    parameters = list(inspect.signature(entry).parameters.values())[skipped:]
    own = [p for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in hidden]
    allowed = [*(p.name for p in own), *common]
    for setting in settings:
        if setting not in allowed:
            have = f"it has {', '.join(allowed)}" if allowed else "it has no settings"
            hint = spelling_hint(setting, allowed, have)
            raise ArgumentError(f"{what} {name} has no setting {setting!r}", hint=hint)
    missing = [p.name for p in own if p.default is p.empty and p.name not in settings]
    if missing:
        raise ArgumentError(
            f"{what} {name} needs {' and '.join(missing)}",
            hint=f"write {name}({', '.join(f'{n}=…' for n in missing)})",
        )
    return entry, settings


def known_names(name: str, known: Iterable[str]) -> str:
    """A hint with the names closest to `name`, or with all of them."""
    names = list(known)
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    listed = f"there are {', '.join(names[:10])}{more}" if names else "there are none"
    return spelling_hint(name, names, listed)
