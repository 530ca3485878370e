"""A compiled job on the runtime: providers, state, one program for each shape of its inputs."""

import functools
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Program, State, usable_providers, why_unusable
from flow2onnx_runtime.errors import NonFiniteError, OptionsError
from flow2onnx_runtime.options import DEFAULT_OPTIONS
from flow2onnx_runtime.ort_settings import check_run_entry, check_session_entry
from flow2onnx_runtime.providers import CPU, Provider, find_provider, provider_named

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.config import FLAGS, FunctionConfig, Settings, check_together
from flow2onnx.config.effects import PROVIDER
from flow2onnx.data.pipeline import Pipeline
from flow2onnx.engine.memory import confirmed, updated_in_place
from flow2onnx.engine.native import native_library, threads_of
from flow2onnx.errors import FlowError
from flow2onnx.graph import Model
from flow2onnx.graph.model import model_bytes
from flow2onnx.graph.types import dtype_of
from flow2onnx.passes.native import rewrite

__all__ = [
    "Executable",
    "accelerated",
    "best_device",
    "job_options",
    "open_program",
    "provider_name",
    "provider_of",
]

_log = logging.getLogger("flow2onnx.execute")
Array = np.ndarray[Any, np.dtype[Any]]


def provider_name(device: str) -> str:
    """The runtime's name for a provider by its tag, or by the tag of a placement on it."""
    return find_provider(device).name


@functools.cache
def best_device() -> str:
    """Where jobs without a placement run: on the GPU when the runtime can use it."""
    return "gpu" if provider_name("gpu") in usable_providers() else "cpu"


@functools.cache
def provider_of(device: str, placement: str | None = None) -> str:
    """The runtime's name for a device tag.

    As in OneFlow, "gpu" on a build without GPU support means the CPU, and says so once; a GPU
    build whose libraries are missing is an error when the session is opened. `placement` is the
    flag of that name: "strict" makes the first an error too, "best effort" the second a warning.
    """
    import onnxruntime

    provider = provider_name(device)
    if placement == "best effort" and provider not in usable_providers():
        _log.warning("%s cannot be used, jobs placed on %r run on the CPU: %s",
                     provider, device, why_unusable(provider))  # fmt: skip
        return CPU.name
    if placement is None and provider not in onnxruntime.get_available_providers():
        _log.warning("this onnxruntime is a CPU build: jobs placed on %r run on the CPU", device)
        return CPU.name
    return provider


def job_options(
    config: FunctionConfig,
    settings: Settings,
    provider: str,
    *,
    trains: bool = False,
    device_id: int = 0,
) -> Options:
    """How the session of a job is opened: the rows of the flag tables that reach the runtime.

    Raises `ConfigError` for settings that contradict each other, and `OptionsError` for names and
    values that the runtime does not know.
    """
    check_together(config, settings, trains=trains)
    asked = settings.session_options() | config.session_options()
    entries = {k: str(v) for k, v in asked.items() if "." in k}
    fields = dict(_field(k, v) for k, v in asked.items() if "." not in k)
    if fields.pop("is_profiled", False):
        fields.setdefault("profile", "flow2onnx")
    elif "profile" in fields:
        del fields["profile"]
    if trains and "optimization" not in fields:
        fields["optimization"] = DEFAULT_OPTIONS.for_training().optimization
    providers = tuple(_providers(config, settings, provider, trains, device_id))
    _say_what_is_idle(config, providers)
    _check_free_forms(config, entries, providers)
    return Options(
        providers=providers,
        session_entries=entries | config.value("runtime.session_entry"),
        run_entries=config.value("runtime.run_entry"),
        host_results=config.value("allow_cpu_return_op"),
        graph_cache=config.value("runtime.graph_cache"),
        **fields,
    )


# Where `Options` has another name for what the runtime calls a session option.
_FIELDS = {
    "intra_op_num_threads": "intra_op_threads",
    "inter_op_num_threads": "inter_op_threads",
    "execution_mode": "parallel",
    "enable_mem_pattern": "memory_pattern",
    "enable_mem_reuse": "memory_reuse",
    "enable_cpu_mem_arena": "cpu_arena",
    "use_deterministic_compute": "deterministic",
    "graph_optimization_level": "optimization",
    "log_severity_level": "log_level",
    "enable_profiling": "is_profiled",
    "profile_file_prefix": "profile",
}


