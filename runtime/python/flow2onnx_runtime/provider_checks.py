"""Which providers really open a session here, and what to do about one that does not."""

import contextlib
import ctypes
import functools
import importlib.util
import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort
import onnxruntime.capi as _capi

from flow2onnx_runtime.cuda_runtime import device_count
from flow2onnx_runtime.plugins import (
    add_device,
    is_by_device,
    is_installed,
    is_listed,
    known_providers,
    listed_providers,
    plugin_fault,
)
from flow2onnx_runtime.providers import CPU, provider_named
from flow2onnx_runtime.runtime_log import FATAL, silent_runtime
from flow2onnx_runtime.spelling import spelling_hint
from flow2onnx_runtime.trusted_libraries import trusted_library

__all__ = [
    "Model",
    "ProviderSpec",
    "create_session",
    "has_library",
    "missing_device",
    "opens",
    "split",
    "usable_providers",
    "why_unusable",
]

ProviderSpec = str | tuple[str, Mapping[str, str]]
Model = bytes | str | os.PathLike[str]

# y = Identity(x), float32 of shape (1,), opset 21, IR 10: what any provider can open.
_PROBE = (
    b'\x08\n:=\n\x12\n\x01x\x12\x01y"\x08Identity:\x00\x12\x05probe'
    b"Z\x0f\n\x01x\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01"
    b"b\x0f\n\x01y\x12\n\n\x08\x08\x01\x12\x04\n\x02\x08\x01B\x04\n\x00\x10\x15"
)


def usable_providers() -> tuple[str, ...]:
    """The providers that a session can really be opened on, in the runtime's order.

    `onnxruntime.get_available_providers()` names those compiled in, also where their libraries
    are missing. Of plug-in providers those count that were registered, by being asked for or by
    `Options.provider_libraries`.
    """
    return tuple(name for name in listed_providers() if opens(name))


def opens(provider: ProviderSpec) -> bool:
    """True if a session opens on a provider, with its options, and really has it."""
    name, given = split(provider)
    if not is_listed(name):
        return False  # the runtime would say so on stderr too
    settings = ort.SessionOptions()
    settings.log_severity_level = FATAL
    trial = (name, {**provider_named(name).probe_options, **given})
    try:
        with silent_runtime():  # libraries are opened by no session, whose settings would do
            return name in create_session(_PROBE, settings, [trial]).get_providers()
    except Exception:  # whatever the reason, it does not open
        return False


def create_session(model: Model, settings: Any, providers: Sequence[ProviderSpec]) -> Any:
    """An `onnxruntime.InferenceSession` on these providers, or the runtime's own exception.

    Raises `OptionsError` for an option that names a library that may not be loaded.
    """
    asked = [(name, _trusted_options(name, given)) for name, given in map(split, providers)]
    disabled = _UNRECORDABLE if any(_captures(*provider) for provider in asked) else None
    rows = [provider_named(name) for name, _ in asked]
    if any(row.memory == "cuda" for row in rows):
        _preload_cuda()
    for row in rows:
        for module, files in row.preloads.items():
            _preload(module, files)
    if any(is_by_device(name) for name, _ in asked):
        _add_providers(settings, asked)
        asked = []
    source = model if isinstance(model, bytes) else os.fspath(model)
    # Without enable_fallback=0 a provider that fails becomes a CPU session with a printed line.
    return ort.InferenceSession(
        source, settings, providers=asked, enable_fallback=0,
        disabled_optimizers=disabled,
    )  # fmt: skip


# Makes splits of slices, whose places CUDA copies from the host: a captured graph would read them
# there again at every launch.
_UNRECORDABLE = ("GatherSliceToSplitFusion",)


def _captures(name: str, given: Mapping[str, str]) -> bool:
    return given.get(provider_named(name).capture_option or "", "0") == "1"


def _trusted_options(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The options of a provider; of libraries with their folders, those that may be loaded."""
    resolved = {
        option: ";".join(_trusted_part(part) for part in given[option].split(";"))
        for option in provider_named(name).library_options
        if option in given
    }
    return {**given, **resolved}


def _trusted_part(library: str) -> str:
    return trusted_library(library) if os.path.basename(library) != library else library


def _add_providers(settings: Any, asked: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Give the settings the providers, plug-ins by their device; the CPU stands last by itself."""
    for name, options in asked:
        if is_by_device(name):
            add_device(settings, name, options)
        elif name != CPU.name:
            settings.add_provider(name, options)


def split(provider: ProviderSpec) -> tuple[str, Mapping[str, str]]:
    """The name of a provider and the options given with it."""
    return (provider, {}) if isinstance(provider, str) else provider


@functools.cache
def _preload_cuda() -> None:
    """Load CUDA and cuDNN from pip's nvidia packages, where the loader does not look."""
    if hasattr(ort, "preload_dlls"):
        with contextlib.redirect_stdout(io.StringIO()):  # it prints what it does not find
            ort.preload_dlls()


def missing_device(provider: ProviderSpec) -> str | None:
    """That the GPU which a provider is asked for is not there; None if it is, or nobody knows."""
    name, settings = split(provider)
    if provider_named(name).memory != "cuda" or not is_listed(name):
        return None
    _preload_cuda()
    number, count = int(settings.get("device_id", "0")), device_count()
    if count is None or number < count:
        return None
    seen = "none" if count == 0 else "GPU 0 alone" if count == 1 else f"GPUs 0 to {count - 1}"
    return f"there is no GPU {number}: CUDA shows this process {seen}; see CUDA_VISIBLE_DEVICES"


@functools.cache
def _preload(module: str, files: tuple[str, ...]) -> None:
    """Load libraries of a package, where it is installed: the provider's loader finds them then.

    One that cannot be loaded is left out: opening the provider names it.
    """
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in (Path(folder, file) for file in files):
            if path.is_file():
                with contextlib.suppress(OSError):
                    ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)


def why_unusable(name: str) -> str:
    """Why no session opens on a provider here, and what to do: the library that is missing."""
    return _how_to_repair(name) if is_listed(name) else _how_to_get(name)


def _how_to_get(name: str) -> str:
    row, known = provider_named(name), known_providers()
    if row.plugin is not None or is_installed(row.plugin_module):
        package = row.package if row.plugin else row.plugin_module
        lacks = f"{package} lists no device here: it needs {row.libraries}"
        return plugin_fault(name) or lacks
    if name not in known:
        return spelling_hint(name, known, f"providers are {', '.join(known)}", most=1)
    return f"{row.remedy}: the two overwrite each other, so uninstall the present one first"


def _how_to_repair(name: str) -> str:
    libraries = provider_named(name).libraries
    needs = f"{name} needs {libraries}, of the versions that onnxruntime {ort.__version__} names"
    fault = _load_fault(name)
    return f"{needs}; loading it says: {fault}" if fault else needs


def has_library(name: str) -> bool:
    """True if a provider is a library of its own, opened when a session asks for it."""
    return bool(_libraries(provider_named(name).tag))


def _load_fault(name: str) -> str | None:
    """The loader's message about a provider's library, which names the one it lacks.

    Only for a provider that the runtime has tried: one loaded before it would stay unusable.
    """
    own = _libraries(provider_named(name).tag)
    try:
        for file in (*_libraries("shared"), *own):
            ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)
    except OSError as error:
        return str(error)
    return None


def _libraries(stem: str) -> list[Path]:
    return list(Path(next(iter(_capi.__path__))).glob(f"*onnxruntime_providers_{stem}.*"))
