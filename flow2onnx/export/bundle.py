"""A train job as a folder: init, step and predict models, weights, manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from flow2onnx_runtime import (
    FileEntry,
    Manifest,
    PredictJob,
    StateSpec,
    TensorSpec,
    open_session,
    replace_folder,
)
from flow2onnx_runtime.manifest import MANIFEST, Accumulation

from flow2onnx.compile import CompiledJob
from flow2onnx.engine.opening import open_model, plan_portable_opening
from flow2onnx.errors import BundleError, UnsupportedError
from flow2onnx.export.device import OPERATORS, README, convert, write_notes
from flow2onnx.export.files import places_in, write_bytes, write_weights
from flow2onnx.export.metadata import label, producer, version
from flow2onnx.graph import Model
from flow2onnx.graph.model import model_bytes
from flow2onnx.onnx_io.serialize import Signature, externalize_values, set_metadata, signature
from flow2onnx.optim import count_name, rate_name
from flow2onnx.trace.variables import Variable

__all__ = ["EXTRAS", "StateSource", "write_bundle"]

# What may lie in a bundle without being in its manifest: no runtime opens it.
EXTRAS = (README, OPERATORS)

INIT, STEP, WEIGHTS = "init.onnx", "step.onnx", "weights.safetensors"
GRADIENTS, UPDATE = "gradients.onnx", "update.onnx"

Array = np.ndarray[Any, np.dtype[Any]]


class StateSource(Protocol):
    """Where the first values of a bundle's state come from."""

    @property
    def opset(self) -> int:
        """The opset of the models."""

    def initial(self, variables: dict[str, Variable]) -> Model:
        """The init model; an input ``stored/v`` of it is read from the weights file."""

    def values(self, variables: Mapping[str, Variable]) -> dict[str, Array]:
        """The values themselves."""


@dataclass(frozen=True)
class _Content:
    """What goes into a bundle."""

    init: Model
    step: CompiledJob
    halves: tuple[CompiledJob, ...]
    predicts: tuple[CompiledJob, ...]
    variables: dict[str, Variable]
    values: dict[str, Array]
    opset: int
    metadata: Mapping[str, str]
    names: Mapping[str, str]
    for_devices: bool
    ort_format: bool


