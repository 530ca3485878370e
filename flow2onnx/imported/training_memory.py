"""The memory that training steps of imported models take, told before the first of them."""

from collections.abc import Mapping, Sequence

from flow2onnx_runtime.free_memory import free_bytes

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import NotEnoughMemoryError
from flow2onnx.export.footprint import footprint_bytes

__all__ = ["check_step_memory", "free_sizes"]


def check_step_memory(jobs: Sequence[CompiledJob], sizes: Mapping[str, int], hint: str) -> None:
    """Raise `NotEnoughMemoryError` if a step of these jobs needs more memory than there is.

    All are open and run in turn: their state counts once, of what they compute the most, by the
    shapes at `sizes` of the free axes, and what the runtime keeps of each. Frozen weights count
    once, in the file of a bundle too, and the runtime's own scratch memory does not.
    """
    free = free_bytes()
    needed = footprint_bytes(jobs, sizes)
    if free is not None and needed > free:
        shown = " of ".join(f"{size} {name}" for name, size in sizes.items())
        at = f" at {shown}" if shown else ""
        raise NotEnoughMemoryError(
            f"a step{at} needs about {needed / 2**20:,.0f} MiB, and there are "
            f"{free / 2**20:,.0f} MiB",
            hint=hint,
        )


def free_sizes(job: CompiledJob, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The sizes of the free axes of a job, by name, where its inputs have those shapes."""
    found: dict[str, int] = {}
    for value in job.model.graph.inputs:
        shape = shapes.get(str(value.name))
        if shape is not None and value.shape is not None:
            pairs = zip(value.shape, shape, strict=False)  # a wrong rank is told of at the feed
            found |= {str(d.value): size for d, size in pairs if not isinstance(d, int)}
    return found
