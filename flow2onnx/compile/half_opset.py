"""The opset at which convolutions have bfloat16, for the jobs that gain by it."""

import functools
import logging
from collections.abc import Sequence
from dataclasses import replace

from flow2onnx.compile.job import CompiledJob, Target, compile_job
from flow2onnx.dtypes import bfloat16, float32
from flow2onnx.graph import Graph
from flow2onnx.graph.types import dtype_of
from flow2onnx.graph.verify import Kernels

__all__ = ["compile_in_half"]

_log = logging.getLogger("flow2onnx.passes")
_OPSET = 22  # of ONNX 1.17, the first with Conv in bfloat16


def compile_in_half(
    job: CompiledJob, shapes: Sequence[tuple[int, ...]] | None, target: Target
) -> tuple[CompiledJob, Target]:
    """The job at the opset at which its convolutions are in bfloat16, and its target.

    Both as they are where the job has no convolutions, or other halves; and where an operator that
    it has runs on the target's first provider no more, which is said once.
    """
    kernels = target.kernels
    if kernels is None or job.spec.half != bfloat16 or not _has_float32_convolutions(job):
        return job, target
    if not kernels.supports("Conv", _OPSET, {"T": bfloat16.name}):
        return job, target
    newer = replace(target, opset=_OPSET)
    found = compile_job(job.spec, shapes, newer)
    lost = _lost_operators(found.model.graph, kernels)
    if lost:
        _warn_float32(job.spec.name, ", ".join(lost))
        return job, target
    return found, newer


def _has_float32_convolutions(job: CompiledJob) -> bool:
    """True if a convolution of the job stayed in float32."""
    return any(n.op_type == "Conv" and dtype_of(n.outputs[0]) == float32 for n in job.model.graph)


def _lost_operators(graph: Graph, kernels: Kernels) -> list[str]:
    """The operators that run on the first provider as they were, and as they are now do not."""
    names = sorted({n.op_type for n in graph if not n.domain})
    return [n for n in names if kernels.leaves(n, _OPSET) and not kernels.leaves(n)]


@functools.cache
def _warn_float32(job: str, lost: str) -> None:
    _log.warning(
        "job %s: convolutions have bfloat16 from opset %d on, of which %s would run on the CPU: "
        "they stay in float32; config.runtime.mixed_precision_dtype('float16') has them in half",
        job, _OPSET, lost,
    )  # fmt: skip
