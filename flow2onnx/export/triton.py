"""Triton: a predict job as the next version of a model in a repository."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Options, Predictor, replace_folder, save_safetensors
from flow2onnx_runtime.dtypes import Array, find_element
from flow2onnx_runtime.synthetic import random_array

from flow2onnx.errors import ArgumentError, BundleError
from flow2onnx.export.description import describe
from flow2onnx.export.files import write_bytes
from flow2onnx.export.job import export
from flow2onnx.export.report import Check, Report
from flow2onnx.export.session_view import Exportable
from flow2onnx.export.triton_config import (
    LABELS,
    Serving,
    compare_config,
    config_text,
    tensorrt_parameters,
)
from flow2onnx.trace.spec import JobSpec

__all__ = ["export_triton"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHECK_ROWS = 2
_CHECK_RTOL, _CHECK_ATOL = 5e-4, 5e-6  # half of what the server allows


def export_triton(
    job: Exportable,
    repository: str | os.PathLike[str],
    *,
    name: str | None = None,
    labels: Sequence[str] | None = None,
    max_batch: int = 32,
    delay: float = 0.0,
    instances: int = 1,
    batch: int | None = None,
    sample_labels: object = None,
    **options: Any,  # those of `export`
) -> Report:
    """Write a predict job as the next version of a model in a Triton repository; verify it.

    ``REPOSITORY/NAME/N/`` gets model.onnx and check.safetensors, feeds and expected results by
    which `flow2onnx serve` tries a version before it answers. The first version brings
    config.pbtxt (and labels.txt) along: batches of up to `max_batch` rows, formed while requests
    wait for at most `delay` seconds, warm-up, `instances`, TensorRT if the job's configuration
    asks for it. A config.pbtxt that is there stays as it is, and must fit. With `batch`, the batch
    is fixed at that size and requests are not combined, and neither are they if an input or result
    has no batch. A version appears whole or not at all, and not at all if its verification fails.
    `labels` are the names of the classes; `sample_labels` is what `export` calls `labels`.
    """
    folder = Path(repository) / _check_name(name or job.spec.name)
    if job.spec.kind == "train":
        raise ArgumentError(
            f"{job.spec.name} is a train job, which no server runs", hint="give its predict job"
        )
    options |= {"dynamic_batch": batch is None, "batch": batch, "labels": sample_labels}
    model = _Model(
        job=job,
        folder=folder,
        serving=Serving(max_batch, delay, instances),
        labels=labels,
        is_fixed=batch is not None,
        options=options,
    )
    return model.publish()


@dataclass(frozen=True, kw_only=True)
class _Model:
    """A model of a repository, and the version of it that is being written."""

    job: Exportable
    folder: Path
    serving: Serving
    labels: Sequence[str] | None
    is_fixed: bool
    options: Mapping[str, Any]
    rows: list[Check] = field(default_factory=list)
    reports: list[Report] = field(default_factory=list)

    def publish(self) -> Report:
        """Write the next version, whole or not at all."""
        target = self.folder / str(_newest_version(self.folder) + 1)
        try:
            if self.folder.exists():
                replace_folder(target, self._write_next)
            else:
                _make_folder(self.folder.parent)
                replace_folder(self.folder, lambda stage: self._write_first(stage, target.name))
        except _RefusedError:
            text = "the verification failed: nothing was written"
            self.rows.append(Check("published", False, text))
        (report,) = self.reports
        rows = (*report.rows, *self.rows)
        return Report(str(target), rows, report.outputs, report.comparison)

    def _write_version(self, stage: Path) -> dict[str, Any]:
        report = export(self.job, stage / "model.onnx", **self.options)
        self.reports.append(report)
        if not report.ok:
            raise _RefusedError
        model = describe(stage / "model.onnx")
        self.rows.append(_store_check(stage, model))
        return model

    def _write_next(self, stage: Path) -> None:
        model, config = self._write_version(stage), self.folder / "config.pbtxt"
        self.rows.append(compare_config(config, model, is_fixed=self.is_fixed))
        self._write_labels(self.folder)

    def _write_first(self, stage: Path, version: str) -> None:
        (stage / version).mkdir()
        model = self._write_version(stage / version)
        is_combined = _combines(model) and not self.is_fixed
        name, job = self.folder.name, self.job.spec
        text = config_text(name, job, model, self.serving, self.labels, combines=is_combined)
        write_bytes(stage / "config.pbtxt", text.encode())
        self.rows.append(Check("config.pbtxt", True, "written"))
        self.rows.extend(_remarks(job, model, combines=is_combined or self.is_fixed))
        self._write_labels(stage)

    def _write_labels(self, folder: Path) -> None:
        if self.labels is not None:
            text = "".join(f"{label}\n" for label in self.labels)
            write_bytes(folder / LABELS, text.encode())


class _RefusedError(Exception):
    """The model that was exported is not fit to be published."""


def _newest_version(folder: Path) -> int:
    """The highest version in a model's folder, 0 if there is none."""
    names = (p.name for p in folder.iterdir()) if folder.is_dir() else ()
    return max((int(n) for n in names if n.isascii() and n.isdigit()), default=0)


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ArgumentError(
            f"{name!r} cannot name a model in a repository", hint="letters, digits, . _ and -"
        )
    return name


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BundleError(f"{folder} cannot be made: {error.strerror}",
                          hint="give another repository") from error  # fmt: skip


