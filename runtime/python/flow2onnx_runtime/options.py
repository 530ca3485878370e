"""How a session is opened: providers, threads, optimisation."""

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnxruntime as ort

from flow2onnx_runtime.allocator import map_large_blocks, release_free_blocks
from flow2onnx_runtime.batch_profiles import Rows, check_rows, with_profile
from flow2onnx_runtime.buffers import bytes_of, copy_to_buffer
from flow2onnx_runtime.cache_folders import make_folders, with_caches
from flow2onnx_runtime.dtypes import Array, as_bits, element_named
from flow2onnx_runtime.errors import BundleError, OptionsError, ProviderError
from flow2onnx_runtime.extensions import accelerator
from flow2onnx_runtime.graph_cache import GraphCache
from flow2onnx_runtime.input_shapes import input_shapes
from flow2onnx_runtime.model_check import OwnModel, check_model
from flow2onnx_runtime.ort_settings import FOLDER_ENTRY, check_run_entry, check_session_entry
from flow2onnx_runtime.plugins import is_listed, register_libraries
from flow2onnx_runtime.provider_checks import (
    Model,
    ProviderSpec,
    create_session,
    missing_device,
    opens,
    split,
    usable_providers,
    why_unusable,
)
from flow2onnx_runtime.providers import CPU, provider_named
from flow2onnx_runtime.run_errors import lacks_memory, run_error
from flow2onnx_runtime.session_options import SESSION_OPTIONS
from flow2onnx_runtime.trusted_libraries import trusted_library
from flow2onnx_runtime.world import rank_threads

__all__ = [
    "DEFAULT_OPTIONS",
    "Model",
    "Options",
    "open_session",
    "require_providers",
]