def write_bundle(
    path: Path,
    source: StateSource,
    step: CompiledJob,
    predicts: Sequence[CompiledJob],
    metadata: Mapping[str, str],
    *,
    halves: Sequence[CompiledJob] = (),
    names: Mapping[str, str] = {},
    for_devices: bool = False,
    ort_format: bool = False,
) -> None:
    """Write the folder, whole or not at all; an earlier bundle at `path` is replaced.

    `halves`: the step as two models, or none. `names` are the file names of predict jobs that are
    to have others than by default. `for_devices` adds a README and the list of operators,
    `ort_format` the models in the runtime's own format.
    """
    _check_target(path)
    variables = dict(step.variables)
    for job in predicts:
        check_keeps_nothing(job)
    for job in (*halves, *predicts):
        variables.update({n: v for n, v in job.variables.items() if n not in variables})
    content = _Content(
        source.initial(variables),
        step,
        tuple(halves),
        tuple(predicts),
        variables,
        source.values(variables),
        source.opset,
        metadata,
        names,
        for_devices,
        ort_format,
    )
    try:
        replace_folder(path, lambda folder: _fill(folder, content), overwrite=True)
    except (OSError, ValueError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(
            f"{path} cannot be written: {error}", hint="check the permissions and the free space"
        ) from error


def check_keeps_nothing(job: CompiledJob) -> None:
    """Raise for a predict job that changes variables: a predict model has nowhere to keep them."""
    written = [str(v.name) for v in job.model.graph.outputs if str(v.name).startswith("next/")]
    if written:
        raise UnsupportedError(
            f"job {job.spec.name} assigns {written[0].removeprefix('next/')}; an exported predict "
            "model keeps nothing between calls",
            job=job.spec.name,
            source=job.spec.source,
            hint="assign in a train job",
        )


def _fill(folder: Path, content: _Content) -> None:
    dtypes = {name: v.dtype for name, v in content.variables.items()}
    held = {name for job in content.predicts for name in job.variables}
    write_weights(folder / WEIGHTS, content.values, dtypes, first=held)
    metadata = label(content.step, content.metadata)
    set_metadata(content.init, version(), metadata)
    places = places_in(folder / WEIGHTS, content.values)
    externalize_values(content.init, {f"stored/{name}": place for name, place in places.items()})
    write_bytes(folder / INIT, model_bytes(content.init))
    write_bytes(folder / STEP, model_bytes(content.step.model))
    halves = dict(zip((GRADIENTS, UPDATE), content.halves, strict=False))
    for name, half in halves.items():
        set_metadata(half.model, version(), metadata)
        write_bytes(folder / name, model_bytes(half.model))
    entries = tuple(_predict(folder, job, i, content) for i, job in enumerate(content.predicts))
    names = [INIT, STEP, *halves, WEIGHTS, *(entry.file for entry in entries)]
    names += convert(folder) if content.ort_format else []
    files = {name: FileEntry.of(folder / name) for name in names}
    manifest = _manifest(content, files, entries)
    if content.for_devices:
        write_notes(folder, manifest)
    manifest.write(folder)


def _predict(folder: Path, job: CompiledJob, index: int, content: _Content) -> PredictJob:
    """Write a predict model whose weights lie in the bundle's file: it also runs by itself."""
    label(job, content.metadata)
    usual = f"predict-{job.spec.name}.onnx" if index else "predict.onnx"
    file = content.names.get(job.spec.name, usual)
    feeds, results = _feeds(job), _results(job)
    holds = tuple(job.variables)
    externalize_values(job.model, places_in(folder / WEIGHTS, holds))
    write_bytes(folder / file, model_bytes(job.model))
    return PredictJob(job.spec.name, file, feeds, results, holds=holds)


def _manifest(
    content: _Content, files: dict[str, FileEntry], predict: tuple[PredictJob, ...]
) -> Manifest:
    step = content.step
    rate, count = rate_name(step.spec.name), count_name(step.spec.name)
    halves = dict(zip((GRADIENTS, UPDATE), content.halves, strict=False))
    return Manifest(
        job=step.spec.name,
        producer=producer(),
        opset=content.opset,
        files=files,
        state=_state(content),
        feeds=_feeds(step),
        results=_results(step),
        losses=step.losses,
        init=INIT,
        step=STEP,
        predict=predict,
        weights=WEIGHTS,
        learning_rate=rate if rate in content.variables else None,
        accumulate=Accumulation(GRADIENTS, UPDATE, count) if content.halves else None,
        in_place=_in_place({STEP: step, **halves}),
        metadata=dict(step.model.metadata_props),
    )


def _in_place(models: Mapping[str, CompiledJob]) -> dict[str, tuple[str, ...]]:
    """For each model the state that a runtime may update in its own buffer, if there is any."""
    found = {file: _names_in_place(job) for file, job in models.items()}
    return {file: names for file, names in found.items() if names}


def _names_in_place(job: CompiledJob) -> tuple[str, ...]:
    opening = plan_portable_opening(job)
    if opening.names_in_place:
        _, opening = open_model(opening, open_session)
    return opening.names_in_place


def _state(content: _Content) -> tuple[StateSpec, ...]:
    written = {str(v.name) for v in content.step.model.graph.outputs}
    counter = f"System-Train-TrainStep-{content.step.spec.name}"
    return tuple(
        StateSpec(
            name,
            v.shape,
            v.dtype.name,
            # the manifest knows one counter, the step's own
            "slot" if v.role == "counter" and name != counter else v.role,
            f"next/{name}" in written,
            v.owner,
        )
        for name, v in content.variables.items()
    )


def _feeds(job: CompiledJob) -> tuple[TensorSpec, ...]:
    return tuple(_spec(s) for s in signature(job.model.graph.inputs) if s.name not in job.variables)


def _results(job: CompiledJob) -> tuple[TensorSpec, ...]:
    state = {f"next/{name}" for name in job.variables}
    return tuple(_spec(s) for s in signature(job.model.graph.outputs) if s.name not in state)


def _spec(tensor: Signature) -> TensorSpec:
    return TensorSpec(tensor.name, tensor.shape, tensor.dtype)


def _check_target(path: Path) -> None:
    """Raise unless `path` is free, empty, or holds a bundle and nothing else."""
    try:
        found = {p.name for p in path.iterdir()} if path.is_dir() else set()
    except OSError as error:
        raise BundleError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        return
    try:
        manifest = Manifest.read(path, verify=False)
    except BundleError as error:
        raise BundleError(
            f"{path} is a folder with content that is no bundle",
            hint="choose another path; only an earlier bundle is replaced",
        ) from error
    foreign = sorted(found - {*manifest.files, *EXTRAS, MANIFEST})
    if foreign:
        raise BundleError(
            f"{path} holds {foreign[0]}, which is not of the bundle there and would be lost",
            hint="move it away, or choose another path",
        )
