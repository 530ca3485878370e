"""Plug-in providers: shared libraries that the runtime registers, and the devices they list."""

import functools
import importlib
import importlib.util
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import onnxruntime as ort

from flow2onnx_runtime.errors import OptionsError, ProviderError
from flow2onnx_runtime.providers import CPU, provider_named
from flow2onnx_runtime.trusted_libraries import PackageLibrary, trusted_library

__all__ = [
    "add_device",
    "is_by_device",
    "is_installed",
    "is_listed",
    "known_providers",
    "listed_providers",
    "plugin_fault",
    "register_libraries",
]

_lock = threading.Lock()
_registered: set[str] = set()


def listed_providers() -> tuple[str, ...]:
    """The providers that the runtime has: those compiled in, then those of devices it lists."""
    names = (*ort.get_available_providers(), *(device.ep_name for device in _devices()))
    return tuple(dict.fromkeys(names))


def known_providers() -> tuple[str, ...]:
    """The providers that the runtime has a name for, here or in another build."""
    return tuple(dict.fromkeys((*ort.get_all_providers(), *listed_providers())))


def is_by_device(name: str) -> bool:
    """True for a provider that a session takes by a device of it, not by its name.

    A runtime that lists the name of a plug-in too may open a session on the CPU when asked by it,
    as 1.31.1 does.
    """
    if name not in ort.get_available_providers():
        return True
    return name != CPU.name and any(device.ep_name == name for device in _devices())


def is_listed(name: str) -> bool:
    """True if the runtime has a provider; the library of one that plugs in is registered first."""
    if name in listed_providers():
        return True
    is_plugin = provider_named(name).plugin_module is not None
    return is_plugin and plugin_fault(name) is None and name in listed_providers()


def is_installed(module: str | None) -> bool:
    """True if there is such a module; it is not imported."""
    return module is not None and importlib.util.find_spec(module) is not None


@functools.cache
def plugin_fault(name: str) -> str | None:
    """Why the package of a plug-in provider is not registered; None once it is."""
    row = provider_named(name)
    module = row.plugin_module
    if module is None or not is_installed(module):
        return row.remedy
    try:
        own = str(importlib.import_module(module).get_library_path())
        register_libraries([PackageLibrary(own)])
    except Exception as error:  # a package of others fails in any way
        package = row.package if row.plugin else module
        return f"{package} is installed and does not work: {error}"
    return None


def register_libraries(paths: Iterable[str]) -> None:
    """Register libraries of providers with the runtime, each once for the whole process.

    Raises `OptionsError` for a library that may not be loaded (see `trusted_library`), and
    `ProviderError` for one that the runtime does not take.
    """
    for path in map(trusted_library, paths):
        with _lock:
            if path not in _registered:
                _register(path)
                _registered.add(path)


def _register(path: str) -> None:
    if not hasattr(ort, "register_execution_provider_library"):
        raise ProviderError(
            f"onnxruntime {ort.__version__} takes no plug-in providers", hint="install a newer one"
        )
    try:
        ort.register_execution_provider_library(path, path)
    except Exception as error:  # the runtime's exceptions have no common base
        raise ProviderError(
            f"{path} cannot be registered as the library of a provider: {error}",
            hint=f"give the path of a plug-in made for onnxruntime {ort.__version__}",
        ) from error


def add_device(settings: Any, name: str, options: Mapping[str, str]) -> None:
    """Have a session run on a plug-in provider: on the device that ``device_id`` counts to, or 0.

    Raises `OptionsError` if there are not so many.
    """
    devices = [device for device in _devices() if device.ep_name == name]
    number = int(options.get("device_id", "0"))
    if number >= len(devices):
        raise OptionsError(
            f"device_id is {number}, and {name} lists {len(devices)} devices",
            hint="the first is number 0",
        )
    rest = {key: value for key, value in options.items() if key != "device_id"}
    settings.add_provider_for_devices([devices[number]], rest)


def _devices() -> list[Any]:
    """The devices that the runtime lists, each of one provider; none where it cannot."""
    return list(ort.get_ep_devices()) if hasattr(ort, "get_ep_devices") else []
