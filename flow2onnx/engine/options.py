"""The options of a job's session: what the flags of its program make of them."""

import functools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flow2onnx_runtime import Options, usable_providers, why_unusable
from flow2onnx_runtime.cache_folders import user_cache
from flow2onnx_runtime.errors import OptionsError
from flow2onnx_runtime.options import DEFAULT_OPTIONS
from flow2onnx_runtime.ort_settings import check_run_entry, check_session_entry
from flow2onnx_runtime.plugins import known_providers
from flow2onnx_runtime.providers import CPU, Provider, find_provider, provider_named
from flow2onnx_runtime.world import usable_processors

from flow2onnx.compile import CompiledJob
from flow2onnx.config import FLAGS, FunctionConfig, Settings, check_conflicts, warn_of_idle
from flow2onnx.config.effects import PROVIDER
from flow2onnx.engine.placement import Device, provider_name, provider_of
from flow2onnx.errors import FlowError

__all__ = ["job_options", "options_of"]

_log = logging.getLogger("flow2onnx.execute")
_BETWEEN_CALLS = {"session.force_spinning_stop": "1"}
_ASLEEP = {"session.intra_op.allow_spinning": "0", "session.inter_op.allow_spinning": "0"}
_SPINNING = {*_BETWEEN_CALLS, *_ASLEEP}


def options_of(
    job: CompiledJob, settings: Settings, device: Device, *, takes_turns: bool = False
) -> Options:
    """The options of a compiled job on a device; raises as `job_options`."""
    config = job.spec.config
    provider = provider_of(device.tag, config.value("runtime.placement"))
    trains = job.kind == "train"
    return job_options(
        config, settings, provider, trains=trains, device_id=device.number, takes_turns=takes_turns
    )


def job_options(
    config: FunctionConfig,
    settings: Settings,
    provider: str,
    *,
    trains: bool = False,
    device_id: int = 0,
    takes_turns: bool = False,
) -> Options:
    """The options of a job's session: the rows of the flag tables that reach the runtime.

    `takes_turns`: whether the program has other sessions, each with threads of its own. These then
    sleep between calls, unless a flag says otherwise: busy waiting takes the cores from the session
    that runs. A perceptron and eight convolutions, evaluated after each step, took 0.4 and 0.5 of
    the time so, at two threads by the clock; with threads that sleep within calls too, 0.5 and
    0.6, and steps of convolutions alone half as long again. The runtime's one pool for all would
    refuse every session of the program's own that is not told to use it.

    Idle threads sleep within calls too where there are more of them than processors, unless a flag
    says otherwise: the one that waits busily has the processor of the one that it waits for.

    Raises `ConfigError` for settings that contradict each other, and `OptionsError` for names and
    values that the runtime does not know.
    """
    check_conflicts(config, settings, trains=trains)
    warn_of_idle(config)
    asked = settings.session_options() | config.session_options()
    entries = {k: str(v) for k, v in asked.items() if "." in k}
    told = entries.keys() | config.value("runtime.session_entry").keys()
    fields = {k: v for k, v in asked.items() if "." not in k}
    if not told & _SPINNING:
        entries |= _how_threads_wait(fields.get("intra_op_threads"), takes_turns)
    if not (config.value("runtime.enable_profiling") or settings.value("collect_act_event")):
        fields.pop("profile", None)  # a prefix alone
    if trains and "optimization" not in fields:
        fields["optimization"] = DEFAULT_OPTIONS.for_training().optimization
    library = config.value("runtime.provider_library")
    providers = tuple(_providers(config, settings, provider, trains, device_id))
    _warn_of_idle_flags(config, providers)
    _check_free_forms(config, entries, providers)
    return Options(
        providers=providers,
        session_entries=entries | config.value("runtime.session_entry"),
        run_entries=config.value("runtime.run_entry"),
        host_results=config.value("allow_cpu_return_op"),
        graph_cache=config.value("runtime.graph_cache"),
        provider_libraries=() if library is None else (library,),
        **fields,
    )


def _how_threads_wait(threads: int | None, takes_turns: bool) -> Mapping[str, str]:
    """The entries that say how idle threads wait, of so many or of the runtime's own number."""
    if threads is not None and threads > usable_processors():
        return _ASLEEP
    return _BETWEEN_CALLS if takes_turns else {}


def _providers(
    config: FunctionConfig, settings: Settings, provider: str, trains: bool, device_id: int
) -> Iterator[tuple[str, Mapping[str, str]] | str]:
    """The providers that are asked for, and those that take what these leave."""
    effort = config.value("runtime.placement")
    wanted = [t for t in config.providers() if not _runs_without(t, trains, effort)]
    own = provider_named(provider)
    if own is not CPU and _runs_without(own.tag, trains, None):
        own = find_provider(own.fallbacks[0])
    rows = [*map(find_provider, wanted), own]
    # one that several of them name stands where the last does
    for name in reversed(dict.fromkeys(n for row in reversed(rows) for n in reversed(row.names))):
        options = _provider_options(provider_named(name), config, settings, device_id)
        yield name if name == CPU.name else (name, options)


