"""Where jobs run: the device that placements and settings ask for, and the provider for it."""

import functools
import logging

from flow2onnx_runtime import usable_providers, why_unusable
from flow2onnx_runtime.providers import CPU, find_provider

__all__ = ["best_device", "provider_name", "provider_of"]

_log = logging.getLogger("flow2onnx.execute")


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
