"""The models that a server has: what is loaded, what is not and why, and how that changes."""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from flow2onnx_runtime import FlowError
from flow2onnx_runtime.allocator import trim_memory
from flow2onnx_runtime.model_config import ModelConfig, read_config

from flow2onnx_serve.adapters import AdapterTable
from flow2onnx_serve.batching import Batcher, Limits
from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.loading import Version, load_version
from flow2onnx_serve.metrics import Metrics, ModelMetrics
from flow2onnx_serve.scanning import ModelFolder, Stamp, scan
from flow2onnx_serve.settings import Settings
from flow2onnx_serve.threads import in_thread

__all__ = ["LiveVersion", "Repository", "requested_version"]

_log = logging.getLogger("flow2onnx_serve")

# So long the models behind it wait for a model that is being loaded; then both are loaded at once.
_PATIENCE = 2.0
_TRIM_DELAY = 0.2  # seconds after models have retired


@dataclass(frozen=True)
class LiveVersion:
    """A version that answers, with its queue."""

    model: str
    version: Version
    batcher: Batcher
    metrics: ModelMetrics
    stamp: tuple[Stamp, Stamp]  # of its files, and of the model's
    adapters: AdapterTable


@dataclass
class _Model:
    """A model of the repository; `live` is replaced as a whole, never changed."""

    name: str
    live: Mapping[int, LiveVersion] = field(default_factory=lambda: MappingProxyType({}))
    failures: dict[int, tuple[Any, str]] = field(default_factory=dict)  # stamp and reason
    seen: dict[int, Any] = field(default_factory=dict)
    pinned: int | None = None
    is_unloaded: bool = False


@dataclass(frozen=True)
class _Counts:
    """Passes on what a batcher tells to the statistics of its version and of its model."""

    statistics: Any
    metrics: ModelMetrics

    def ran(self, rows: int, waited: Any, seconds: float) -> None:
        self.statistics.ran(rows, waited, seconds)
        self.metrics.ran(rows, waited, seconds)

    def queued(self, change: int) -> None:
        self.metrics.queued(change)


