"""Texts as tokens: by the tokenizer and the chat template that lie in a model's folder."""

import importlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from flow2onnx_runtime.files import open_file
from flow2onnx_runtime.json_reader import parse_object

from flow2onnx.errors import ArgumentError, BundleError, UnsupportedError

__all__ = ["TOKENIZER", "FolderTokenizer", "open_tokenizer"]

TOKENIZER = "tokenizer.json"
_SETTINGS, _TEMPLATE = "tokenizer_config.json", "chat_template.jinja"
_GENERATION = re.compile(r"(\{%[-+]?\s*)(end)?generation(\s*[-+]?%\})")
_EXTRA = "pip install 'flow2onnx[lora]'"

Message = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class FolderTokenizer:
    """The tokenizer of a folder: `engine` is of the tokenizers library, `template` may be None.

    `special` are the texts of special tokens by their names, such as ``eos_token``.
    """

    engine: Any
    template: Any
    special: Mapping[str, str]
    folder: Path

    def encode(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The tokens of a text, and the places in it that they stand for; none is added."""
        found = self.engine.encode(text, add_special_tokens=False)
        return list(found.ids), list(found.offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return str(self.engine.decode(list(ids)))

    def token(self, name: str) -> int | None:
        """The number of a special token, such as ``eos_token``; None where there is none."""
        text = self.special.get(name)
        found = None if text is None else self.engine.token_to_id(text)
        return None if found is None else int(found)

    def render(self, messages: Sequence[Message], *, asks: bool = False) -> str:
        """The text of a chat; with `asks`, up to where the assistant begins to write."""
        if self.template is None:
            raise ArgumentError(
                f"{self.folder} has no chat template, without which nobody can chat or learn chats",
                hint=f"copy {_TEMPLATE} there; data may be lines of prompt and completion, or of "
                "text, too",
            )
        try:
            return str(
                self.template.render(
                    messages=list(messages), add_generation_prompt=asks, **self.special
                )
            )
        except Exception as error:  # whatever a template raises
            raise ArgumentError(f"the chat template refuses it: {error}") from error


def open_tokenizer(folder: str | os.PathLike[str]) -> FolderTokenizer:
    """The tokenizer in a folder, from ``tokenizer.json``, and the chat template if there is one."""
    place = Path(folder)
    engine = _library("tokenizers")
    with open_file(place / TOKENIZER, f"a model's folder has a {TOKENIZER}") as file:
        content = file.read()
    try:
        made = engine.Tokenizer.from_buffer(content)
    except Exception as error:  # the library's exceptions have no common base
        raise BundleError(
            f"{place / TOKENIZER} is no tokenizer: {error}", hint="copy it again"
        ) from error
    settings: dict[str, Any] = {}
    if (place / _SETTINGS).exists():
        with open_file(place / _SETTINGS) as file:
            settings = parse_object(file.read(), str(place / _SETTINGS))
    return FolderTokenizer(
        engine=made,
        template=_template(place, settings),
        special=_special(settings),
        folder=place,
    )


def _special(settings: Mapping[str, Any]) -> dict[str, str]:
    """The texts of special tokens by name; each is a text, or an object with one."""
    found = {}
    for name, value in settings.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            found[name] = text
    return found


def _template(folder: Path, settings: Mapping[str, Any]) -> Any:
    """The chat template, compiled so that it reaches nothing but what it is given; or None."""
    text = settings.get("chat_template")
    if (folder / _TEMPLATE).exists():
        with open_file(folder / _TEMPLATE) as file:
            text = file.read().decode("utf-8", "replace")
    if isinstance(text, list):  # several by name
        named = {t.get("name"): t.get("template") for t in text if isinstance(t, dict)}
        text = named.get("default")
    if not isinstance(text, str):
        return None
    sandbox = _library("jinja2.sandbox").ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    sandbox.globals |= {"raise_exception": _refuse, "strftime_now": _now}
    sandbox.filters["tojson"] = partial(json.dumps, ensure_ascii=False)  # as no part of a page
    try:
        return sandbox.from_string(_GENERATION.sub(_as_condition, text))
    except Exception as error:  # a template that is none
        raise BundleError(f"{folder}: the chat template is damaged: {error}") from error


def _as_condition(tag: re.Match[str]) -> str:
    """A tag around what the assistant writes, as SmolLM3's template has, as one that is known."""
    before, end, after = tag.groups()
    return f"{before}{'endif' if end else 'if true'}{after}"


def _now(form: str) -> str:
    """The date in a form of strftime; templates call it."""
    return datetime.now().strftime(form)


def _refuse(message: str) -> None:
    """Raise for a chat that a template does not take; templates call it."""
    raise ArgumentError(message)


def _library(name: str) -> Any:
    """A library that texts alone need."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UnsupportedError(
            f"texts need the library {name.partition('.')[0]}, which is not installed", hint=_EXTRA
        ) from None
