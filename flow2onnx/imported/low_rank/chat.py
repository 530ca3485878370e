"""Chats with a folder and its adapters, as onnxruntime-genai serves them."""

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import RunError
from flow2onnx_runtime.adapters import ADAPTER_SUFFIX, Adapter, read_adapter, write_adapter
from flow2onnx_runtime.slots import adapter_arrays, adapter_files, slot_rows

from flow2onnx.errors import (
    ArgumentError,
    BundleError,
    UnsupportedError,
    spelling_hint,
)
from flow2onnx.imported.low_rank.dora import complete_dora
from flow2onnx.imported.low_rank.folder import LanguageModel, open_language_model
from flow2onnx.imported.low_rank.greedy import ending_tokens
from flow2onnx.imported.low_rank.samples import served_model
from flow2onnx.imported.low_rank.tokens import FolderTokenizer
from flow2onnx.onnx_io.adapter_slots import slot_inputs

__all__ = ["ChatModel", "Wording", "find_adapters"]

_LIBRARY = "onnxruntime_genai"
_UNFINISHED = "�"  # what a decoder shows of a letter whose bytes have not all come
_LEAST = 2048  # tokens that a generator has room for, so that few chats need a second one

Message = Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class Wording:
    """How an answer is chosen: `most` tokens; the likeliest each time at a temperature of 0."""

    most: int = 512
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ArgumentError(f"an answer of {self.most} tokens", hint="give 1 or more")
        if not 0 <= self.temperature < 100:
            raise ArgumentError(
                f"temperature is {self.temperature}", hint="from 0 up; 0.7 is usual"
            )
        if not 0 < self.top_p <= 1:
            raise ArgumentError(f"top_p is {self.top_p}", hint="a number above 0, up to 1")

    @property
    def options(self) -> dict[str, Any]:
        """The library's search options."""
        if not self.temperature:
            return {"do_sample": False}
        return {
            "do_sample": True, "temperature": self.temperature, "top_p": self.top_p,
            "top_k": 0, "random_seed": self.seed,
        }  # fmt: skip


