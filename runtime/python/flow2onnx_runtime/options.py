"""How a session is opened: providers, threads, optimisation; and which providers really work."""

import contextlib
import ctypes
import difflib
import functools
import io
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnxruntime as ort
import onnxruntime.capi as _capi

from flow2onnx_runtime.errors import BundleError, OptionsError, ProviderError
from flow2onnx_runtime.graph_cache import GraphCache
from flow2onnx_runtime.ort_settings import (
    check_provider_option,
    check_run_entry,
    check_session_entry,
)

__all__ = [
    "DEFAULT_OPTIONS",
    "Model",
    "Options",
    "Provider",
    "open_session",
    "require_providers",
    "usable_providers",
    "why_unusable",
]

Provider = str | tuple[str, Mapping[str, str]]
Model = bytes | str | os.PathLike[str]

_CPU = "CPUExecutionProvider"
_CUDA = "CUDAExecutionProvider"
_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_SEVERITIES = {"info": 1, "warning": 2, "error": 3, "fatal": 4}
# Providers whose tensors live in CUDA memory; the others take and give host memory.
_ON_CUDA = (
    "CUDAExecutionProvider",
    "TensorrtExecutionProvider",
    "NvTensorRTRTXExecutionProvider",
)
# provider: (the package whose onnxruntime has it, the libraries it opens when a session asks)
_NEEDS = {
    "CUDAExecutionProvider": ("onnxruntime-gpu[cuda,cudnn]", "an NVIDIA driver, CUDA and cuDNN 9"),
    "TensorrtExecutionProvider": ("onnxruntime-gpu[cuda,cudnn]", "CUDA and libnvinfer.so.10"),
    "DmlExecutionProvider": ("onnxruntime-directml", "DirectX 12"),
    "OpenVINOExecutionProvider": ("onnxruntime-openvino", "OpenVINO"),
    "QNNExecutionProvider": ("onnxruntime-qnn", "the Qualcomm AI runtime"),
    "CoreMLExecutionProvider": ("onnxruntime on macOS", "CoreML"),
}
# y = Identity(x), float32 of shape (1,), opset 21, IR 10: what any provider can open.
_PROBE = (
    b'\x08\n:=\n\x12\n\x01x\x12\x01y"\x08Identity:\x00\x12\x05probe'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x15"
)


