"""Scopes: placement, names, logical views."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from flow2onnx.errors import ArgumentError
from flow2onnx.trace.context import current_job, traced_job
from flow2onnx.trace.source import user_frame

__all__ = [
    "LogicalView",
    "Placement",
    "consistent_view",
    "consistent_view_enabled",
    "mirrored_view",
    "mirrored_view_enabled",
    "namespace",
    "placement",
]

_TAGS = {"cpu": "cpu", "gpu": "gpu", "cuda": "gpu"}


@dataclass(frozen=True)
class Placement:
    """Where operators and variables made inside run; also a `default_placement_scope`."""

    device_tag: str
    device_ids: tuple[str, ...]

    def __enter__(self) -> "Placement":
        current_job("scope.placement").devices.add(self.device_tag)
        return self

    def __exit__(self, *error: object) -> None:
        return None


def placement(
    device_tag: str, machine_device_ids: str | Sequence[str], hierarchy: Any = None
) -> Placement:
    """``placement("gpu", "0:0")``: a device tag and one or several ``machine:device`` ranges.

    A job runs on one device, the GPU if any part is placed there; more devices change no value.
    """
    if device_tag not in _TAGS:
        raise ArgumentError(
            f"device tag {device_tag!r} is not one of {', '.join(_TAGS)}", source=user_frame()
        )
    ids = (
        (machine_device_ids,) if isinstance(machine_device_ids, str) else tuple(machine_device_ids)
    )
    for device in ids:
        _check_range(device)
    return Placement(_TAGS[device_tag], ids)


def _check_range(text: str) -> None:
    machine, _, devices = str(text).removeprefix("@").partition(":")
    first, _, last = devices.partition("-")
    if not (machine.isdigit() and first.isdigit() and (not last or last.isdigit())):
        raise ArgumentError(
            f"{text!r} names no device", source=user_frame(), hint='write "0:0" or "0:0-3"'
        )


@contextmanager
def namespace(name: str) -> Iterator[None]:
    """Prefix the names of operators and variables made inside with ``name-``."""
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"a namespace is a name, got {name!r}", source=user_frame())
    with current_job("scope.namespace").namespace(name):
        yield


@dataclass(frozen=True)
class LogicalView:
    """Whether inputs and results are whole (consistent) or one for each device (mirrored)."""

    view: str

    def __enter__(self) -> "LogicalView":
        current_job(f"scope.{self.view}_view")
        return self

    def __exit__(self, *error: object) -> None:
        return None


def consistent_view() -> LogicalView:
    """Blobs are whole, however many devices hold them."""
    return LogicalView("consistent")


def mirrored_view() -> LogicalView:
    """Blobs are one device's piece."""
    return LogicalView("mirrored")


def mirrored_view_enabled() -> bool:
    """Whether the job being traced has the mirrored view."""
    job = traced_job()
    return job is not None and job.spec.view == "mirrored"


def consistent_view_enabled() -> bool:
    """Whether the job being traced has the consistent view."""
    return not mirrored_view_enabled()
