"""JSON objects whose fields have types: each defect is a BundleError that names the field."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from flow2onnx_runtime.errors import BundleError

__all__ = ["MOST", "Fields", "parse_object"]

MOST = 2**53 - 1  # the largest whole number that every JSON parser reads exactly


def parse_object(text: bytes, what: str) -> dict[str, Any]:
    """The JSON object in `text`; `what` names the file in errors."""
    try:
        value = json.loads(
            text.decode("utf-8"), object_pairs_hook=_distinct, parse_int=_whole,
            parse_constant=_no_constant,
        )  # fmt: skip
        if b"\\u" in text:  # by which half a character can come in; nothing encodes that
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{what}: not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise BundleError(f"{what}: holds {_kind(value)}, not an object")
    return value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key!r} appears twice")
        found[key] = value
    return found


def _whole(digits: str) -> int | float:
    return -0.0 if digits == "-0" else int(digits)  # other parsers have it for a fraction


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "a truth value", int: "a number"}
    return "nothing" if value is None else names.get(type(value), f"a {type(value).__name__}")


class Fields:
    """The fields of one JSON object, each read with the type it must have.

    `place` is where the object stands, such as ``manifest.json: state[3]``.
    """

    def __init__(self, place: str, value: object) -> None:
        if not isinstance(value, Mapping):
            raise BundleError(f"{place}: is {_kind(value)}, not an object")
        self.place, self._value = place, value

    def __contains__(self, key: str) -> bool:
        return self._value.get(key) is not None

    def text(self, key: str) -> str:
        """A field of text that is not empty."""
        value = self._get(key, str, "text")
        if not value:
            raise self.error(key, "is empty")
        return str(value)

    def flag(self, key: str) -> bool:
        """A field that is true or false."""
        return bool(self._get(key, bool, "true or false"))

    def number(self, key: str, least: int = 0) -> int:
        """A field that is a whole number of at least `least`."""
        value = self._get(key, int, "a whole number")
        if isinstance(value, bool) or not least <= value <= MOST:
            raise self.error(key, f"is {value}, not a whole number of at least {least}")
        return int(value)

    def items(self, key: str) -> list[Any]:
        """A field that is a list."""
        return list(self._get(key, list, "a list"))

    def each(self, key: str, read: Callable[["Fields"], Any]) -> tuple[Any, ...]:
        """A field that is a list of objects, each read by `read`."""
        items = enumerate(self.items(key))
        return tuple(read(Fields(f"{self.place}: {key}[{i}]", item)) for i, item in items)

    def mapping(self, key: str) -> dict[str, Any]:
        """A field that is an object."""
        return dict(self._get(key, dict, "an object"))

    def objects(self, key: str, read: Callable[["Fields"], Any]) -> dict[str, Any]:
        """A field that is an object of objects, each read by `read`."""
        items = self.mapping(key).items()
        return {k: read(Fields(f"{self.place}: {key}[{k!r}]", v)) for k, v in items}

    def error(self, key: str, reason: str) -> BundleError:
        """The error that the field `key` deserves."""
        return BundleError(f"{self.place}: {key} {reason}")

    def _get(self, key: str, kind: type, asked: str) -> Any:
        if key not in self._value:
            raise self.error(key, "is missing")
        value = self._value[key]
        if not isinstance(value, kind):
            raise self.error(key, f"is {_kind(value)}, not {asked}")
        return value