def _combines(model: Mapping[str, Any]) -> bool:
    """True if every input and output has a batch of any size first, as Triton asks for."""
    tensors = [*model["inputs"], *model["outputs"]]
    return all(t["shape"] and not isinstance(t["shape"][0], int) for t in tensors)


def _remarks(job: JobSpec, model: Mapping[str, Any], *, combines: bool) -> list[Check]:
    """Rows for what config.pbtxt cannot say of the job."""
    rows = []
    if not combines:
        text = "max_batch_size is 0, requests are not combined: not everything has a batch first"
        rows.append(Check("batching", None, text))
    scalars = [t["name"] for t in (*model["inputs"], *model["outputs"]) if not t["shape"]]
    if scalars:
        text = "has no axes, which Triton refuses and `flow2onnx serve` takes; declare it as (1,)"
        rows.append(Check("scalars", None, f"{', '.join(scalars)} {text}"))
    _, dropped = tensorrt_parameters(job, model)
    if dropped:
        text = f"Triton has no parameters for {', '.join(dropped)}: left out of config.pbtxt"
        rows.append(Check("TensorRT", None, text))
    return rows


def _store_check(stage: Path, model: Mapping[str, Any]) -> Check:
    """Store feeds and what an unoptimised session makes of them, if it does so every time."""
    predict = Predictor(stage / "model.onnx", Options(optimization="disable"))
    draws = np.random.default_rng(0)
    feeds = {t["name"]: _synthetic(t, draws) for t in model["inputs"]}
    results, again = predict(**feeds), predict(**feeds)
    if any(results[n].tobytes() != again[n].tobytes() for n in results):
        return Check("check.safetensors", None, "not stored: results differ from run to run")
    if not _is_steady(stage, feeds, results):
        text = (
            "not stored: other kernels round so differently that it could not be told from faults"
        )
        return Check("check.safetensors", None, text)
    tensors = {f"feeds/{n}": a for n, a in feeds.items()}
    tensors |= {f"results/{n}": a for n, a in results.items()}
    elements = {f"feeds/{t['name']}": t["dtype"] for t in model["inputs"]}
    elements |= {f"results/{t['name']}": t["dtype"] for t in model["outputs"]}
    save_safetensors(stage / "check.safetensors", tensors, elements=elements)
    return Check("check.safetensors", True, f"{len(results)} results to try a version by")


def _is_steady(stage: Path, feeds: Mapping[str, Array], results: Mapping[str, Array]) -> bool:
    """True if the optimised session, whose kernels are others, gives the same within tolerance."""
    found = Predictor(stage / "model.onnx")(**feeds)
    return all(
        np.allclose(_numbers(found[n]), _numbers(value), _CHECK_RTOL, _CHECK_ATOL, equal_nan=True)
        for n, value in results.items()
    )


def _numbers(value: Array) -> Array:
    return value if value.dtype == np.uint16 else value.astype(np.float64)


def _synthetic(tensor: Mapping[str, Any], draws: np.random.Generator) -> Array:
    """Values that any model takes: small numbers, and indices 0 and 1."""
    element = find_element(tensor["dtype"])
    assert element is not None, "the runtime has opened the model"
    shape = [s if isinstance(s, int) else _CHECK_ROWS for s in tensor["shape"]]
    return random_array(draws, shape, element.numpy, is_bfloat16=element.is_bits)