@dataclass(frozen=True)
class Options:
    """How models are opened; one value serves any number of sessions.

    `providers`: in order of preference, each a name or (name, its options). With `strict`, one
    that is not really used is an error; without, a warning. Threads: None leaves the runtime's
    choice, one per core. `optimization`: disable, basic, extended or all.
    `session_entries`: the runtime's configuration entries, such as
    ``{"session.intra_op.allow_spinning": "0"}``; `run_entries`: those of every run. `log_level`:
    info, warning, error or fatal; errors are raised with their text, so there is no need to have
    them logged as well. `profile`: how the name of a trace begins, which is written when the
    session is dropped. `host_results`: whether a run on a device itself brings its results to the
    host, or leaves them there to be copied afterwards. `shared_threads`: the session uses the one
    pool of threads of `onnxruntime.set_global_thread_pool_sizes`, in place of one of its own.
    `operator_libraries`: shared libraries with operators of their own, by path.
    `optimized_path`: the file to which the runtime writes the graph as it has optimised it.
    `graph_cache`: a folder where graphs of CPU sessions are kept as the runtime has rewritten them,
    which then open in a third of the time; it never takes more than 2 GB.
    """

    providers: tuple[Provider, ...] = (_CPU,)
    intra_op_threads: int | None = None
    inter_op_threads: int | None = None
    parallel: bool = False
    memory_pattern: bool = False
    memory_reuse: bool = True
    cpu_arena: bool = True
    optimization: str = "all"
    deterministic: bool = False
    session_entries: Mapping[str, str] = field(default_factory=dict)
    run_entries: Mapping[str, str] = field(default_factory=dict)
    profile: str | None = None
    host_results: bool = False
    shared_threads: bool = False
    graph_cache: str | None = None
    strict: bool = True
    log_level: str = "fatal"
    optimized_path: str | None = None
    operator_libraries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_choice("optimization", self.optimization, _LEVELS)
        _check_choice("log_level", self.log_level, _SEVERITIES)
        _check_threads("intra_op_threads", self.intra_op_threads)
        _check_threads("inter_op_threads", self.inter_op_threads)
        _check_providers(self.providers)
        _check_entries("session entry", self.session_entries, check_session_entry)
        _check_entries("run entry", self.run_entries, check_run_entry)

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The providers asked for, without their options."""
        return tuple(_split(p)[0] for p in self.providers)

    def for_training(self) -> "Options":
        """The same for a training step: without the layout rewrites that level "all" adds.

        The weights of a step are inputs, for which the runtime has no blocked convolutions, so
        these rewrites only reorder tensors around pools.
        """
        return replace(self, optimization="extended") if self.optimization == "all" else self

    @property
    def device(self) -> tuple[str, int]:
        """Where the first provider keeps its tensors: ``("cpu", 0)`` or ``("cuda", device_id)``."""
        name, settings = _split(self.providers[0])
        return ("cuda", int(settings.get("device_id", "0"))) if name in _ON_CUDA else ("cpu", 0)

    @property
    def captures(self) -> bool:
        """Whether runs are captured as CUDA graphs and replayed."""
        name, settings = _split(self.providers[0])
        return name == _CUDA and settings.get("enable_cuda_graph", "0") == "1"


def _check_choice(name: str, value: object, choices: Mapping[str, object]) -> None:
    if value not in choices:
        raise OptionsError(f"{name} is {value!r}", hint=f"choose one of {', '.join(choices)}")


def _check_threads(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise OptionsError(
            f"{name} is {value!r}", hint="give a number of at least 1, or None for one per core"
        )


def _check_providers(providers: object) -> None:
    if not isinstance(providers, tuple) or not providers:
        raise OptionsError(
            f"providers is {providers!r}", hint=f"give a tuple of names, such as ({_CPU!r},)"
        )
    for provider in providers:
        if not isinstance(provider, str) and not _is_name_with_options(provider):
            raise OptionsError(
                f"provider {provider!r} is neither a name nor (name, options)",
                hint="options are a mapping of str to str, such as {'device_id': '0'}",
            )
        name, settings = _split(provider)
        for option, value in settings.items():
            check_provider_option(name, option, value)


def _split(provider: Provider) -> tuple[str, Mapping[str, str]]:
    return (provider, {}) if isinstance(provider, str) else provider


def _is_name_with_options(provider: object) -> bool:
    match provider:
        case (str(), Mapping() as settings):
            return all(isinstance(k, str) and isinstance(v, str) for k, v in settings.items())
    return False


def _check_entries(
    what: str, entries: Mapping[str, str], check: Callable[[str, str], None]
) -> None:
    for key, value in entries.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise OptionsError(
                f"{what} {key!r}: {value!r} is not one the runtime knows",
                hint="names and values are text: 'session.disable_prepacking': '1'",
            )
        check(key, value)


DEFAULT_OPTIONS = Options()


def open_session(
    model: Model, options: Options = DEFAULT_OPTIONS, initializers: Mapping[str, Any] | None = None
) -> Any:
    """An `onnxruntime.InferenceSession` for a model's bytes or file, on the providers asked for.

    `initializers` (name to OrtValue on the host) replace initializers that the model has as
    external data; the caller keeps the values alive. Raises `ProviderError` if a provider is
    missing or would silently not be used, and `BundleError` if the model cannot be opened.
    """
    what = _checked_model(model)
    providers = _available(options)
    settings = _session_options(options)
    if initializers:
        # add_initializer would come too late: what the optimizer made of the old values stays
        settings.add_external_initializers(list(initializers), list(initializers.values()))
    try:
        if options.graph_cache and not initializers and providers == [_CPU]:
            session = _create_kept(model, settings, options)
        else:
            session = _create(model, settings, providers)
    except Exception as error:  # the runtime's exceptions have no common base
        _blame_provider(providers, error)
        raise BundleError(
            f"{what} cannot be opened: {error}",
            hint=f"onnxruntime {ort.__version__} must know its opset, operators and types",
        ) from error
    _check_used(options, session.get_providers())
    return session


def usable_providers() -> tuple[str, ...]:
    """The providers that a session can really be opened on, in the runtime's order.

    `onnxruntime.get_available_providers()` names those compiled in, also where their libraries
    are missing.
    """
    return tuple(name for name in ort.get_available_providers() if _opens(name))


def require_providers(options: Options) -> None:
    """Raise `ProviderError` unless each provider asked for opens a session; else return at once.

    For whoever takes memory on the device before there is a session.
    """
    for provider, name in zip(options.providers, options.provider_names, strict=True):
        if name != _CPU and not _opens(provider):
            raise ProviderError(_unusable(name), hint=why_unusable(name))


def why_unusable(name: str) -> str:
    """Why no session opens on a provider here, and what to do: the library that is missing."""
    if name not in ort.get_available_providers():
        return _how_to_get(name)
    return _how_to_repair(name)


def _checked_model(model: Model) -> str:
    if isinstance(model, bytes):
        return f"the model ({len(model)} bytes)"
    path = Path(model)
    if not path.is_file():
        raise BundleError(f"{path} is not there", hint="give the path of an .onnx file")
    return str(path)


def _session_options(options: Options) -> Any:
    settings = ort.SessionOptions()
    settings.graph_optimization_level = _LEVELS[options.optimization]
    settings.log_severity_level = _SEVERITIES[options.log_level]
    settings.enable_mem_pattern = options.memory_pattern
    settings.enable_mem_reuse = options.memory_reuse
    settings.enable_cpu_mem_arena = options.cpu_arena
    settings.use_deterministic_compute = options.deterministic
    if options.shared_threads:
        settings.use_per_session_threads = False
    if options.intra_op_threads is not None:
        settings.intra_op_num_threads = options.intra_op_threads
    if options.inter_op_threads is not None:
        settings.inter_op_num_threads = options.inter_op_threads
    if options.parallel or options.inter_op_threads is not None:
        settings.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    if options.profile is not None:
        settings.enable_profiling = True
        settings.profile_file_prefix = options.profile
    for library in options.operator_libraries:
        settings.register_custom_ops_library(library)
    if options.optimized_path is not None:
        settings.optimized_model_filepath = options.optimized_path
    for key, value in options.session_entries.items():
        settings.add_session_config_entry(key, value)
    return settings


def _available(options: Options) -> list[Provider]:
    compiled_in = ort.get_available_providers()
    missing = [name for name in options.provider_names if name not in compiled_in]
    if missing:
        _complain(options, missing[0], why_unusable(missing[0]))
    kept = [
        p
        for p, name in zip(options.providers, options.provider_names, strict=True)
        if name not in missing
    ]
    return kept or [_CPU]


def _create(model: Model, settings: Any, providers: Sequence[Provider]) -> Any:
    asked = [p if isinstance(p, str) else (p[0], dict(p[1])) for p in providers]
    if any(_split(p)[0] in _ON_CUDA for p in providers):
        _preload_cuda()
    source = model if isinstance(model, bytes) else os.fspath(model)
    # Without enable_fallback=0 a provider that fails becomes a CPU session with a printed line.
    return ort.InferenceSession(source, settings, providers=asked, enable_fallback=0)


def _create_kept(model: Model, settings: Any, options: Options) -> Any:
    """A CPU session whose graph is kept in the folder that the options name."""
    content = model if isinstance(model, bytes) else Path(model).read_bytes()
    if b"\n\x08location" in content:  # weights in another file, by which the key does not go
        return _create(model, settings, [_CPU])
    decisive = (
        options.optimization, options.deterministic, options.memory_pattern, options.parallel,
        sorted(options.session_entries.items()), options.operator_libraries,
    )  # fmt: skip
    cache = GraphCache(Path(options.graph_cache or "").expanduser())
    return cache.open(content, repr(decisive), lambda m, s: _create(m, s, [_CPU]), settings)


@functools.cache
def _preload_cuda() -> None:
    """Load CUDA and cuDNN from pip's nvidia packages, where the loader does not look."""
    if hasattr(ort, "preload_dlls"):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
            ort.preload_dlls()


