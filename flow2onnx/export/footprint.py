"""The memory of a step elsewhere: what a trainer needs for a bundle, as far as shapes tell."""

from dataclasses import replace

from flow2onnx.compile import CompiledJob
from flow2onnx.engine.memory import MemoryLine, memory_lines
from flow2onnx.engine.opening import plan_portable_opening
from flow2onnx.onnx_io.unit_sizes import unit_sizes

__all__ = ["footprint"]


def footprint(job: CompiledJob) -> tuple[MemoryLine, ...]:
    """The memory of a step on the CPU, by kind; an axis of free size counts as one row."""
    opening = plan_portable_opening(job)
    return memory_lines(replace(opening, model=unit_sizes(job.model)))
