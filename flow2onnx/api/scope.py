"""Scopes: placement, names, logical views."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flow2onnx_runtime.world import launched_world

from flow2onnx.errors import ArgumentError, ConfigError
from flow2onnx.source import user_frame
from flow2onnx.trace.blob import ParallelConf
from flow2onnx.trace.context import current_job, traced_job
from flow2onnx.trace.distribution import rank_of_devices

__all__ = [
    "LogicalView",
    "ParallelDesc",
    "Placement",
    "Scope",
    "config",
    "consistent_view",
    "consistent_view_enabled",
    "current_scope",
    "mirrored_view",
    "mirrored_view_enabled",
    "namespace",
    "placement",
]

_TAGS = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu"}
# What the last begins, several attributes begin with.
_ATTRIBUTES = (
    "checkpointing",
    "pipeline_stage_id_hint",
    "quantization_aware_training",
    "ssp_",
)
_RANGE = re.compile(r"@?\d+:\d+(-\d+)?")  # machine:device or machine:first-last


@dataclass(frozen=True)
class Placement:
    """Where operators and variables made inside run; also a `default_placement_scope`."""

    device_tag: str
    device_ids: tuple[str, ...]

    def __enter__(self) -> "Placement":
        job = current_job("scope.placement")
        place = rank_of_devices(job, self.device_ids)
        job.devices.add(self.device_tag)
        job.placements.append((self.device_tag, job.b.place))
        job.b.place = place
        return self

    def __exit__(self, *error: object) -> None:
        job = current_job("scope.placement")
        _, job.b.place = job.placements.pop()


def placement(
    device_tag: str, machine_device_ids: str | Sequence[str], hierarchy: Any = None
) -> Placement:
    """``placement("gpu", "0:0")``: a device tag and one or several ``machine:device`` ranges.

    The jobs of a session run on one kind of device, the GPU if anything is placed there. Of a train
    job that several processes share, the one that plays the device computes what is placed there,
    and keeps the variables made there.
    """
    if device_tag not in _TAGS:
        raise ArgumentError(
            f"device tag {device_tag!r} is not one of {', '.join(_TAGS)}",
            op="scope.placement",
            source=user_frame(),
            hint='write flow.scope.placement("gpu", "0:0")',
        )
    given: Any = machine_device_ids
    ids = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not ids or not all(isinstance(i, str) and _RANGE.fullmatch(i) for i in ids):
        raise ArgumentError(
            f"{machine_device_ids!r} names no device",
            op="scope.placement",
            source=user_frame(),
            hint='write "0:0", "0:0-3" or a list of such ranges',
        )
    return Placement(_TAGS[device_tag], ids)


@contextmanager
def namespace(name: str) -> Iterator[None]:
    """Prefix the names of operators and variables made inside with ``name-``."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"a namespace is a name, got {name!r}",
            op="scope.namespace",
            source=user_frame(),
            hint='write with flow.scope.namespace("encoder"):',
        )
    with current_job("scope.namespace").namespace(name):
        yield


@dataclass(frozen=True)
class LogicalView:
    """The logical view: inputs and results are whole (consistent) or one a device (mirrored).

    On one device both hold the same values; what changes is what `mirrored_view_enabled` says.
    """

    view: str

    def __enter__(self) -> "LogicalView":
        current_job(f"scope.{self.view}_view").views.append(self.view)
        return self

    def __exit__(self, *error: object) -> None:
        current_job(f"scope.{self.view}_view").views.pop()


def consistent_view() -> LogicalView:
    """Blobs are whole, however many devices hold them."""
    return LogicalView("consistent")


def mirrored_view() -> LogicalView:
    """Blobs are one device's piece."""
    return LogicalView("mirrored")


def mirrored_view_enabled() -> bool:
    """True if the mirrored view holds here in the job being traced."""
    job = traced_job()
    return job is not None and job.views[-1] == "mirrored"


def consistent_view_enabled() -> bool:
    """True if the consistent view holds here."""
    return not mirrored_view_enabled()


@dataclass(frozen=True)
class ParallelDesc:
    """The kind of the devices of a scope, and how many share its work."""

    device_tag: str
    parallel_num: int

    @property
    def parallel_conf(self) -> ParallelConf:
        """The same, as of a blob."""
        return ParallelConf(self.device_tag, tuple(f"0:{i}" for i in range(self.parallel_num)))


@dataclass(frozen=True)
class Scope:
    """Where a call stands in the body of a job: its device, its view and its namespaces."""

    device_tag: str
    parallel_num: int
    is_mirrored: bool
    namespace: str

    @property
    def device_parallel_desc_symbol(self) -> ParallelDesc:
        """The devices of the scope, as code written for OneFlow asks for them."""
        return ParallelDesc(self.device_tag, self.parallel_num)


def current_scope() -> Scope:
    """The scope at this place of the job being traced."""
    job = current_job("current_scope")
    world, name = launched_world(), job.full_name("").removesuffix("-")
    return Scope(job.device_tag, world.size, mirrored_view_enabled(), name)


@contextmanager
def config(**kwargs: Any) -> Iterator[None]:
    """Attributes of a scope, which steer OneFlow's engine and change no value."""
    unknown = [name for name in kwargs if not name.startswith(_ATTRIBUTES)]
    if unknown:
        raise ConfigError(
            f"no attribute of a scope is named {unknown[0]}",
            op="experimental.scope.config",
            source=user_frame(),
            hint=f"they are named {', '.join(_ATTRIBUTES)}",
        )
    current_job("experimental.scope.config")
    yield
