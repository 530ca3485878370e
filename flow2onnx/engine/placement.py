"""Where jobs run: the device that placements and settings ask for, and the provider for it."""

import functools
import logging
from collections.abc import Iterable

from flow2onnx_runtime import usable_providers, why_unusable
from flow2onnx_runtime.plugins import is_listed, known_providers, register_libraries
from flow2onnx_runtime.providers import CPU, find_provider

from flow2onnx.config import FunctionConfig
from flow2onnx.errors import ConfigError, FlowError

__all__ = ["asked_provider", "best_device", "provider_name", "provider_of"]

_PROVIDER, _LIBRARY = "runtime.provider", "runtime.provider_library"
_log = logging.getLogger("flow2onnx.execute")


def provider_name(device: str) -> str:
    """The runtime's name for a provider by its tag, or by the tag of a placement on it."""
    return find_provider(device, known_providers()).name


def asked_provider(configs: Iterable[FunctionConfig]) -> str | None:
    """The tag of the provider that jobs ask for by `runtime.provider`; None where none does.

    Their libraries are registered first. Raises `ConfigError` where two jobs ask for different
    ones, as the jobs of a session share their variables, and `OptionsError` for an unknown one.
    """
    found: dict[str, str | None] = {}
    for config in configs:
        word, library = config.value(_PROVIDER), config.value(_LIBRARY)
        source = config.source(_PROVIDER) or config.source(_LIBRARY)
        try:
            register_libraries([] if library is None else [library])
            if word is not None:
                found.setdefault(find_provider(word, known_providers()).tag, source)
        except FlowError as error:
            raise error.located(None, None, source) from None
    if len(found) > 1:
        raise ConfigError(
            f"jobs of one session ask for {' and '.join(map(repr, found))}",
            source=list(found.values())[-1],
            hint="they share variables and run in one place: set one runtime.provider",
        )
    return next(iter(found), None)


@functools.cache
def best_device() -> str:
    """Where jobs without a placement run: on the GPU when the runtime can use it."""
    return "gpu" if provider_name("gpu") in usable_providers() else "cpu"


@functools.cache
def provider_of(device: str, placement: str | None = None) -> str:
    """The runtime's name for a device tag, or for the tag of a provider.

    As in OneFlow, "gpu" on a build without GPU support means the CPU, and says so once; a GPU
    build whose libraries are missing is an error when the session is opened, and so is a provider
    that is asked for by its own tag. `placement` is the flag of that name: "strict" makes the first
    an error too, "best effort" the others a warning.
    """
    provider = provider_name(device)
    if placement == "best effort" and provider not in usable_providers():
        _log.warning("%s cannot be used, jobs placed on %r run on the CPU: %s",
                     provider, device, why_unusable(provider))  # fmt: skip
        return CPU.name
    if placement is None and device == "gpu" and not is_listed(provider):
        _log.warning("this onnxruntime is a CPU build: jobs placed on %r run on the CPU", device)
        return CPU.name
    return provider
