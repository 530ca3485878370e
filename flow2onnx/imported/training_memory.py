"""The memory that training steps of imported models take, told before the first of them."""

from collections.abc import Iterable, Mapping

from flow2onnx_runtime.free_memory import free_bytes

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import NotEnoughMemoryError
from flow2onnx.export.footprint import footprint

__all__ = ["check_step_memory"]


def check_step_memory(
    steps: Iterable[CompiledJob], sizes: Mapping[str, int], frozen: int, hint: str
) -> None:
    """Raise `NotEnoughMemoryError` if a step needs more memory than this process can get.

    Of its jobs, which run in turn, the one that needs most counts, by the shapes at `sizes` of the
    free axes. `frozen` are the bytes of files with weights. The runtime's own scratch memory is not
    counted.
    """
    free = free_bytes()
    needed = frozen + max(sum(line.bytes for line in footprint(job, sizes)) for job in steps)
    if free is not None and needed > free:
        shown = " of ".join(f"{size} {name}" for name, size in sizes.items())
        at = f" at {shown}" if shown else ""
        raise NotEnoughMemoryError(
            f"a step{at} needs about {needed / 2**20:,.0f} MiB, and there are "
            f"{free / 2**20:,.0f} MiB",
            hint=hint,
        )