class Repository:
    """Keeps what is served in step with what lies on the disk.

    A version replaces another only once it is loaded, warmed up and checked; whatever fails
    before leaves the old one answering, and the reason in the index. All methods belong to one
    event loop; models are opened on a thread.
    """

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings, self._metrics = settings, metrics
        self._models: dict[str, _Model] = {}
        self._found: dict[str, ModelFolder] = {}
        self._runs = ThreadPoolExecutor(thread_name_prefix="run")
        self._loads = ThreadPoolExecutor(1, thread_name_prefix="load")
        self._changing = asyncio.Lock()
        self._updates: dict[str, asyncio.Task[None]] = {}  # those that go on, by model
        self._is_closed = False

    def find(self, name: str, version: str = "") -> LiveVersion:
        """The version that answers; the newest unless one is named."""
        model = self._known(name)
        if not model.live:
            raise RequestError(f"model '{name}' is not ready{_reasons(model)}", 503, retry_after=5)
        if not version:
            return next(iter(model.live.values()))
        # compared as text: a number with other digits or signs is no version
        for number, live in model.live.items():
            if str(number) == version:
                return live
        ready = ", ".join(map(str, model.live))
        raise RequestError(f"model '{name}' has no version '{version}' ready", 404,
                           hint=f"ready: {ready}")  # fmt: skip

    def _known(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            raise RequestError(f"unknown model: '{name}'", 404)
        return model

    def answers(self, name: str, version: str = "") -> bool:
        """True if such a version answers."""
        try:
            return bool(self.find(name, version))
        except RequestError:
            return False

    def versions(self, name: str) -> list[LiveVersion]:
        """All versions of a model that answer, the newest first."""
        self.find(name)
        return list(self._models[name].live.values())

    def names(self) -> list[str]:
        """The models that are known, ready or not."""
        return sorted(self._models)

    @property
    def is_ready(self) -> bool:
        """True while every model that is wanted answers."""
        return all(model.live for model in self._models.values() if not model.is_unloaded)

    @property
    def is_idle(self) -> bool:
        """True while no request waits or runs."""
        lives = (live for model in self._models.values() for live in model.live.values())
        return all(live.batcher.is_idle for live in lives)

    def index(self, only_ready: bool = False) -> list[dict[str, str]]:
        """Models and versions with their states, as the protocol lists them."""
        rows = [row for name in self.names() for row in self.rows(name)]
        return [row for row in rows if row["state"] == "READY" or not only_ready]

    def rows(self, name: str) -> list[dict[str, str]]:
        """The versions of a model with their states; raises `RequestError` for an unknown one."""
        model = self._known(name)
        found = {
            number: _row(name, number, "READY", "; ".join(live.version.notes))
            for number, live in sorted(model.live.items())
        }
        for number, (_, reason) in sorted(model.failures.items()):
            if number in model.live:  # its files were replaced by ones that are worse
                found[number] = _row(name, number, "READY", f"kept as it was: {reason}")
            else:
                found[number] = _row(name, number, "UNAVAILABLE", reason)
        return list(found.values()) or [_row(name, "", "UNAVAILABLE", "unloaded")]

    async def refresh(self, *, at_once: bool = False) -> None:
        """Bring everything up to date; new files wait until they are at rest unless `at_once`."""
        async with self._changing:
            await self._scan()
            for name in sorted({*self._found, *self._models}):
                if name not in self._updates:  # which may take long: the next look finds the rest
                    await asyncio.wait({self._begin_update(name, at_once)}, timeout=_PATIENCE)

    @property
    def is_loading(self) -> bool:
        """True while a model is being loaded."""
        return bool(self._updates)

    def _begin_update(self, name: str, at_once: bool) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._update(name, at_once))
        self._updates[name] = task
        task.add_done_callback(lambda done: self._end_update(name, done))
        return task

    def _end_update(self, name: str, task: "asyncio.Task[None]") -> None:
        del self._updates[name]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("looking at a model failed", exc_info=error, extra={"model": name})

    async def load(self, name: str, version: int | None = None) -> None:
        """Load a model anew, or one version of it, to which it then keeps."""
        async with self._changing:
            await self._scan()
            found = self._found.get(name)
            if found is None or (version is not None and version not in found.versions):
                what = name if found is None else f"{name}, version {version}"
                raise RequestError(f"the repository has no model '{what}'", 404)
        while name in self._updates:
            await asyncio.wait({self._updates[name]})
        model = self._models.setdefault(name, _Model(name))
        async with self._changing:
            before = model.pinned
            model.is_unloaded, model.pinned = False, version
            model.failures.clear()
            update = self._begin_update(name, at_once=True)
        await asyncio.wait({update})
        async with self._changing:
            tried = max(found.versions, default=0) if version is None else version
            if tried in model.failures:
                model.pinned = before
                raise RequestError(f"{name}, version {tried}: {model.failures[tried][1]}", 400)

    async def unload(self, name: str) -> None:
        """Let a model answer no more; requests that it has are finished."""
        while name in self._updates:
            await asyncio.wait({self._updates[name]})
        async with self._changing:
            model = self._known(name)
            model.is_unloaded, model.pinned = True, None
            model.failures.clear()
            self._switch(model, {})

    def close(self) -> None:
        """Let the threads end."""
        self._is_closed = True
        self._runs.shutdown(wait=False, cancel_futures=True)
        self._loads.shutdown(wait=False, cancel_futures=True)

    async def _scan(self) -> None:
        loop = asyncio.get_running_loop()
        settings = self._settings
        where = settings.models, settings.adapters
        self._found = await loop.run_in_executor(self._loads, scan, *where)

    async def _update(self, name: str, at_once: bool) -> None:
        found = self._found.get(name)
        if found is None:
            self._remove(name)
            return
        model = self._models.setdefault(name, _Model(name))
        if model.is_unloaded:
            return
        try:
            config = await self._config(found)
        except FlowError as error:
            self._failed(model, max(found.versions, default=0), found.config, error)
            return
        stamps = {number: (stamp, found.config) for number, stamp in found.versions.items()}
        at_rest = {n for n, s in stamps.items() if at_once or model.seen.get(n) == s}
        model.seen = dict(stamps)
        model.failures = {n: f for n, f in model.failures.items() if stamps.get(n) == f[0]}
        chosen = await self._chosen(model, found, config, stamps, at_rest)
        # rather an old version than none: its files may be gone, it still answers
        if chosen or not (model.failures or set(stamps) - at_rest):
            self._switch(model, chosen)
        for live in model.live.values():
            await self._refresh_adapters(live, found, at_once)

    async def _refresh_adapters(self, live: LiveVersion, found: ModelFolder, at_once: bool) -> None:
        arguments = found.adapters, at_once
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._loads, live.adapters.refresh, *arguments)

    async def _config(self, found: ModelFolder) -> ModelConfig:
        path = found.folder / "config.pbtxt"
        if found.file is not None or not path.exists():
            return ModelConfig()
        return await asyncio.get_running_loop().run_in_executor(self._loads, read_config, path)

    async def _chosen(
        self,
        model: _Model,
        found: ModelFolder,
        config: ModelConfig,
        stamps: Mapping[int, Any],
        at_rest: set[int],
    ) -> dict[int, LiveVersion]:
        """The versions to serve, newest first; those that fail make room for older ones."""
        candidates, count = _candidates(stamps, config, model.pinned)
        chosen: dict[int, LiveVersion] = {}
        for number in candidates:
            if len(chosen) == count:
                break
            live = model.live.get(number)
            is_new = live is None or live.stamp != stamps[number]
            if is_new and number in at_rest and number not in model.failures:
                live = await self._open(model, found, number, config, stamps[number]) or live
            if live is not None:
                chosen[number] = live
        return chosen

    async def _open(
        self, model: _Model, found: ModelFolder, number: int, config: ModelConfig, stamp: Any
    ) -> LiveVersion | None:
        present = next(iter(model.live.values()), None)
        settings = self._settings
        _log.info("a version is being loaded", extra={"model": model.name, "version": number})

        def load() -> Version:
            return load_version(
                number, found.place(number, config.file), config, settings.session_options,
                settings.prepare, settings.max_batch, present.version if present else None,
            )  # fmt: skip

        try:
            version = await in_thread(load, "load")
        except FlowError as error:
            self._failed(model, number, stamp, error)
            return None
        except Exception as error:  # whatever a file holds, it must not stop the server
            self._failed(model, number, stamp, _UnforeseenError(error))
            return None
        _warn_of_accelerators(model.name, config, settings)
        live = self._live(model.name, version, stamp)
        # before it answers: what the present version's clients ask for is there
        await self._refresh_adapters(live, found, True)
        return live

    def _live(self, name: str, version: Version, stamp: Any) -> LiveVersion:
        config, settings = version.config, self._settings
        metrics = self._metrics.model(name)
        limits = Limits(
            version.max_batch,
            settings.delay if config.delay is None else config.delay,
            config.queue or settings.max_queue,
            config.instances,
            version.inline,
        )
        counts = _Counts(version.statistics, metrics)
        batcher = Batcher(version.run, self._runs, limits, counts)
        adapters = AdapterTable(name, version.slots)
        return LiveVersion(name, version, batcher, metrics, stamp, adapters)

    def _failed(self, model: _Model, number: int, stamp: Any, error: FlowError) -> None:
        if number in model.failures and model.failures[number][0] == stamp:
            return
        reason = " ".join(f"{error.message}{f' ({error.hint})' if error.hint else ''}".split())
        model.failures[number] = (stamp, reason)
        self._metrics.loaded(model.name, is_good=False)
        _log.error(
            "a version was not loaded",
            extra={"model": model.name, "version": number, "reason": reason,
                   "still_answering": list(model.live)},
        )  # fmt: skip

    def _switch(self, model: _Model, chosen: Mapping[int, LiveVersion]) -> None:
        """From here on the chosen versions answer; the others finish what they have."""
        new = MappingProxyType({n: chosen[n] for n in sorted(chosen, reverse=True)})
        old, model.live = model.live, new
        for number, live in new.items():
            if old.get(number) is not live:
                self._metrics.loaded(model.name, is_good=True)
                notes = list(live.version.notes)
                _log.info("a version answers", extra={"model": model.name, "version": number,
                                                      "notes": notes})  # fmt: skip
        for number, live in old.items():
            if new.get(number) is not live:
                live.batcher.retire(live.version.program.release)
            if number not in new:
                _log.info("a version retires", extra={"model": model.name, "version": number})
        self._metrics.serving(model.name, max(new, default=0))
        if any(new.get(number) is not live for number, live in old.items()):
            # by then most of what they were asked is answered
            asyncio.get_running_loop().call_later(_TRIM_DELAY, self._trim_memory)

    def _trim_memory(self) -> None:
        if not self._is_closed:
            self._loads.submit(trim_memory)

    def _remove(self, name: str) -> None:
        self._switch(self._models.pop(name), {})


