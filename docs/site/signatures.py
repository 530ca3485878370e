"""Signatures and docstrings as Markdown for Sphinx's Python domain."""

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from sphinx.util.typing import stringify_annotation

__all__ = ["entry", "markdown"]

_LONGEST = 40  # of a default that is shown
_FENCE = "`" * 8
_ARRAY = re.compile(r"ndarray\[(?:tuple\[Any, \.\.\.\]|Any), dtype\[(\w+)\]\]")
_OURS = ("flow2onnx", "flow2onnx_runtime")


def entry(kind: str, name: str, value: Any, *, heading: str = "") -> str:
    """A directive of the Python domain: the name with its signature, and what its docstring says.

    A class has its public methods and properties in it.
    """
    lines = [f"{_FENCE}{{py:{kind}}} {heading or name}", "", markdown(inspect.getdoc(value) or "")]
    return "\n".join([*lines, *(_members(value) if inspect.isclass(value) else ()), _FENCE, ""])


def _members(owner: type) -> Iterator[str]:
    for name in dir(owner):
        value = inspect.getattr_static(owner, name)
        home = next(c for c in owner.__mro__ if name in vars(c))
        if name.startswith("_") or not home.__module__.startswith(_OURS):
            continue
        text = markdown(inspect.getdoc(getattr(value, "__func__", value)) or "")
        if isinstance(value, property):
            yield _member("property", name + _property_type(value.fget), text)
        elif isinstance(value, classmethod | staticmethod) or inspect.isfunction(value):
            yield _member("method", name + signature(getattr(owner, name)), text)


def _member(kind: str, heading: str, text: str) -> str:
    fence = _FENCE[:-1]
    return f"{fence}{{py:{kind}}} {heading}\n\n{text}\n{fence}\n"


def signature(value: Callable[..., Any]) -> str:
    """Parameters with types and defaults as a user writes them, and what comes back."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):  # of a builtin
        return "(...)"
    hints = _hints(value)
    shown = [
        p.replace(annotation=_Text(_type(hints.get(p.name, p.annotation), p.empty)),
                  default=_default(p.default, p.empty))
        for p in found.parameters.values() if p.name != "self"
    ]  # fmt: skip
    shown = [p if p.annotation.text else p.replace(annotation=p.empty) for p in shown]
    text = str(found.replace(parameters=shown, return_annotation=inspect.Signature.empty))
    if inspect.isclass(value):
        return text
    return text + _arrow(hints.get("return", found.return_annotation), found.empty)


class _Text:
    """A text that `inspect` writes as it is."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: Any, empty: Any) -> Any:
    if value is empty:
        return empty
    text = value.__name__ if inspect.isclass(value) or callable(value) else repr(value)
    return _Text("..." if text.startswith("<") or len(text) > _LONGEST else text)


def _hints(value: Any) -> dict[str, Any]:
    function = value.__init__ if inspect.isclass(value) else inspect.unwrap(value)
    try:
        return typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # names that type checkers alone see
        return {}


def _type(annotation: Any, empty: Any) -> str:
    """An annotation without the modules of its names."""
    if annotation is empty:
        return ""
    text = annotation if isinstance(annotation, str) else stringify_annotation(annotation)
    short = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", text).strip("'\"")
    return _ARRAY.sub(r"NDArray[\1]", short)


def _arrow(annotation: Any, empty: Any) -> str:
    text = _type(annotation, empty)
    return f" -> {text}" if text else ""


def _property_type(getter: Callable[..., Any] | None) -> str:
    hints = _hints(getter) if getter is not None else {}
    text = _type(hints.get("return", inspect.Signature.empty), inspect.Signature.empty)
    return f"\n:type: {text}" if text else ""


def markdown(docstring: str) -> str:
    """A docstring as Markdown: examples in fences, and signs that are meant as they stand."""
    parts = re.split(r"\n\s*\n", docstring)
    return "\n\n".join(_example(p) if p.lstrip().startswith(">>>") else _prose(p) for p in parts)


def _example(text: str) -> str:
    return f"```pycon\n{inspect.cleandoc(text)}\n```"


def _prose(text: str) -> str:
    if text.startswith("    "):
        return f"```text\n{inspect.cleandoc(text)}\n```"
    code = re.split(r"(``.+?``|`[^`\n]+`)", text, flags=re.DOTALL)
    return "".join(c if i % 2 else re.sub(r"([*<$|\[\]{}_#~])", r"\\\1", c)
                   for i, c in enumerate(code))  # fmt: skip
