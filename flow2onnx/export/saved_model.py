"""Saved models: predict jobs beside a checkpoint whose files hold their weights.

A model refers to ``variables/NAME/out`` for the value of a variable: these files are what ONNX
calls external data, so that any runtime opens the model as it is.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Predictor
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.model_check import check_model
from flow2onnx_runtime.providers import find_provider

from flow2onnx.checkpoint import store
from flow2onnx.compile import CompiledJob
from flow2onnx.compile.opsets import OLDEST_OPSET, check_opset
from flow2onnx.dtypes import DType
from flow2onnx.engine.session import Session
from flow2onnx.errors import ArgumentError, CheckpointError, UnsupportedError
from flow2onnx.export.bundle import check_keeps_nothing
from flow2onnx.export.files import Weights, write_bytes, write_predict
from flow2onnx.export.metadata import set_job_metadata
from flow2onnx.export.session_view import SessionView
from flow2onnx.graph.model import model_bytes, parse_model
from flow2onnx.onnx_io.serialize import Placement, externalize_values, load_external_values
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import current_job
from flow2onnx.trace.spec import JobSpec
from flow2onnx.typing import ArrayReturn, BundleReturn

__all__ = [
    "OLDEST_OPSET",
    "open_saved_model",
    "operators_of",
    "with_results",
    "write_saved_model",
    "write_with_checkpoint",
]


def with_results(spec: JobSpec, names: Sequence[str]) -> JobSpec:
    """The job with the blobs of these logical names as its results, whatever its body returns."""

    def body(*arguments: Any) -> list[Blob]:
        spec.function(*arguments)
        job = current_job(spec.name)
        return [Blob(job.named(name)) for name in names]

    return replace(spec, function=body, returns=BundleReturn(ArrayReturn("list")))


def write_saved_model(path: Path, session: Session, spec: JobSpec, checkpoint: str) -> CompiledJob:
    """Write a predict job that refers to the checkpoint folder of this name beside `path`.

    It takes batches of any size if the job can be made for them, else of the declared size.
    """
    view = SessionView(session)
    job = view.compile(spec)
    check_keeps_nothing(job)
    try:
        job = view.compile_for_any_batch(spec, job)
    except UnsupportedError:
        job = view.compile(spec)  # compiled anew: the attempt may have changed it
    set_job_metadata(job, {})
    sizes = {n: int(np.prod(v.shape)) * v.dtype.numpy.itemsize for n, v in job.variables.items()}
    externalize_values(
        job.model, {n: Placement(f"{checkpoint}/{n}/out", 0, s) for n, s in sizes.items()}
    )
    write_bytes(path, model_bytes(job.model))
    return job


def operators_of(job: CompiledJob) -> list[str]:
    """The names of the operators of a job, in order."""
    names = ((node.name or node.op_type).split("/")[0] for node in job.model.graph)
    return list(dict.fromkeys(names))


def open_saved_model(path: Path, checkpoint: Path, device: str) -> Predictor:
    """A job that `write_saved` wrote, with the weights in the folder `checkpoint`.

    `device` is the tag of a provider or of a placement on it: on ``"gpu"`` the job runs on CUDA if
    that works here, else on the CPU.
    """
    providers = find_provider(device).names
    is_beside = checkpoint.resolve() == (path.parent / checkpoint.name).resolve()
    model = path if is_beside else _with_weights(path, checkpoint)
    return Predictor(model, providers=providers)


def _with_weights(path: Path, checkpoint: Path) -> bytes:
    """The model with the values of another checkpoint inside."""
    content = path.read_bytes()
    check_model(content, path=path, reads_values=False)
    model = parse_model(content)
    load_external_values(model, _Checkpoint(checkpoint, path.name).value)
    return model_bytes(model)


class _Checkpoint:
    """The values that a model takes from a checkpoint."""

    def __init__(self, folder: Path, reader: str) -> None:
        loaded = store.load(folder)
        self._saved = loaded if isinstance(loaded, dict) else {loaded.name: loaded}
        self._folder, self._reader = folder, reader

    def value(self, name: str, shape: tuple[int, ...], dtype: DType) -> Array:
        """The value of a variable, which has this shape and element type."""
        if name not in self._saved:
            raise CheckpointError(
                f"{self._folder} has no variable {name!r}, which {self._reader} reads",
                hint="give the checkpoint of a model with these variables",
            )
        return self._saved[name].numpy_as(shape, dtype)


def write_with_checkpoint(
    path: str | os.PathLike[str],
    session: Session,
    spec: JobSpec,
    checkpoint: str | os.PathLike[str],
    *,
    opset: int,
    is_inside: bool,
) -> None:
    """Write a predict job with the values that a checkpoint holds, not those of the session."""
    check_opset(opset)
    folder = Path(checkpoint)
    session.start_for_values()
    job = SessionView(session, opset).compile(spec)
    if job.kind == "train":
        raise ArgumentError(
            f"{spec.name} is a train job", hint="define a predict job with the same layers"
        )
    check_keeps_nothing(job)
    set_job_metadata(job, {})
    saved = _Checkpoint(folder, Path(path).name)
    values = {n: saved.value(n, v.shape, v.dtype) for n, v in job.variables.items()}
    place: Weights = "inside" if is_inside else "safetensors"
    write_predict(Path(path), job.model, values, weights=place)