def _blame_provider(providers: Sequence[Provider], error: Exception) -> None:
    for provider in providers:
        name = _split(provider)[0]
        if name != _CPU and not _opens(provider):
            raise ProviderError(
                f"{name} cannot be used: {error}", hint=why_unusable(name)
            ) from error


def _check_used(options: Options, used: Sequence[str]) -> None:
    for name in options.provider_names:
        if name not in used and name in ort.get_available_providers():
            _complain(options, name, why_unusable(name))


def _complain(options: Options, name: str, remedy: str) -> None:
    message = _unusable(name)
    if options.strict:
        raise ProviderError(message, hint=remedy)
    warnings.warn(f"{message} ({remedy})", RuntimeWarning, stacklevel=4)


def _unusable(name: str) -> str:
    usable = ", ".join(usable_providers())
    return f"{name} was asked for and cannot be used; usable here: {usable}"


def _how_to_get(name: str) -> str:
    known = ort.get_all_providers()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        return f"did you mean {close[0]}?" if close else f"providers are {', '.join(known)}"
    package = _NEEDS.get(name, ("an onnxruntime built with it", ""))[0]
    return (
        f"install {package} in place of the onnxruntime here: the two overwrite each other, "
        f"so uninstall the present one first"
    )


def _how_to_repair(name: str) -> str:
    libraries = _NEEDS.get(name, ("", "the libraries it needs"))[1]
    needs = f"{name} needs {libraries}, of the versions that onnxruntime {ort.__version__} names"
    fault = _load_fault(name)
    return f"{needs}; loading it says: {fault}" if fault else needs


def has_library(name: str) -> bool:
    """Whether a provider is a library of its own, opened when a session asks for it."""
    return bool(_libraries(name.removesuffix("ExecutionProvider").lower()))


def _load_fault(name: str) -> str | None:
    """What the system's loader says of a provider's library, which names the one it lacks.

    Only for a provider that the runtime has tried: one loaded before it would stay unusable.
    """
    own = _libraries(name.removesuffix("ExecutionProvider").lower())
    try:
        for file in (*_libraries("shared"), *own):
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return None


def _libraries(stem: str) -> list[Path]:
    return list(Path(next(iter(_capi.__path__))).glob(f"*onnxruntime_providers_{stem}.*"))


def _opens(provider: Provider) -> bool:
    name = _split(provider)[0]
    if name not in ort.get_available_providers():
        return False  # the runtime would say so on stderr too
    settings = ort.SessionOptions()
    settings.log_severity_level = _SEVERITIES["fatal"]
    try:
        return name in _create(_PROBE, settings, [provider]).get_providers()
    except Exception:  # whatever the reason, it does not open
        return False
