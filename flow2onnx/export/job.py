"""Export: one call from a job to files."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import ArgumentError, CallError, spelling_hint
from flow2onnx.export.bundle import compile_bundle
from flow2onnx.export.model import export_model
from flow2onnx.export.options import BundleExport, ExportOptions, ModelExport
from flow2onnx.export.report import Check, Report, Written
from flow2onnx.export.session_view import Exportable, known_spec
from flow2onnx.export.verification import verify_model

__all__ = ["MisplacedOptionError", "export"]

_KINDS: dict[str, type[ExportOptions]] = {"train": BundleExport, "predict": ModelExport}
_DEFAULTS = {f.name: f.default for kind in _KINDS.values() for f in fields(kind)}
_COMMON = [f.name for f in fields(ExportOptions)]
T = TypeVar("T", bound=ExportOptions)


def export(job: Exportable, path: str | os.PathLike[str], **options: Any) -> Report:
    """Write a job as ONNX, with the present values of its variables, and verify what was written.

    A predict job becomes one file, whose name ends in .onnx; inputs are named after the parameters,
    outputs ``out/0``, …. A train job becomes a folder for `flow2onnx_runtime.Trainer`, which goes
    on from the present state: init.onnx, step.onnx, weights.safetensors (all of the state),
    manifest.json, and predict models; an earlier bundle is replaced.

    Options are the fields of `ModelExport` for a predict job, those of `BundleExport` for a train
    job. A report whose `ok` is false means that the files are written and should not be used.
    """
    target, spec, given = _check_path(path), known_spec(job), _changed_options(options)
    common = ExportOptions(**{name: given[name] for name in _COMMON if name in given})
    unopened = job.session.start_for_values()
    for_devices = bool(given.get("on_device") or given.get("distributed"))
    view = common.view(job.session, for_devices=for_devices)
    compiled = view.compile(spec)
    others = [n for n in job.session.job_names() if job.session.spec(n).kind != compiled.kind]
    if compiled.kind == "train":
        bundle = compile_bundle(
            target, view, job, compiled, _options_for(BundleExport, given, compiled, others)
        )
        bundle.write(target)
        jobs, written = [compiled, *bundle.predicts], Written(sorted(target.iterdir()))
    else:
        own = _options_for(ModelExport, given, compiled, others)
        jobs, written = [compiled], export_model(target, view, compiled, own)
    rows = [*_session_rows(unopened), *written.rows, *_host_rows(jobs)]
    return _report(target, written, common.verify, rows)


def _changed_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that say something else than their default does."""
    for name in options:
        if name not in _DEFAULTS:
            raise CallError(
                f"export() got an unexpected keyword argument {name!r}",
                hint=spelling_hint(name, _DEFAULTS, f"it has {', '.join(_DEFAULTS)}"),
            )
    return {name: value for name, value in options.items() if not _is_default(name, value)}


def _is_default(name: str, value: object) -> bool:
    default = _DEFAULTS[name]
    return value is default or (type(value) is type(default) and value == default)


class MisplacedOptionError(ArgumentError):
    """An option of the other kind of job; `option` is its name."""

    def __init__(self, option: str, job: CompiledJob, other: str, hint: str) -> None:
        name = job.spec.name
        super().__init__(f"{name} is a {job.kind} job: {option} is for {other} jobs", hint=hint)
        self.option = option

    def as_flag(self) -> "MisplacedOptionError":
        """This error with the option as the command line has it; returns itself."""
        flag = {"ort_format": "ort"}.get(self.option, self.option).replace("_", "-")
        self.message = self.message.replace(f" {self.option} ", f" --{flag} ")
        self.hint = re.sub(r"predict='(.+?)'", r"--predict \1", self.hint or "")
        return self


def _advice(option: str, job: CompiledJob, others: Sequence[str]) -> str:
    """A hint for whoever asked for an option of the other kind of job."""
    name, other = job.spec.name, others[0] if others else None
    if job.kind == "predict":
        whole = f"export {other} with predict={name!r}" if other else "export a train job"
        return f"leave it out: {name} runs on devices as it is; to train there, {whole}"
    alone = f"export {other} by itself" if other else "export a predict job"
    if option in ("dynamic_batch", "preprocess", "weights"):
        return f"{alone}; a step has a fixed batch, and its weights are state"
    if option == "precision":
        return (
            f"{alone}; steps compute in half precision with enable_auto_mixed_precision, and learn "
            "for int8 with enable_quantization_aware_training, of their configuration"
        )
    return f"{alone}, in the precision that it is for"


def _options_for(
    kind: type[T], given: Mapping[str, Any], job: CompiledJob, others: Sequence[str] = ()
) -> T:
    """The options for a job; one that only the other kind of job has is refused.

    `others` are the session's jobs of that kind.
    """
    known = {f.name for f in fields(kind)}
    for name in given:
        if name not in known:
            (other,) = (k for k, options in _KINDS.items() if options is not kind)
            raise MisplacedOptionError(name, job, other, _advice(name, job, others))
    return kind(**given)


def _session_rows(unopened: str | None) -> list[Check]:
    """Why the session of the jobs could not be opened here, which an export can do without."""
    if unopened is None:
        return []
    return [Check("session of the job", None, f"not opened, values were made apart: {unopened}")]


def _host_rows(jobs: Sequence[CompiledJob]) -> list[Check]:
    """The inputs that readers in the jobs feed here, which the files leave to whoever runs them."""
    rows = []
    for job in jobs:
        names = job.feeds[-len(job.host.feeds) :] if job.host is not None else ()
        if names:
            text = f"{job.spec.name} reads no files: its readers' batches are inputs"
            rows.append(Check("host part", None, f"{text}, {', '.join(names)}"))
    return rows


def _report(path: Path, made: Written, verify: bool, rows: Sequence[Check]) -> Report:
    sizes = ", ".join(f"{p.name} ({p.stat().st_size} bytes)" for p in made.files)
    first = (Check("written", True, sizes), *rows)
    if not verify:
        skipped = Check("verification", None, "not asked for")
        return Report(str(path), (*first, skipped), comparison=made.comparison)
    report = verify_model(path)
    return Report(report.subject, (*first, *report.rows), report.outputs, made.comparison)


def _check_path(path: object) -> Path:
    if not isinstance(path, str | os.PathLike) or "\0" in os.fspath(path) or not os.fspath(path):
        raise ArgumentError(f"{path!r} is no path", hint="give the name of a file or folder")
    return Path(path)
