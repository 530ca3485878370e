"""`flow.onnx.export`: a predict job with the weights of a checkpoint, as one ONNX file."""

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

from flow2onnx import export as exporting
from flow2onnx.api.job import JobFunction
from flow2onnx.errors import ArgumentError
from flow2onnx.source import user_frame

__all__ = ["export"]

_log = logging.getLogger("flow2onnx.export")


def export(
    job_func: JobFunction,
    model_save_dir: str | os.PathLike[str],
    onnx_filename: str | os.PathLike[str],
    continue_on_error: bool = False,
    opset: int | None = None,
    extra_opset: Any = None,
    shape_override: Mapping[str, Sequence[int]] | None = None,
    external_data: bool = False,
) -> None:
    """Write a predict job as ONNX, with weights read from a checkpoint directory.

    The variables become initializers of their names; with `external_data` their values lie in a
    .safetensors file beside the model. Opsets before 18, which programs of the time ask for,
    become 18: reductions have another form before.
    """
    name = getattr(job_func, "__name__", repr(job_func))
    job = job_func if isinstance(job_func, JobFunction) else getattr(job_func, "__wrapped__", None)
    if not isinstance(job, JobFunction) or name not in job.session.job_names():
        raise _refuse(f'Cannot find job "{name}" in jobset', "pass a job of this session")
    if shape_override or extra_opset:
        raise _refuse(
            "shape_override and extra_opset are not followed: the shapes are those of the job's "
            "placeholders, the operators those of the standard",
            "declare the placeholders in the shapes you want",
        )
    wanted = 21 if opset is None else max(opset, exporting.OLDEST_OPSET)
    if opset is not None and wanted != opset:
        _log.warning("onnx.export: opset %d is written, %d was asked for", wanted, opset)
    exporting.write_with_checkpoint(
        onnx_filename,
        job.session,
        job.spec,
        model_save_dir,
        opset=wanted,
        is_inside=not external_data,
    )


def _refuse(message: str, hint: str) -> ArgumentError:
    return ArgumentError(message, op="onnx.export", source=user_frame(), hint=hint)
