"""Export: one call from a job to files."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError, JobError
from flow2onnx.export import files
from flow2onnx.export.bundle import check_keeps_nothing, write_bundle
from flow2onnx.export.labels import check_metadata, label
from flow2onnx.export.report import Check, Report
from flow2onnx.export.source import Exportable, Source, check_opset, find_job
from flow2onnx.export.verification import verify_model
from flow2onnx.trace.spec import JobSpec

__all__ = ["export"]

Predict = Exportable | str


def export(
    job: Exportable,
    path: str | os.PathLike[str],
    *,
    predict: Predict | Sequence[Predict] | None = None,
    dynamic_batch: bool = False,
    weights: Literal["inside", "safetensors"] = "inside",
    opset: int = 21,
    metadata: Mapping[str, str] | None = None,
    verify: bool = True,
    batch: int | None = None,
    on_device: bool = False,
    accumulate: bool = False,
    ort_format: bool = False,
) -> Report:
    """Write a job as ONNX, with the present values of its variables, and verify what was written.

    A predict job becomes one file, whose name ends in .onnx. Its weights are initializers under
    the variables' names, in the file or, with ``weights="safetensors"`` and above 1.8 GB, in a
    .safetensors file of the same stem beside it. Inputs are named after the parameters, outputs
    ``out/0``, …. With `dynamic_batch` the first axis is free for inputs that share the first
    input's batch; `batch` fixes it at another size than declared.

    A train job becomes a folder for `flow2onnx_runtime.Trainer`, which goes on from the present
    state: init.onnx, step.onnx, weights.safetensors (all of the state), manifest.json, and for
    each job in `predict` (jobs, or names of jobs of the session) a model whose weights lie in
    weights.safetensors: predict.onnx, then ``predict-NAME.onnx``. An earlier bundle is replaced.

    `on_device` makes the folder one to ship: the learning rate can be set, random draws depend on
    the step and not on the past, so that a resumed training is an undisturbed one, and a README and
    the list of operators are added. `accumulate` adds the step in two halves, for accumulation of
    gradients; `ort_format` the models as .ort files, for reduced builds of the runtime.

    A report whose `ok` is false means that the files are written and should not be used.
    """
    target, texts = _checked_path(path), check_metadata(metadata)
    check_opset(opset)
    _check_batch(batch, dynamic_batch)
    spec = _spec(job)
    job.session.start()
    source = Source(job.session, opset, batch, on_device)
    compiled = source.compiled(spec)
    if compiled.kind == "train":
        _check_train_options(target, spec, dynamic_batch, weights)
        predicts = [_predict_job(source, asked) for asked in _asked(job, predict)]
        halves = source.halves(spec) if accumulate else ()
        write_bundle(
            target, source, compiled, predicts, texts,
            halves=halves, for_devices=on_device, ort_format=ort_format,
        )  # fmt: skip
        written = sorted(target.iterdir())
    else:
        _check_predict_options(target, spec, predict, weights)
        _check_no_step(spec, on_device or accumulate or ort_format)
        check_keeps_nothing(compiled)
        free = source.compiled_free(spec, compiled) if dynamic_batch else compiled
        written = _write_predict(target, source, free, texts, weights)
        predicts = []
    return _report(target, written, verify, _host_rows([compiled, *predicts]))


def _host_rows(jobs: Sequence[CompiledJob]) -> list[Check]:
    """What the files leave to whoever runs them: the inputs that readers in the jobs feed here."""
    rows = []
    for job in jobs:
        names = job.feeds[-len(job.host.feeds) :] if job.host is not None else ()
        if names:
            text = f"{job.spec.name} reads no files: its readers' batches are inputs"
            rows.append(Check("host part", None, f"{text}, {', '.join(names)}"))
    return rows


def _write_predict(
    path: Path, source: Source, job: CompiledJob, metadata: Mapping[str, str], weights: str
) -> list[Path]:
    label(job, metadata)
    values = source.values(job.variables)
    size = sum(v.nbytes for v in values.values())
    is_inside = not values or (weights == "inside" and size <= files.INSIDE_LIMIT)
    dtypes = {name: v.dtype for name, v in job.variables.items()}
    return files.write_predict(path, job.model, values, dtypes, is_inside=is_inside)


def _report(
    path: Path, written: Sequence[Path], verify: bool, host: Sequence[Check] = ()
) -> Report:
    sizes = ", ".join(f"{p.name} ({p.stat().st_size} bytes)" for p in written)
    row = Check("written", True, sizes)
    if not verify:
        return Report(str(path), (row, *host, Check("verification", None, "not asked for")))
    report = verify_model(path)
    return Report(report.subject, (row, *host, *report.rows), report.outputs)


def _spec(job: Exportable) -> JobSpec:
    if not isinstance(getattr(job, "spec", None), JobSpec):
        raise ArgumentError(
            f"{job!r} is no job", hint="give a function decorated with @flow.global_function(...)"
        )
    known = job.session.job_names()
    if job.spec.name not in known or job.session.spec(job.spec.name) is not job.spec:
        raise JobError(
            f"job {job.spec.name} was replaced by a later job of the same name",
            job=job.spec.name,
            source=job.spec.source,
            hint="give the functions different names",
        )
    return job.spec


def _asked(job: Exportable, predict: Predict | Sequence[Predict] | None) -> list[JobSpec]:
    """The jobs named by `predict`, each once and of the same session."""
    if predict is None:
        return []
    asked: Sequence[Any] = predict if isinstance(predict, list | tuple) else [predict]
    specs = [_same_session(job, one) for one in asked]
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise ArgumentError(f"predict names a job twice: {', '.join(names)}", hint="once is enough")
    return specs


def _same_session(job: Exportable, asked: Predict) -> JobSpec:
    if isinstance(asked, str):
        return find_job(job.session, asked)
    spec = _spec(asked)
    if asked.session is not job.session:
        raise ArgumentError(
            f"job {spec.name} is of another session than {job.spec.name}",
            hint="define both jobs before the first call",
        )
    return spec


def _predict_job(source: Source, spec: JobSpec) -> CompiledJob:
    compiled = source.compiled(spec)
    if compiled.kind == "train":
        raise ArgumentError(
            f"predict={spec.name} is a train job", hint="name a job of type='predict'"
        )
    return compiled


def _checked_path(path: object) -> Path:
    if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path) or not os.fspath(path):
        raise ArgumentError(f"{path!r} is no path", hint="give the name of a file or folder")
    return Path(path)


def _check_batch(batch: object, dynamic_batch: bool) -> None:
    if batch is None:
        return
    if type(batch) is not int or batch < 1:
        raise ArgumentError(f"batch is {batch!r}", hint="give a number of at least 1")
    if dynamic_batch:
        raise ArgumentError(
            f"dynamic_batch takes batches of any size, batch={batch} fixes one", hint="give one"
        )


def _check_no_step(spec: JobSpec, is_for_devices: bool) -> None:
    if is_for_devices:
        raise ArgumentError(
            f"{spec.name} is a predict job: on_device, accumulate and ort_format are of train jobs",
            hint="export the train job, and name this one as predict=",
        )


def _check_train_options(path: Path, spec: JobSpec, dynamic_batch: bool, weights: str) -> None:
    _check_weights(weights)
    if dynamic_batch:
        raise ArgumentError(
            f"{spec.name} is a train job: the batch of a step is fixed",
            hint="give batch=, or export the predict job by itself with dynamic_batch=True",
        )
    if path.suffix == ".onnx":
        raise ArgumentError(
            f"{path}: {spec.name} is a train job, which becomes a folder",
            hint=f"give the name of a folder, such as {path.with_suffix('')}",
        )


def _check_predict_options(path: Path, spec: JobSpec, predict: object, weights: str) -> None:
    _check_weights(weights)
    if predict is not None:
        raise ArgumentError(
            f"predict= is for train jobs; {spec.name} is a predict job", hint="leave it out"
        )
    if path.suffix != ".onnx":
        raise ArgumentError(
            f"{path}: {spec.name} is a predict job, which becomes one file",
            hint=f"let the name end in .onnx, such as {path.name}.onnx",
        )


def _check_weights(weights: object) -> None:
    if weights not in ("inside", "safetensors"):
        raise ArgumentError(f"weights is {weights!r}", hint="'inside' or 'safetensors'")
