"""A predict job as one ONNX file, in the precision and with the preprocessing asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, get_args

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError
from flow2onnx.export.bundle import check_keeps_nothing
from flow2onnx.export.files import Weights, write_predict
from flow2onnx.export.metadata import set_job_metadata
from flow2onnx.export.options import check_word
from flow2onnx.export.precision import Reduction, write_in_precision
from flow2onnx.export.preprocess import add_preprocessing
from flow2onnx.export.report import Check, Written
from flow2onnx.export.session_view import SessionView

__all__ = ["ModelExport", "export_model"]


@dataclass(frozen=True, kw_only=True)
class ModelExport(Reduction):
    """Options for a predict job.

    Weights are initializers under the variables' names, in the file or, with
    ``weights="safetensors"`` and above 1.8 GB, in a .safetensors file of the same stem beside it;
    with ``weights="external"`` in a file with .data after the model's name. With `dynamic_batch`
    the first axis is free for inputs that share the first input's batch. `preprocess` puts a
    `Preprocess`, or one for each input named, before the model: `calibration` and `samples` are raw
    then too.
    """

    advice: ClassVar[str] = (
        "export the predict job by itself; a step has a fixed batch, and its configuration says "
        "what precision it computes in"
    )

    dynamic_batch: bool = False
    weights: Weights = "inside"
    preprocess: object = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_word("weights", self.weights, get_args(Weights))
        if self.batch is not None and self.dynamic_batch:
            raise ArgumentError(
                f"dynamic_batch takes batches of any size, batch={self.batch} fixes one",
                hint="give one",
            )


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
        files, comparison, more = write_in_precision(
            path, job, values, options.weights, options, fixed
        )
        return Written(files, [*rows, *more], comparison)
    return Written(write_predict(path, job.model, values, weights=options.weights), rows)