def _field(setting: str, value: Any) -> tuple[str, Any]:
    field = _FIELDS[setting]
    return field, value == "parallel" if field == "parallel" else value


def _providers(
    config: FunctionConfig, settings: Settings, provider: str, trains: bool, device_id: int
) -> Iterator[tuple[str, Mapping[str, str]] | str]:
    """The providers that are asked for, and those that take what these leave."""
    effort = config.value("runtime.placement")
    wanted = [t for t in config.providers() if not _runs_without(t, trains, effort)]
    rows = [*map(find_provider, wanted), provider_named(provider)]
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
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = str(Path(asked) if asked else base / "flow2onnx" / row.tag)
    found = {name: value.format(cache=folder) for name, value in row.defaults.items()}
    half = row.half_options.get(config.value("runtime.mixed_precision_dtype"))
    return found | ({half: "1"} if half and config.value("enable_auto_mixed_precision") else {})


def _say_what_is_idle(config: FunctionConfig, providers: Sequence[Any]) -> None:
    """Name the settings of the group `runtime` for a provider that a job is without."""
    names = {p if isinstance(p, str) else p[0] for p in providers}
    set_here = [FLAGS.rows[n] for n in config.values() if n.startswith("runtime.")]
    idle: dict[str, list[str]] = {}
    for row in set_here:
        if isinstance(row.effect, PROVIDER) and provider_name(row.effect.provider) not in names:
            idle.setdefault(row.effect.provider, []).append(row.name)
    for tag, flags in idle.items():
        _say_idle(tag, tuple(flags))


@functools.cache
def _say_idle(tag: str, flags: tuple[str, ...]) -> None:
    shown = ", ".join(flags)
    _log.warning("%s: no effect on a job that does not run on %s", shown, find_provider(tag).title)


def _of(free: Mapping[str, str], provider: str) -> dict[str, str]:
    prefix = f"{provider}."
    return {k.removeprefix(prefix): v for k, v in free.items() if k.startswith(prefix)}


