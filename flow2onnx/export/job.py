"""Export: one call from a job to files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from flow2onnx_runtime.tuning_file import forms_in

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError, JobError
from flow2onnx.export import files
from flow2onnx.export.bundle import check_keeps_nothing, write_bundle
from flow2onnx.export.metadata import check_metadata, label
from flow2onnx.export.precision import Precision, Reduction, write_reduced
from flow2onnx.export.preprocess import embed
from flow2onnx.export.report import Check, Comparison, Report
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
    weights: files.Weights = "inside",
    opset: int = 21,
    metadata: Mapping[str, str] | None = None,
    verify: bool = True,
    batch: int | None = None,
    precision: Precision = "fp32",
    calibration: object = None,
    method: str = "minmax",
    samples: object = None,
    labels: object = None,
    max_drop: float = 0.005,
    tolerance: float | None = None,
    half_io: bool = False,
    preprocess: object = None,
    on_device: bool = False,
    accumulate: bool = False,
    ort_format: bool = False,
    tuning: str | os.PathLike[str] | None = None,
) -> Report:
    """Write a job as ONNX, with the present values of its variables, and verify what was written.

    A predict job becomes one file, whose name ends in .onnx. Its weights are initializers under
    the variables' names, in the file or, with ``weights="safetensors"`` and above 1.8 GB, in a
    .safetensors file of the same stem beside it; with ``weights="external"`` in a file with .data
    after the model's name. Inputs are named after the parameters, outputs ``out/0``, …. With
    `dynamic_batch` the first axis is free for inputs that share the first input's batch; `batch`
    fixes it at another size than declared.

    `precision` is for predict jobs: "fp16" computes in float16 what keeps its digits there, and
    stores the weights so (inputs and outputs stay float32, unless `half_io`); "int8" quantizes with
    the runtime's own quantizer, by the ranges that values have on the batches of `calibration`,
    found by `method` ("minmax", "entropy", "percentile"); "int8-dynamic" finds ranges at run time.
    The report's `comparison` is with the same export in float32, on `samples`, else on
    `calibration`, else on random numbers: arrays, dicts of arrays by input, or batches of these.
    `labels` are the classes of these rows: a loss of accuracy above `max_drop` fails the report,
    and so does a difference above `tolerance`. `preprocess` puts a `Preprocess`, or one for each
    input named, before the model: `calibration` and `samples` are raw then too.

    A train job becomes a folder for `flow2onnx_runtime.Trainer`, which goes on from the present
    state: init.onnx, step.onnx, weights.safetensors (all of the state), manifest.json, and for
    each job in `predict` (jobs, or names of jobs of the session) a model whose weights lie in
    weights.safetensors: predict.onnx, then ``predict-NAME.onnx``. An earlier bundle is replaced.

    `on_device` makes the folder one to ship: the learning rate can be set, random draws depend on
    the step and not on the past, so that a resumed training is an undisturbed one, and a README and
    the list of operators are added. `accumulate` adds the step in two halves, for accumulation of
    gradients; `ort_format` the models as .ort files, for reduced builds of the runtime. `tuning` is
    a file of lowerings measured on the target, by ``flow2onnx tune --cache FILE`` there, or by
    ``python -m flow2onnx_runtime.tune`` on what ``flow2onnx tune --emit`` wrote.

    A report whose `ok` is false means that the files are written and should not be used.
    """
    target, texts = _checked_path(path), check_metadata(metadata)
    way = Reduction(
        precision, calibration, method, samples, labels, max_drop, tolerance, half_io
    )  # fmt: skip
    check_opset(opset)
    _check_batch(batch, dynamic_batch)
    spec = _spec(job)
    unopened = job.session.start_for_values()
    tuned = forms_in(tuning) if tuning is not None else {}
    source = Source(job.session, opset, batch, on_device, tuned)
    compiled = source.compiled(spec)
    if compiled.kind == "train":
        _check_train_options(target, spec, dynamic_batch, weights)
        _check_no_serving(spec, way, preprocess)
        predicts = [_predict_job(source, asked) for asked in _asked(job, predict)]
        halves = source.halves(spec) if accumulate else ()
        write_bundle(
            target, source, compiled, predicts, texts,
            halves=halves, for_devices=on_device, ort_format=ort_format,
        )  # fmt: skip
        made = _Made(sorted(target.iterdir()))
    else:
        _check_predict_options(target, spec, predict, weights)
        _check_no_step(spec, on_device or accumulate or ort_format)
        check_keeps_nothing(compiled)
        free = source.compiled_free(spec, compiled) if dynamic_batch else compiled
        made = _write_predict(target, source, free, texts, weights, way, preprocess)
        predicts = []
    rows = [*_session_rows(unopened), *made.rows, *_host_rows([compiled, *predicts])]
    return _report(target, made, verify, rows)


@dataclass(frozen=True)
class _Made:
    """What was written, and what is to be said of it."""

    files: Sequence[Path]
    rows: Sequence[Check] = ()
    comparison: Comparison | None = None


def _session_rows(unopened: str | None) -> list[Check]:
    """Why the session of the jobs could not be opened here, which an export can do without."""
    if unopened is None:
        return []
    return [Check("session of the job", None, f"not opened, values were made apart: {unopened}")]


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
    path: Path,
    source: Source,
    job: CompiledJob,
    metadata: Mapping[str, str],
    weights: files.Weights,
    way: Reduction,
    preprocess: object,
) -> _Made:
    before = {str(node.name) for node in job.model.graph}
    ways = {} if preprocess is None else embed(job.model, preprocess, job.feeds)
    fixed = [str(n.name) for n in job.model.graph if str(n.name) not in before]
    texts = {f"preprocess.{name}": str(one) for name, one in ways.items()}
    rows = [Check("preprocessing", None, f"{name}: {one}") for name, one in ways.items()]
    precision = {"precision": way.precision} if way.is_needed else {}
    label(job, metadata, {**texts, **precision})
    values = source.values(job.variables)
    if way.is_needed:
        written, comparison, more = write_reduced(path, job, values, weights, way, fixed)
        return _Made(written, [*rows, *more], comparison)
    dtypes = {name: v.dtype for name, v in job.variables.items()}
    return _Made(files.write_predict(path, job.model, values, dtypes, weights=weights), rows)


def _report(path: Path, made: _Made, verify: bool, rows: Sequence[Check]) -> Report:
    sizes = ", ".join(f"{p.name} ({p.stat().st_size} bytes)" for p in made.files)
    first = (Check("written", True, sizes), *rows)
    if not verify:
        skipped = Check("verification", None, "not asked for")
        return Report(str(path), (*first, skipped), comparison=made.comparison)
    report = verify_model(path)
    return Report(report.subject, (*first, *report.rows), report.outputs, made.comparison)


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


def _check_no_serving(spec: JobSpec, way: Reduction, preprocess: object) -> None:
    if way.is_needed or preprocess is not None:
        asked = "preprocess" if preprocess is not None else f"precision={way.precision!r}"
        raise ArgumentError(
            f"{spec.name} is a train job: {asked} is for predict jobs",
            hint="export the predict job by itself, or let the train job's configuration ask for "
            "mixed precision",
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
    if weights not in get_args(files.Weights):
        raise ArgumentError(
            f"weights is {weights!r}", hint="'inside' or 'safetensors', or 'external'"
        )
