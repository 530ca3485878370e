"""Where jobs run: the device that placements and settings ask for, and the provider for it."""

import functools
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flow2onnx_runtime import usable_providers, why_unusable
from flow2onnx_runtime.plugins import is_listed, known_providers, register_libraries
from flow2onnx_runtime.providers import CPU, find_provider
from flow2onnx_runtime.world import launched_world

from flow2onnx.compile import CompiledJob
from flow2onnx.config import FunctionConfig, Settings
from flow2onnx.errors import ConfigError, FlowError
from flow2onnx.trace.spec import JobSpec

__all__ = [
    "Device",
    "Placement",
    "best_device",
    "common_provider",
    "provider_name",
    "provider_of",
]

_PROVIDER, _LIBRARY = "runtime.provider", "runtime.provider_library"
_log = logging.getLogger("flow2onnx.execute")


class Device(NamedTuple):
    """The tag of a device, as placements have it, and its number among those of its kind."""

    tag: str = "cpu"
    number: int = 0


@dataclass(frozen=True)
class Placement:
    """The devices of a session's jobs, by its settings; `wish` is a tag that goes before all."""

    settings: Settings
    wish: str | None = None

    def device_of(self, jobs: Sequence[CompiledJob]) -> Device:
        """The one that all jobs run on, as they share variables: the GPU if any asks for it.

        The tag is that of a provider, where `runtime.provider` names one.
        """
        specs = [job.spec for job in jobs]
        number = _gpu_number(specs)
        tag = self.wish or common_provider(spec.config for spec in specs)
        if tag is not None:
            return Device(tag, number)
        tags = {tag for job in jobs for tag in job.devices or {self._default_tag(job.spec)}}
        return Device("gpu" if "gpu" in tags else "cpu", number)

    def target_providers(self) -> tuple[str, ...]:
        """The providers of which a job that is still to be compiled needs kernels."""
        has_gpu = self.settings.value("gpu_device_num") != 0 and self.wish != "cpu"
        tags = ("gpu", "cpu") if has_gpu and best_device() == "gpu" else ("cpu",)
        return tuple(provider_name(tag) for tag in tags)

    def device_count(self) -> int:
        """The devices that a mirrored job is fed for: the processes, or one that plays all."""
        processes = launched_world().size
        if processes > 1:
            return processes
        number = self.settings.value("gpu_device_num") or self.settings.value("cpu_device_num")
        return int(number or 1)

    def _default_tag(self, spec: JobSpec) -> str:
        scope = spec.config.value("default_placement_scope")
        if scope is not None:
            return str(scope.device_tag)
        return "cpu" if self.settings.value("gpu_device_num") == 0 else best_device()


def _gpu_number(specs: Iterable[JobSpec]) -> int:
    """The number of the GPU that a `default_placement_scope` names first; else the first."""
    scopes = [spec.config.value("default_placement_scope") for spec in specs]
    ids = [s.device_ids[0] for s in scopes if s is not None and s.device_tag == "gpu"]
    return int(ids[0].rpartition(":")[2].partition("-")[0]) if ids else 0


def provider_name(device: str) -> str:
    """The runtime's name for a provider by its tag, or by the tag of a placement on it."""
    return find_provider(device, known_providers()).name


def common_provider(configs: Iterable[FunctionConfig]) -> str | None:
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
    """The device of jobs without a placement: the GPU when the runtime can use it."""
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
