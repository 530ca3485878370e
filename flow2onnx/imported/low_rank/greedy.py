"""Texts that a language model writes on the stock runtime, by the best token each time."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Program, TensorInfo
from flow2onnx_runtime.adapters import Adapter
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.slots import adapter_values, slots_of
from flow2onnx_runtime.zero_copy import ZeroCopyProgram

from flow2onnx.errors import UnsupportedError
from flow2onnx.imported.low_rank.folder import LanguageModel
from flow2onnx.imported.low_rank.tokens import FolderTokenizer
from flow2onnx.onnx_io.adapter_slots import slots_of as modules_of
from flow2onnx.onnx_io.language_model import PICTURES

__all__ = ["GreedyDecoder", "ending_tokens", "has_slots"]

_IDS, _MASK, _PLACES = "input_ids", "attention_mask", "position_ids"
_CACHES = (("past_key_values.", "present."), ("past.", "present."), ("past_", "present_"))


class GreedyDecoder:
    """A served model with slots, which goes on with tokens.

    Its inputs are ``input_ids``, ``attention_mask``, ``position_ids``, of which the last two may be
    missing, and a cache of keys and values, where it has one. A cache whose results are not told by
    their names stays empty: all tokens are read each time. Raises `UnsupportedError` for others.
    """

    def __init__(self, path: Path, logits: str, options: Options | None = None) -> None:
        self._program = Program(path, None, options or Options())
        self._runs, self._logits = ZeroCopyProgram(self._program), logits
        self.slots = slots_of(self._program.session)
        results = [info.name for info in self._program.results]
        caches = {f.name: _present(f.name, results) for f in self._program.feeds}
        self._cache = {name: present for name, present in caches.items() if present}
        self._unused = [f for f in self._program.feeds if not caches[f.name] and _is_cache(f)]
        if self._unused:
            self._cache, self._unused = {}, [f for f in self._program.feeds if _is_cache(f)]
        known = {_IDS, _MASK, _PLACES, *self._cache, *(f.name for f in self._unused)}
        unknown = [f.name for f in self._program.feeds if f.name not in known]
        if unknown or logits not in results:
            raise UnsupportedError(
                f"{path} cannot be asked to write: "
                + (f"it has an input {unknown[0]}" if unknown else f"it has no output {logits}"),
                hint="models with input_ids, attention_mask, position_ids and a cache of keys and "
                "values can",
            )

    def write(
        self,
        ids: Sequence[int],
        adapter: Adapter | None = None,
        *,
        most: int = 64,
        ends: Collection[int] = (),
    ) -> list[int]:
        """At most `most` tokens that follow `ids`; one of `ends` is the last, and is left out."""
        slots = {} if adapter is None else adapter_values(self.slots, adapter)
        whole, fresh = list(ids), list(ids)
        cache: dict[str, Array] = {
            f.name: np.zeros(_empty(f), f.dtype)
            for f in self._program.feeds
            if f.name in self._cache or f in self._unused
        }
        while len(whole) < len(ids) + most:
            found = self._run(whole, fresh, cache, slots)
            token = int(found[self._logits][0, -1].astype(np.float32).argmax())
            if token in ends:
                break
            whole.append(token)
            fresh = [token] if self._cache else whole
            cache |= {name: found[present] for name, present in self._cache.items()}
        return whole[len(ids) :]

    def _run(
        self,
        whole: Sequence[int],
        fresh: Sequence[int],
        cache: Mapping[str, Array],
        slots: Mapping[str, Any],
    ) -> dict[str, Array]:
        """The results for tokens of which all but the `fresh` ones are in the cache."""
        count = len(whole)
        given = {
            _IDS: np.asarray([fresh]),
            _MASK: np.ones((1, count)),
            _PLACES: np.arange(count - len(fresh), count)[None],
            **cache,
        }
        arrays = [given[f.name].astype(f.dtype, copy=False) for f in self._program.feeds]
        return self._program.by_name(self._runs.run(arrays, slots=slots))

    def close(self) -> None:
        """Let go of what runs keep."""
        self._program.release()


def ending_tokens(language: LanguageModel, tokenizer: FolderTokenizer) -> frozenset[int]:
    """The tokens that end a text: those that the folder says, and the tokenizer's own."""
    said = language.config.get("model", {}).get("eos_token_id", [])
    own = tokenizer.token("eos_token")
    numbers = said if isinstance(said, list) else [said]
    return frozenset(n for n in (*numbers, own) if isinstance(n, int))


def has_slots(language: LanguageModel) -> bool:
    """True if adapters fit into the model as it is."""
    return bool(modules_of(language.proto))


def _is_cache(info: TensorInfo) -> bool:
    """True for keys and values of a text whose number of tokens is free."""
    shape, is_picture = info.shape, info.name.startswith(PICTURES)
    is_free = len(shape) == 4 and not isinstance(shape[0], int)
    return is_free and info.dtype.kind == "f" and not is_picture


def _present(name: str, results: Collection[str]) -> str | None:
    """The result that is the next value of a cache's input, if it is one."""
    for before, after in _CACHES:
        found = after + name.removeprefix(before)
        if name.startswith(before) and found in results:
            return found
    return None


def _empty(info: TensorInfo) -> tuple[int, ...]:
    """The shape of a cache of one text that holds nothing."""
    return (1, *(size if isinstance(size, int) else 0 for size in info.shape[1:]))