_LEVELS = {
    "disable": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
_FORMAT = "session.load_model_format"
_SEVERITIES = {"info": 1, "warning": 2, "error": 3, "fatal": 4}
_MODES = {False: ort.ExecutionMode.ORT_SEQUENTIAL, True: ort.ExecutionMode.ORT_PARALLEL}
# What the runtime takes for the value of a field, where that is not the value itself.
_RUNTIME_VALUES: Mapping[str, Mapping[Any, Any]] = {
    "optimization": _LEVELS, "log_level": _SEVERITIES, "parallel": _MODES,
}  # fmt: skip


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
    `operator_libraries`: shared libraries with operators of their own, by path;
    `provider_libraries`: those of plug-in providers, which the whole process has from then on; for
    both `trusted_library` has the rule of what is loaded.
    `optimized_path`: the file to which the runtime writes the graph as it has optimised it.
    `graph_cache`: a folder where graphs of CPU sessions are kept as the runtime has rewritten them,
    which then open in a third of the time; it never takes more than 2 GB.
    `native`: sessions on the CPU use the operators of the package flow2onnx-native where they gain,
    in models that predict and in steps that train; the files stay as they are.
    `batch_profile`: the least, the best and the most rows of a batch, for which a provider that
    builds engines ahead (TensorRT) builds one where the model leaves the rows free; others take any
    number in any case.
    `free_dimensions`: sizes by the names that the inputs of a model have for them, as the runtime's
    free dimension overrides: ``{"batch": 1, "sequence": 256}``. The session then takes no others,
    and what needs fixed shapes can be done: native operators in steps of adapters, engines and
    graphs of other providers.
    """

    providers: tuple[ProviderSpec, ...] = (CPU.name,)
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
    provider_libraries: tuple[str, ...] = ()
    batch_profile: Rows | None = None
    native: bool = False
    free_dimensions: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_choice("optimization", self.optimization, _LEVELS)
        _check_choice("log_level", self.log_level, _SEVERITIES)
        _check_threads("intra_op_threads", self.intra_op_threads)
        _check_threads("inter_op_threads", self.inter_op_threads)
        _check_providers(self.providers)
        if self.native and self.provider_names != CPU.names:
            raise OptionsError(
                f"native operators of models run on the CPU, and the providers are "
                f"{self.provider_names}",
                hint="leave native out, or open the model on the CPU",
            )
        if self.batch_profile is not None:
            check_rows(self.batch_profile)
        for dimension, size in self.free_dimensions.items():
            _check_size(dimension, size)
        _check_entries("session entry", self.session_entries, check_session_entry)
        _check_entries("run entry", self.run_entries, check_run_entry)

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The providers asked for, without their options."""
        return tuple(split(p)[0] for p in self.providers)

    def for_training(self) -> "Options":
        """The same for a training step: without the layout rewrites that level "all" adds.

        The weights of a step are inputs, for which the runtime has no blocked convolutions, so
        these rewrites only reorder tensors around pools.
        """
        return replace(self, optimization="extended") if self.optimization == "all" else self

    @property
    def device(self) -> tuple[str, int]:
        """Where the first provider keeps its tensors: ``("cpu", 0)`` or ``("cuda", device_id)``."""
        name, settings = split(self.providers[0])
        memory = provider_named(name).memory
        return memory, 0 if memory == "cpu" else int(settings.get("device_id", "0"))

    @property
    def captures(self) -> bool:
        """True if runs are captured as CUDA graphs and replayed."""
        name, settings = split(self.providers[0])
        return settings.get(provider_named(name).capture_option or "", "0") == "1"


def _check_choice(name: str, value: object, choices: Mapping[str, object]) -> None:
    if value not in choices:
        raise OptionsError(f"{name} is {value!r}", hint=f"choose one of {', '.join(choices)}")


def _check_threads(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or value < 1):
        raise OptionsError(
            f"{name} is {value!r}", hint="give a number of at least 1, or None for one per core"
        )


def _check_size(dimension: object, size: object) -> None:
    is_size = isinstance(size, int) and not isinstance(size, bool) and size > 0
    if not isinstance(dimension, str) or not is_size:
        raise OptionsError(
            f"free_dimensions has {dimension!r}: {size!r}",
            hint="give a size of at least 1 for each name: {'batch': 1, 'sequence': 256}",
        )


def _check_providers(providers: object) -> None:
    if not isinstance(providers, tuple) or not providers:
        raise OptionsError(
            f"providers is {providers!r}", hint=f"give a tuple of names, such as ({CPU.name!r},)"
        )
    for provider in providers:
        if not isinstance(provider, str) and not _is_name_with_options(provider):
            raise OptionsError(
                f"provider {provider!r} is neither a name nor (name, options)",
                hint="options are a mapping of str to str, such as {'device_id': '0'}",
            )
        name, settings = split(provider)
        for option, value in settings.items():
            provider_named(name).check_option(option, value)


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


# A constant that is much larger than the model is made when it runs, not while it opens: a few
# bytes can ask for gigabytes.
_FOLDED = "optimization.constant_folding_max_output_size_in_bytes"
_LEAST_FOLDED = 1 << 26
_LARGE_MODEL = 1 << 24  # bytes

DEFAULT_OPTIONS = Options()


def open_session(
    model: Model | OwnModel,
    options: Options = DEFAULT_OPTIONS,
    initializers: Mapping[str, Any] | None = None,
) -> Any:
    """An `onnxruntime.InferenceSession` for a model's bytes or file, on the providers asked for.

    `initializers` (name to OrtValue on the host) replace initializers that the model has as
    external data; the caller keeps the values alive. Raises `ProviderError` if a provider is
    missing or would silently not be used, and `BundleError` if the model cannot be opened or has
    values in files outside its folder; a model given as bytes has no folder but that of the session
    entry `session.model_external_initializers_file_folder_path`. With `native` of the options, and
    without `initializers`, it runs on native operators; `UnsupportedError` where there are none.
    """
    if options.free_dimensions:
        _check_free_dimensions(model, options.free_dimensions)
    if options.native:
        return _open_native(*_native_form(model, options, initializers or {}))
    entries = options.session_entries
    if isinstance(model, OwnModel):
        model, is_alone = model.content, True
    else:
        is_alone = not _check(model, entries)
    what = f"the model ({len(model)} bytes)" if isinstance(model, bytes) else os.fspath(model)
    providers = [with_caches(provider) for provider in _available(options)]
    make_folders(providers)
    if options.batch_profile is not None:
        providers = with_profile(model, providers, options.batch_profile)
    settings = _session_options(options)
    size = _size(model) + sum(map(bytes_of, (initializers or {}).values()))
    if is_alone and _FOLDED not in entries:
        settings.add_session_config_entry(_FOLDED, str(max(_LEAST_FOLDED, 2 * size)))
    if initializers:
        # add_initializer would come too late: what the optimizer made of the old values stays
        settings.add_external_initializers(list(initializers), list(initializers.values()))
    try:
        # the cache's key goes by the model alone
        if options.graph_cache and is_alone and not initializers and providers == [CPU.name]:
            session = _create_kept(model, settings, options)
        else:
            session = create_session(model, settings, providers)
    except OptionsError:
        raise
    except Exception as error:  # the runtime's exceptions have no common base
        if lacks_memory(error):
            raise run_error(
                f"opening {what}", error, options.device, "nothing was opened"
            ) from error
        _blame_provider(providers, error)
        raise BundleError(
            f"{what} cannot be opened: {error}",
            hint=f"onnxruntime {ort.__version__} must know its opset, operators and types",
        ) from error
    _check_used(options, session.get_providers())
    if size >= _LARGE_MODEL:
        release_free_blocks()  # half of what a process takes, with weights that got another form
    return session


def _open_native(model: Model | OwnModel, options: Options, initializers: Mapping[str, Any]) -> Any:
    with map_large_blocks():  # weights get other forms, and those before are of no use
        session = open_session(model, options, initializers)
    session.initializers = initializers  # which it reads where they are
    return session


def _native_form(
    model: Model | OwnModel, options: Options, initializers: Mapping[str, Any]
) -> tuple[Model | OwnModel, Options, Mapping[str, Any]]:
    """The model to open in the place of another, its options, and values of its initializers.

    Large ones stay out of the message, which the runtime would copy twice. Weights that the caller
    keeps stay where they are: the model is as it was.
    """
    plain, native = replace(options, native=False), accelerator(True)
    if native is None or initializers:
        return model, plain, initializers
    source = model.content if isinstance(model, OwnModel) else model
    tensors = dict[str, Array]()
    is_kept = bool(options.graph_cache)  # by the content of the message, with all values
    found, own_options = native.accelerate(source, plain, None if is_kept else tensors)
    if found is source:
        return model, plain, {}
    if not tensors:
        return found, own_options, {}
    assert isinstance(found, bytes), "a message made anew"
    return OwnModel(found), own_options, {n: _value(tensors.pop(n)) for n in tuple(tensors)}


def _value(array: Array) -> Any:
    element = element_named(array.dtype.name)
    return copy_to_buffer(("cpu", 0), as_bits(array, element), element).value


def _check_free_dimensions(model: Model | OwnModel, sizes: Mapping[str, int]) -> None:
    """Raise `OptionsError` for a size that no input of a model has, which the runtime ignores."""
    model = model.content if isinstance(model, OwnModel) else model
    _check_presence(model)
    shapes = input_shapes(model, "free_dimensions").values()
    names = {size: None for shape in shapes for size in shape if isinstance(size, str)}
    unknown = [name for name in sizes if name not in names]
    if unknown:
        have = ", ".join(names) or "no free dimensions"
        raise OptionsError(
            f"free_dimensions has {unknown[0]!r}, which no input has", hint=f"inputs have {have}"
        )


def require_providers(options: Options) -> None:
    """Raise `ProviderError` unless each provider asked for opens a session; else return at once.

    For whoever takes memory on the device before there is a session.
    """
    register_libraries(options.provider_libraries)
    make_folders(options.providers)
    for provider, name in zip(options.providers, options.provider_names, strict=True):
        if name != CPU.name and not opens(provider):
            why = missing_device(provider) or why_unusable(name)
            raise ProviderError(_unusable(name), hint=why)


def _check_presence(model: Model) -> None:
    if not isinstance(model, bytes) and not Path(model).is_file():
        raise BundleError(f"{model} is not there", hint="give the path of an .onnx file")


def _check(model: Model, entries: Mapping[str, str]) -> bool:
    """True if the model has values in other files; `BundleError` for one that nobody may open."""
    _check_presence(model)
    folder, form = entries.get(FOLDER_ENTRY), entries.get(_FORMAT, "")
    return check_model(model, folder=folder, load_format=form)


def _size(model: Model) -> int:
    return len(model) if isinstance(model, bytes) else os.path.getsize(model)


def _session_options(options: Options) -> Any:
    settings = ort.SessionOptions()
    if threads := rank_threads():
        settings.intra_op_num_threads = threads  # unless told below
    for field_name, (*switches, attribute) in SESSION_OPTIONS.items():
        value = getattr(options, field_name)
        if value is not None:
            values = _RUNTIME_VALUES.get(field_name)
            setattr(settings, attribute, value if values is None else values[value])
            for switch in switches:
                setattr(settings, switch, True)
    for dimension, size in options.free_dimensions.items():
        settings.add_free_dimension_override_by_name(dimension, size)
    if options.inter_op_threads is not None:
        settings.execution_mode = ort.ExecutionMode.ORT_PARALLEL
    if options.shared_threads:
        settings.use_per_session_threads = False
    for library in map(trusted_library, options.operator_libraries):
        settings.register_custom_ops_library(library)
    for key, value in options.session_entries.items():
        settings.add_session_config_entry(key, value)
    return settings


def _available(options: Options) -> list[ProviderSpec]:
    register_libraries(options.provider_libraries)
    missing = {
        name: missing_device(p) or why_unusable(name)
        for p, name in zip(options.providers, options.provider_names, strict=True)
        if not is_listed(name) or missing_device(p)
    }
    if missing:
        _complain(options, *next(iter(missing.items())))
    kept = [
        p
        for p, name in zip(options.providers, options.provider_names, strict=True)
        if name not in missing
    ]
    return kept or [CPU.name]


def _create_kept(model: Model, settings: Any, options: Options) -> Any:
    """A CPU session whose graph is kept in the folder that the options name."""
    content = model if isinstance(model, bytes) else Path(model).read_bytes()
    decisive = (
        options.optimization, options.deterministic, options.memory_pattern, options.parallel,
        sorted(options.session_entries.items()), options.operator_libraries,
        sorted(options.free_dimensions.items()),
    )  # fmt: skip
    cache = GraphCache(Path(options.graph_cache or "").expanduser())
    return cache.open(
        content, repr(decisive), lambda m, s: create_session(m, s, [CPU.name]), settings
    )


def _blame_provider(providers: Sequence[ProviderSpec], error: Exception) -> None:
    for provider in providers:
        name = split(provider)[0]
        if name != CPU.name and not opens(provider):
            raise ProviderError(
                f"{name} cannot be used: {error}", hint=why_unusable(name)
            ) from error


def _check_used(options: Options, used: Sequence[str]) -> None:
    for name in options.provider_names:
        if name not in used and is_listed(name):
            _complain(options, name, why_unusable(name))


def _complain(options: Options, name: str, remedy: str) -> None:
    message = _unusable(name)
    if options.strict:
        raise ProviderError(message, hint=remedy)
    warnings.warn(f"{message} ({remedy})", RuntimeWarning, stacklevel=4)


def _unusable(name: str) -> str:
    usable = ", ".join(usable_providers())
    return f"{name} was asked for and cannot be used; usable here: {usable}"
