"""A predict job as one ONNX file, in the precision and with the preprocessing asked for."""

from pathlib import Path

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError
from flow2onnx.export.bundle import check_keeps_nothing
from flow2onnx.export.files import write_predict
from flow2onnx.export.metadata import set_job_metadata
from flow2onnx.export.options import ModelExport
from flow2onnx.export.precision import write_in_precision
from flow2onnx.export.preprocess import add_preprocessing
from flow2onnx.export.report import Check, Written
from flow2onnx.export.session_view import SessionView

__all__ = ["export_model"]


def export_model(path: Path, view: SessionView, job: CompiledJob, options: ModelExport) -> Written:
    """Write a predict job, compiled as `view` sees it."""
    if path.suffix != ".onnx":
        raise ArgumentError(
            f"{path}: {job.spec.name} is a predict job, which becomes one file",
            hint=f"let the name end in .onnx, such as {path.name}.onnx",
        )
    check_keeps_nothing(job)
    if options.dynamic_batch:
        job = view.compile_for_any_batch(job.spec, job)
    before = {str(node.name) for node in job.model.graph}
    ways = {}
    if options.preprocess is not None:
        ways = add_preprocessing(job.model, options.preprocess, job.feeds)
    fixed = [str(n.name) for n in job.model.graph if str(n.name) not in before]
    texts = {f"preprocess.{name}": str(way) for name, way in ways.items()}
    rows = [Check("preprocessing", None, f"{name}: {way}") for name, way in ways.items()]
    precision = {"precision": options.precision} if options.is_reduced else {}
    set_job_metadata(job, dict(options.metadata or {}), {**texts, **precision})
    values = view.values(job.variables)
    if options.is_reduced:
        files, comparison, more = write_in_precision(path, job, values, options, fixed)
        return Written(files, [*rows, *more], comparison)
    return Written(write_predict(path, job.model, values, weights=options.weights), rows)
