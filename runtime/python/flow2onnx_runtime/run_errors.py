"""Errors of runs: for want of memory, because its device has stopped, or by its values."""

import re

from flow2onnx_runtime.cuda_runtime import device_count, device_fault, free_device_bytes
from flow2onnx_runtime.errors import (
    DeviceError,
    FlowError,
    OutOfMemoryError,
    ProviderError,
    RunError,
)

__all__ = ["allocation_error", "copy_error", "lacks_memory", "run_error"]

Place = tuple[str, int]
# The runtime raises no type of its own for it.
_NO_MEMORY = re.compile(
    r"out of memory|failed to allocate memory|bad_alloc|available memory of .* is smaller",
    re.IGNORECASE,
)
_NEW_PROCESS = "nothing on it can be read: begin a new process and load a saved state"


def lacks_memory(error: Exception) -> bool:
    """True if the runtime says that memory could not be allocated."""
    return bool(_NO_MEMORY.search(str(error)))


def run_error(name: str, error: Exception, place: Place, hint: str) -> RunError:
    """The error of a run at a place, which ended with the runtime's own; `hint` is on the state."""
    stopped = _stopped(place)
    if stopped is not None:
        return DeviceError(f"{name} failed, and {stopped}", hint=_NEW_PROCESS)
    if lacks_memory(error):
        return OutOfMemoryError(
            f"{name} failed: {error}", hint=f"make the batch smaller, or free memory; {hint}"
        )
    return RunError(f"{name} failed: {error}", hint=hint)


def allocation_error(place: Place, size: int) -> FlowError:
    """Why there is no tensor of so many bytes on a device."""
    device, number = place
    count = device_count()
    if count is not None and number >= count:
        return ProviderError(
            f"there is no device {device}:{number}: CUDA shows {count} to this process",
            hint="numbers count what CUDA_VISIBLE_DEVICES leaves, from 0",
        )
    stopped = _stopped(place)
    if stopped is not None:
        return DeviceError(stopped, hint=_NEW_PROCESS)
    free = free_device_bytes(number)
    left = "" if free is None else f": {free:,} are free"
    return OutOfMemoryError(
        f"{device}:{number} has no memory for a tensor of {size:,} bytes{left}",
        hint="make the batch smaller, or free memory; what was there before is as it was",
    )


def copy_error(error: Exception, place: Place) -> RunError:
    """The error of a copy to or from a device, which ended with the runtime's own."""
    stopped = _stopped(place)
    if stopped is not None:
        return DeviceError(stopped, hint=_NEW_PROCESS)
    return run_error(f"a copy at {place[0]}:{place[1]}", error, place, "try it again")


def _stopped(place: Place) -> str | None:
    fault = device_fault(place[1]) if place[0] == "cuda" else None
    return None if fault is None else f"{place[0]}:{place[1]} has stopped: {fault}"
