"""The memory of a step elsewhere: what a trainer needs for a bundle, as far as shapes tell."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from flow2onnx.compile import CompiledJob
from flow2onnx.engine.memory import MemoryLine, memory_lines
from flow2onnx.engine.opening import plan_portable_opening
from flow2onnx.onnx_io.known_sizes import known_sizes

__all__ = ["footprint"]


def footprint(
    job: CompiledJob, sizes: Mapping[str, int] = MappingProxyType({})
) -> tuple[MemoryLine, ...]:
    """The memory of a step on the CPU, by kind; axes of free size have that of `sizes`, or 1."""
    opening = plan_portable_opening(job)
    return memory_lines(replace(opening, model=known_sizes(job.model, sizes)))