class ChatModel:
    """A folder opened by onnxruntime-genai, with adapters by name.

    A folder without slots gets some in the folder `place`, which shares its data; it stays as it
    is. Raises UnsupportedError where the library is not installed.
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: FolderTokenizer,
        place: Path,
        adapters: Mapping[str, Adapter] = {},
    ) -> None:
        self._library = _load_library()
        language = open_language_model(folder)
        if not language.has_folder:
            raise BundleError(
                f"{folder} is no folder of onnxruntime-genai", hint="give the folder of the model"
            )
        modules = _modules(language, adapters.values())
        is_dora = any(adapter.is_dora for adapter in adapters.values())
        self._folder = folder
        path = served_model(language, place / "served", modules, factors=is_dora)
        self._slots = slot_inputs(open_language_model(path.parent).proto)
        self._tokenizer, self._place = tokenizer, place
        self._ends = ending_tokens(language, tokenizer)
        self._context = language.context or 2**31 - 1
        self._model = self._opened(path.parent)
        self._loaded = self._library.Adapters(self._model)
        self.names: list[str] = []
        self._generator: Any = None
        self._made_for: tuple[str | None, Wording, int] | None = None
        for name, adapter in adapters.items():
            self.add(name, adapter)

    def add(self, name: str, adapter: Adapter) -> None:
        """Load an adapter; raises StateError for one of another model."""
        if name in self.names:
            raise ArgumentError(f"there is an adapter {name} already")
        adapter = complete_dora(adapter, self._folder)
        arrays = adapter_arrays(self._slots, adapter)
        dtype = next(iter(arrays.values())).dtype
        path = self._place / f"{len(self.names)}{ADAPTER_SUFFIX}"
        write_adapter(path, adapter.named_for(slot_rows(self._slots)).astype(np.dtype(dtype)))
        self._loaded.load(str(path), name)
        self.names.append(name)

    def check_name(self, name: str) -> None:
        """Raise ArgumentError, with near names, for an adapter that there is not."""
        if name not in self.names:
            known = ", ".join(self.names[:8]) or "none"
            raise ArgumentError(
                f"there is no adapter {name!r}",
                hint=spelling_hint(name, self.names, f"there is {known}"),
            )

    def answer(
        self, messages: Sequence[Message], adapter: str | None, wording: Wording
    ) -> Iterator[str]:
        """The parts of the text that follows a chat, as they come.

        What the generator has computed of the same chat is not computed again.
        """
        if adapter is not None:
            self.check_name(adapter)
        ids = self._tokenizer.encode(self._tokenizer.render(messages, asks=True))[0]
        if len(ids) + 1 > self._context:
            raise ArgumentError(
                f"the chat has {len(ids)} tokens, the model takes {self._context}",
                hint="/reset begins anew",
            )
        try:
            yield from self._answer(ids, adapter, wording)
        except Exception as error:  # the library's exceptions have no common base
            self.reset()
            raise RunError(
                f"onnxruntime-genai failed: {str(error).splitlines()[0]}", hint="/reset begins anew"
            ) from error

    def _answer(self, ids: Sequence[int], adapter: str | None, wording: Wording) -> Iterator[str]:
        generator = self._prepared(ids, adapter, wording)
        found: list[int] = []
        shown = ""
        while len(found) < wording.most and not generator.is_done():
            generator.generate_next_token()
            token = int(generator.get_next_tokens()[0])
            if token in self._ends:
                break
            found.append(token)
            text = self._tokenizer.decode(found)
            if not text.endswith(_UNFINISHED):
                yield text[len(shown) :]
                shown = text
        rest = self._tokenizer.decode(found)[len(shown) :]
        if rest:
            yield rest

    def reset(self) -> None:
        """Let go of what was computed of a chat."""
        self._generator, self._made_for = None, None

    def _prepared(self, ids: Sequence[int], adapter: str | None, wording: Wording) -> Any:
        """A generator that has read these tokens: the last one, taken back to where they differ.

        One that has no room for the answer is replaced by a larger one.
        """
        need = len(ids) + wording.most
        if self._generator is not None and self._made_for is not None:
            *same, room = self._made_for
            read = [int(t) for t in self._generator.get_sequence(0)]
            # the cache lacks the last token, and is taken back by one that it has at least
            common = _common_length(read[:-2], ids[:-1])
            if same == [adapter, wording] and need <= room and common:
                self._generator.rewind_to(common)
                self._generator.append_tokens(np.asarray(ids[common:], np.int32))
                return self._generator
        self.reset()
        room = min(self._context, max(_LEAST, need))
        parameters = self._library.GeneratorParams(self._model)
        parameters.set_search_options(max_length=room, **wording.options)
        self._generator = self._library.Generator(self._model, parameters)
        self._made_for = adapter, wording, room
        if adapter is not None:
            self._generator.set_active_adapter(self._loaded, adapter)
        self._generator.append_tokens(np.asarray(ids, np.int32))
        return self._generator

    def _opened(self, folder: Path) -> Any:
        try:
            return self._library.Model(str(folder))
        except Exception as error:  # the library's exceptions have no common base
            raise BundleError(
                f"onnxruntime-genai cannot open {folder}: {str(error).splitlines()[0]}",
                hint="`flow2onnx doctor` tells which versions are installed",
            ) from error

    def close(self) -> None:
        """Let go of the model, in the order that the library needs."""
        self.reset()
        self._loaded = self._model = None


def _common_length(one: Sequence[int], two: Sequence[int]) -> int:
    """How many tokens two texts have in common, from the first on."""
    pairs = enumerate(zip(one, two, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(two)))


def find_adapters(path: Path) -> dict[str, Path]:
    """The adapters at a path by name: one file, one folder of PEFT, or those in a folder.

    What training wrote is one adapter, under the folder's name.
    """
    if not path.exists():
        near = adapter_files(path.parent) if path.parent.is_dir() else {}
        raise ArgumentError(
            f"{path} is not there",
            hint=spelling_hint(path.name, [p.name for p in near.values()], "give an adapter"),
        )
    if path.is_file():
        return {path.name.removesuffix(ADAPTER_SUFFIX): path}
    inside = adapter_files(path)
    written = path / f"adapter{ADAPTER_SUFFIX}"
    if written.is_file() and (path / "bundle").is_dir():
        return {path.resolve().name: written}
    if inside:
        return inside
    read_adapter(path)  # a folder of PEFT, or the error of what it is not
    return {path.resolve().name: path}


def find_adapter(path: Path) -> Path:
    """The one adapter at a path, as `find_adapters` finds it; ArgumentError for several."""
    found = find_adapters(path)
    if len(found) > 1:
        raise ArgumentError(
            f"{path} has {len(found)} adapters, {', '.join([*found][:4])}", hint="name one of them"
        )
    return next(iter(found.values()))


def _modules(language: LanguageModel, adapters: Any) -> Sequence[str]:
    """The modules that need slots where the usual ones are not all; none where they are."""
    named = {m for a in adapters for m in a.pairs}
    return ["*"] if any(m.endswith("lm_head") for m in named) else ()


def _load_library() -> Any:
    try:
        return importlib.import_module(_LIBRARY)
    except ImportError as error:
        raise UnsupportedError(
            f"a chat needs onnxruntime-genai, which cannot be imported: {error}",
            hint="pip install 'flow2onnx[genai]'",
        ) from None
