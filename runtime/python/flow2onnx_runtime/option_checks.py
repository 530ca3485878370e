"""Checks of names and values that ONNX Runtime would take unchecked or refuse late."""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.spelling import spelling_hint

__all__ = [
    "INTEGER",
    "NAME",
    "NUMBER",
    "SHAPES",
    "SWITCH",
    "TEXT",
    "WORD",
    "Check",
    "check",
    "choice",
    "number_between",
    "options",
]

Check = tuple[str, Callable[[str], bool]]  # what is taken, in words, and whether a text is it
SWITCH: Check = ("'0' or '1'", ("0", "1").__contains__)
NUMBER: Check = ("a whole number as text, such as '1073741824'", str.isdecimal)
INTEGER: Check = ("a whole number as text", lambda text: text.removeprefix("-").isdecimal())
TEXT: Check = ("text", lambda text: True)
NAME: Check = ("text that is not empty", bool)
_SHAPES = re.compile(r"[^:,]+:\d+(x\d+)*(,[^:,]+:\d+(x\d+)*)*")
SHAPES: Check = ("'input:1x3,other:1x5'", lambda text: _SHAPES.fullmatch(text) is not None)


def choice(*names: str) -> Check:
    """One of a few texts."""
    return (" or ".join(map(repr, names)), names.__contains__)


WORD = choice("True", "true", "False", "false")


def number_between(least: int, most: int) -> Check:
    """A whole number, both ends included."""
    words = f"a whole number from {least} to {most} as text"
    return (words, lambda text: INTEGER[1](text) and least <= int(text) <= most)


def options(**rows: Check) -> Mapping[str, Check]:
    """A read-only table of options, each with what it takes."""
    return MappingProxyType(rows)


def check(what: str, name: str, value: str, table: Mapping[str, Check]) -> None:
    """Raise `OptionsError` for a name that a table does not have, or not with `value`."""
    if name not in table:
        raise OptionsError(
            f"{what} {name!r} does not exist",
            hint=spelling_hint(name, table, f"there are {', '.join(sorted(table)) or 'none'}"),
        )
    accepts, takes = table[name]
    if not takes(value):
        raise OptionsError(f"{what} {name!r} takes {accepts}, got {value!r}")
