"""The memory of a step elsewhere: what a trainer needs for a bundle, as far as shapes tell."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from flow2onnx.compile import CompiledJob
from flow2onnx.engine.memory import MemoryLine, kept_bytes, memory_lines, needed_bytes
from flow2onnx.engine.opening import Opening, plan_portable_opening
from flow2onnx.onnx_io.known_sizes import known_sizes

__all__ = ["footprint", "footprint_bytes"]


def footprint(
    job: CompiledJob, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[MemoryLine, ...]:
    """The memory of a step on the CPU, by kind; axes of free size have that of `sizes`, or 1."""
    return memory_lines(_opening(job, sizes))


def footprint_bytes(jobs: Sequence[CompiledJob], sizes: Mapping[str, int]) -> int:
    """The bytes of jobs on the CPU that are open and run in turn, with what the runtime keeps."""
    openings = [_opening(job, sizes) for job in jobs]
    return needed_bytes(openings) + kept_bytes(openings)


def _opening(job: CompiledJob, sizes: Mapping[str, int]) -> Opening:
    return replace(plan_portable_opening(job), model=known_sizes(job.model, sizes))