@functools.cache
def _runs_without(tag: str, trains: bool, effort: str | None) -> bool:
    """Whether a job that asks for a provider does without it, which is said once."""
    row = find_provider(tag)
    if trains and not row.trains:
        _log.warning(
            "use_%s: train jobs run on %s, as their weights are inputs, which %s cannot build into "
            "an engine; predict jobs use it",
            tag, find_provider(row.fallbacks[0]).title, row.title,
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
    """What a flag set by the program makes of an option; defaults give way."""
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


def accelerated(compiled: CompiledJob, options: Options) -> tuple[Model, Options, dict[str, int]]:
    """What is run in the place of a job's model, the options for it, and how many native nodes.

    Train jobs on the CPU use the operators of flow2onnx-native, if it is there and
    `runtime.native` does not forbid it. Others run as they are: the runtime itself is at its best
    where weights do not change.
    """
    wish = compiled.spec.config.value("runtime.native")
    on_cpu = options.provider_names == CPU.names
    library = native_library(wish) if on_cpu and compiled.kind == "train" else None
    if library is None:
        return compiled.model, options, {}
    threads = threads_of(options.intra_op_threads)
    winograd = compiled.spec.config.value("runtime.winograd")
    model, used = rewrite(compiled.model, library.operators, threads, winograd=winograd)
    if not used:
        return compiled.model, options, {}
    return model, replace(options, operator_libraries=(library.path,)), used


@collector_paused()
def open_program(
    compiled: CompiledJob,
    state: State,
    options: Options,
    keeps_old: bool = False,
    suffix: str = "",
) -> Program:
    """The model of a job bound to a state, which it updates in place where that is proven.

    `keeps_old` as in `updated_in_place`.
    """
    model, options, _ = accelerated(compiled, options)
    name, content = f"{compiled.spec.name}{suffix}", model_bytes(model)
    found = () if options.captures else updated_in_place(compiled, keeps_old, model)
    if not any(v.is_safe for v in found):
        return Program(content, state, options, name=name)

    def opened(path: str) -> Program:
        return Program(content, state, replace(options, optimized_path=path), name=name)

    found, program = confirmed(found, opened)
    program.update_in_place([v.name for v in found if v.is_safe])
    return program


class Executable:
    """One compiled job bound to the session's state."""

    def __init__(
        self,
        compiled: CompiledJob,
        state: State,
        options: Options,
        *,
        stops_on_non_finite: bool = False,
        source: Pipeline | None = None,
    ) -> None:
        self.compiled, self._source = compiled, source
        self._program: Program | None = None
        outputs: list[str] = []
        self._order: list[int] = []
        if compiled.model.graph.outputs:  # the runtime opens no model without
            self._program = open_program(compiled, state, options, stops_on_non_finite)
            outputs = [info.name for info in self._program.results]
            self._order = [compiled.feeds.index(f.name) for f in self._program.feeds]
        if compiled.update is not None:
            self._update = open_program(
                compiled.update, state, options, stops_on_non_finite, "/update"
            )
        self._state = state
        self._results = [outputs.index(name) for name in compiled.results]
        self._losses = [outputs.index(name) for name in compiled.losses if name in outputs]
        self._watches = [
            ([[outputs.index(o) for o in pieces] for pieces in w.arguments], w.handler)
            for w in compiled.watches
        ]
        self._bits = _travelling_as_bits(compiled, outputs)
        self._guard = self._check_finite if stops_on_non_finite and self._losses else None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """One call: new arrays in the order of the job's results. Watch handlers run first."""
        try:
            outputs = self._outputs(self._program, arrays) if self._program else []
        except FlowError as error:
            error.located(self.compiled.spec.name, None, None)
            raise
        for position, dtype in self._bits:
            outputs[position] = outputs[position].view(dtype)
        for arguments, handler in self._watches:
            handler(*([outputs[i] for i in pieces] for pieces in arguments))
        return [outputs[i] for i in self._results]

    def _outputs(self, program: Program, arrays: Sequence[Array]) -> list[Array]:
        if self.compiled.update is None:
            return self._round(program, arrays)
        try:
            rounds = [self._round(program, arrays) for _ in range(self.compiled.rounds)]
        except BaseException:
            self._empty_sums()
            raise
        self._update.run([])
        return [
            np.concatenate([np.atleast_1d(o) for o in made]) for made in zip(*rounds, strict=True)
        ]

    def _round(self, program: Program, arrays: Sequence[Array]) -> list[Array]:
        fed = [*arrays, *self._source.next()] if self._source is not None else arrays
        return program.run([fed[i] for i in self._order], guard=self._guard)

    def _empty_sums(self) -> None:
        """Forget the gradients of a call that failed between its rounds."""
        with self._state.lock:
            for name in set(self._update.writes) & set(
                self._program.writes if self._program else ()
            ):
                zeros = np.zeros(self._state.shape(name), self._state.dtype(name))
                self._state.write(name, zeros)

    def _check_finite(self, outputs: list[Array]) -> None:
        if all(np.isfinite(outputs[i]).all() for i in self._losses):
            return
        name = self.compiled.spec.name
        step = int(self._state.read(f"System-Train-TrainStep-{name}")[0])
        raise NonFiniteError(
            f"the loss of step {step} is not finite",
            job=name,
            hint="the variables are as before this step; lower the learning rate, or look at the "
            "inputs of this call",
        )


def _travelling_as_bits(
    compiled: CompiledJob, outputs: Sequence[str]
) -> list[tuple[int, "np.dtype[Any]"]]:
    """The results that the runtime hands out as unsigned bits of the same size."""
    values = {v.name: v for v in compiled.model.graph.outputs}
    dtypes = [dtype_of(values[name]) for name in outputs]
    return [(i, d.numpy) for i, d in enumerate(dtypes) if d.name == "bfloat16"]
