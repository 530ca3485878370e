"""The adapters of a model by name: files that come, change and go while it answers."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from flow2onnx_runtime import FlowError, TensorInfo
from flow2onnx_runtime.adapters import read_adapter
from flow2onnx_runtime.slots import adapter_values
from flow2onnx_runtime.spelling import spelling_hint

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.scanning import AdapterFile, Stamp

__all__ = ["AdapterTable", "SlotValues"]

_log = logging.getLogger("flow2onnx_serve")
_NAMED = 8  # adapters that an error lists

SlotValues = Mapping[str, Any]  # the runtime's values by the names of a model's inputs


@dataclass(frozen=True)
class _Loaded:
    """An adapter in memory: a copy, which goes on as it was when its file changes."""

    stamp: Stamp
    values: SlotValues
    ranks: tuple[int, ...]


class AdapterTable:
    """The adapters that one version of a model has, by name.

    One is replaced as a whole, so a request goes on with the one that it found. What cannot be
    loaded leaves an earlier one of that name answering, and its reason in `rows`. `refresh` runs on
    a thread, everything else on the event loop.
    """

    def __init__(self, model: str, slots: Mapping[str, TensorInfo]) -> None:
        self._model, self._slots = model, slots
        self._live: Mapping[str, _Loaded] = MappingProxyType({})
        self._failures: Mapping[str, tuple[Stamp, str]] = MappingProxyType({})
        self._seen: dict[str, Stamp] = {}

    def __len__(self) -> int:
        return len(self._live)

    def find(self, name: str) -> SlotValues:
        """The adapter of a name; raises `RequestError` with near names where there is none."""
        found = self._live.get(name)
        if found is not None:
            return found.values
        failure = self._failures.get(name)
        if failure is not None:
            raise RequestError(f"adapter '{name}' of model '{self._model}' is not ready: "
                               f"{failure[1]}", 503, retry_after=5)  # fmt: skip
        raise RequestError(
            f"model '{self._model}' has no adapter '{name}'", 404, hint=self._hint(name)
        )

    def rows(self) -> list[dict[str, Any]]:
        """The adapters with their states, as the protocol lists models."""
        names = sorted({*self._live, *self._failures})
        return [self._row(name) for name in names]

    def refresh(self, files: Mapping[str, AdapterFile], at_once: bool) -> None:
        """Load what is new, forget what is gone; new files wait until they are at rest."""
        live, failures = dict[str, _Loaded](), dict[str, tuple[Stamp, str]]()
        for name, file in files.items():
            before, failed = self._live.get(name), self._failures.get(name)
            if before is not None:
                live[name] = before
            if failed is not None and failed[0] == file.stamp:
                failures[name] = failed
            elif before is None or before.stamp != file.stamp:
                if not (at_once or self._seen.get(name) == file.stamp):
                    continue
                try:
                    live[name] = self._load(name, file)
                except FlowError as error:
                    failures[name] = (file.stamp, self._failed(name, error))
        for name in self._live.keys() - files.keys():
            _log.info("an adapter is gone", extra={"model": self._model, "adapter": name})
        self._seen = {name: file.stamp for name, file in files.items()}
        self._live, self._failures = MappingProxyType(live), MappingProxyType(failures)

    def _load(self, name: str, file: AdapterFile) -> _Loaded:
        adapter = read_adapter(Path(file.path))
        values = adapter_values(self._slots, adapter)
        _log.info("an adapter answers", extra={"model": self._model, "adapter": name})
        return _Loaded(file.stamp, values, tuple(sorted({*adapter.ranks.values()})))

    def _failed(self, name: str, error: FlowError) -> str:
        reason = " ".join(f"{error.message}{f' ({error.hint})' if error.hint else ''}".split())
        _log.error(
            "an adapter was not loaded",
            extra={"model": self._model, "adapter": name, "reason": reason,
                   "still_answering": name in self._live},
        )  # fmt: skip
        return reason

    def _row(self, name: str) -> dict[str, Any]:
        loaded, failure = self._live.get(name), self._failures.get(name)
        reason = "" if failure is None else failure[1]
        if loaded is None:
            return {"name": name, "state": "UNAVAILABLE", "reason": reason}
        kept = f"kept as it was: {reason}" if reason else ""
        return {"name": name, "state": "READY", "reason": kept, "ranks": list(loaded.ranks)}

    def _hint(self, name: str) -> str:
        near = spelling_hint(name, self._live, None)
        if near is not None:
            return near
        if not self._slots:
            return "the model has no slots for adapters: flow2onnx lora slots FOLDER adds them"
        if not self._live:
            return (
                "there are none: put NAME.onnx_adapter into the model's folder adapters/, or that "
                "of --adapters"
            )
        shown = ", ".join(sorted(self._live)[:_NAMED])
        more = f" and {len(self._live) - _NAMED} others" if len(self._live) > _NAMED else ""
        return f"there are {shown}{more}"