def _provider_options(
    row: Provider, config: FunctionConfig, settings: Settings, device_id: int
) -> Mapping[str, str]:
    """The number of the device, what the row and the flags say, and what is given by name."""
    known = row.options or {}
    place = {"device_id": str(device_id)} if device_id and "device_id" in known else {}
    flags = settings.provider_options(row.tag) | config.provider_options(row.tag)
    # an address goes with a switch that says it is there
    present = {f"has_{name}": "1" for name in flags if f"has_{name}" in known}
    free = _of(config.value("runtime.provider_option"), row.tag)
    return place | _defaults(row, config) | flags | present | free


def _defaults(row: Provider, config: FunctionConfig) -> dict[str, str]:
    """The defaults of a provider: its cache among them, and half precision if the job has it."""
    flag = f"runtime.{row.tag}_cache_path"
    asked = config.value(flag) if flag in FLAGS.rows else None
    found = row.default_options(Path(asked) if asked else user_cache(row.tag))
    half = row.half_options.get(config.value("runtime.mixed_precision_dtype"), {})
    return {**found, **(half if config.value("enable_auto_mixed_precision") else {})}


def _warn_of_idle_flags(config: FunctionConfig, providers: Sequence[Any]) -> None:
    """Name the settings of the group `runtime` for a provider that a job is without."""
    names = {p if isinstance(p, str) else p[0] for p in providers}
    set_here = [FLAGS.rows[n] for n in config.values() if n.startswith("runtime.")]
    idle: dict[str, list[str]] = {}
    for row in set_here:
        if isinstance(row.effect, PROVIDER) and provider_name(row.effect.provider) not in names:
            idle.setdefault(row.effect.provider, []).append(row.name)
    for tag, flags in idle.items():
        _warn_once(tag, tuple(flags))


@functools.cache
def _warn_once(tag: str, flags: tuple[str, ...]) -> None:
    shown = ", ".join(flags)
    _log.warning("%s: no effect on a job that does not run on %s", shown, find_provider(tag).title)


def _of(free: Mapping[str, str], provider: str) -> dict[str, str]:
    prefix = f"{provider}."
    return {k.removeprefix(prefix): v for k, v in free.items() if k.startswith(prefix)}


@functools.cache
def _runs_without(tag: str, trains: bool, effort: str | None) -> bool:
    """True if a job that asks for a provider does without it, which is said once."""
    row = find_provider(tag, known_providers())
    if trains and not row.trains:
        _log.warning(
            "%s: train jobs run on %s, as their weights are inputs, and it wants constants; "
            "predict jobs use it",
            row.title, find_provider(row.fallbacks[0]).title,
        )  # fmt: skip
        return True
    if effort == "best effort" and row.name not in usable_providers():
        _log.warning("%s cannot be used, jobs run without: %s", row.name, why_unusable(row.name))
        return True
    return False


def _check_free_forms(
    config: FunctionConfig, entries: Mapping[str, str], providers: Sequence[Any]
) -> None:
    """Check what the user gave by the runtime's own names, and point at where."""
    with _pointing_at(config.source("runtime.session_entry")):
        for key, value in config.value("runtime.session_entry").items():
            check_session_entry(key, value)
            _check_same(f"session entry {key}", value, entries.get(key))
    with _pointing_at(config.source("runtime.run_entry")):
        for key, value in config.value("runtime.run_entry").items():
            check_run_entry(key, value)
    with _pointing_at(config.source("runtime.provider_option")):
        for name, value in config.value("runtime.provider_option").items():
            group, _, option = name.partition(".")
            find_provider(group).check_option(option, value)
            flags = config.provider_options(group)
            _check_same(f"{group} option {option}", value, _explicit(config, flags, option))


def _explicit(config: FunctionConfig, flags: Mapping[str, str], option: str) -> str | None:
    """The value that a flag of the program gives an option; None by default."""
    rows = [r.name for r in FLAGS.rows.values() if getattr(r.effect, "option", None) == option]
    return flags.get(option) if config.values().keys() & set(rows) else None


def _check_same(what: str, given: str, by_flag: str | None) -> None:
    if by_flag is not None and by_flag != given:
        message = f"{what} is given as {given!r}, and as {by_flag!r} by a flag"
        raise OptionsError(message, hint="set one of the two")


@contextmanager
def _pointing_at(source: str | None) -> Iterator[None]:
    try:
        yield
    except FlowError as error:
        error.located(None, None, source)
        raise