def requested_version(parameters: Mapping[str, object]) -> int | None:
    """The version that the parameters of a request to load a model name, if they do."""
    unknown = [name for name in parameters if name != "version"]
    if unknown:
        raise RequestError(f"load takes no parameter {unknown[0]!r}", hint="only version")
    if "version" not in parameters:
        return None
    version = parameters["version"]
    if not isinstance(version, str) or not re.fullmatch("[1-9][0-9]{0,8}", version):
        raise RequestError(f"{version!r} is no version", hint="text, such as '2'")
    return int(version)


class _UnforeseenError(FlowError):
    """An error of a kind that nobody expected, while a model was opened."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")


def _candidates(
    stamps: Iterable[int], config: ModelConfig, pinned: int | None
) -> tuple[list[int], int]:
    """Versions to try, newest first, and how many of them are wanted."""
    numbers = sorted(stamps, reverse=True)
    if pinned is not None:
        return [n for n in numbers if n == pinned], 1
    if config.specific is not None:
        return [n for n in numbers if n in config.specific], len(numbers)
    return numbers, config.latest


def _row(name: str, number: int | str, state: str, reason: str) -> dict[str, str]:
    return {"name": name, "version": str(number), "state": state, "reason": reason}


def _reasons(model: _Model) -> str:
    texts = [f"version {n}: {reason}" for n, (_, reason) in sorted(model.failures.items())]
    return f": {'; '.join(texts)}" if texts else ""


def _warn_of_accelerators(name: str, config: ModelConfig, settings: Settings) -> None:
    used = " ".join(settings.options.provider_names).lower()
    for accelerator in config.accelerators:
        if accelerator not in used:
            _log.warning(
                "config.pbtxt asks for an accelerator that this server was not started with",
                extra={"model": name, "accelerator": accelerator, "providers": used},
            )
