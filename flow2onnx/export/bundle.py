"""A train job as a folder: init, step and predict models, weights, manifest."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from flow2onnx_runtime import (
    FileEntry,
    Manifest,
    PredictJob,
    StateSpec,
    TensorSpec,
    open_session,
    replace_folder,
)
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.index_ranges import IndexRange
from flow2onnx_runtime.manifest import MANIFEST, Accumulation

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.names import first_value, next_name
from flow2onnx.engine.opening import open_model, plan_portable_opening
from flow2onnx.errors import ArgumentError, BundleError, UnsupportedError
from flow2onnx.export.device import OPERATORS, README, convert, write_notes
from flow2onnx.export.files import link_file, places_in, write_bytes, write_weights
from flow2onnx.export.metadata import producer, set_job_metadata, version
from flow2onnx.export.options import BundleExport, Predict
from flow2onnx.export.session_view import Exportable, SessionView, find_job, known_spec
from flow2onnx.graph import Model, Value
from flow2onnx.graph.class_numbers import index_numbers
from flow2onnx.graph.model import model_bytes
from flow2onnx.onnx_io.serialize import Signature, externalize_values, set_metadata, signature
from flow2onnx.optim import batch_count, learning_rate
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.variables import Variable

__all__ = [
    "EXTRAS",
    "Bundle",
    "StateSource",
    "check_keeps_nothing",
    "compile_bundle",
]

# What may lie in a bundle without being in its manifest: no runtime opens it.
EXTRAS = (README, OPERATORS)

INIT, STEP, WEIGHTS = "init.onnx", "step.onnx", "weights.safetensors"
GRADIENTS, UPDATE = "gradients.onnx", "update.onnx"


class StateSource(Protocol):
    """Where the first values of a bundle's state come from."""

    @property
    def opset(self) -> int:
        """The opset of the models."""

    def initial(self, variables: dict[str, Variable]) -> Model:
        """The init model; an input ``stored/v`` of it is read from the weights file."""

    def lend(
        self, variables: Mapping[str, Variable], use: Callable[[dict[str, Array]], None]
    ) -> None:
        """Let `use` read the values themselves, which may change once it has returned."""


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """The parts of a bundle.

    `halves`: the step as two models, or none. `names` are the file names of predict jobs that are
    to have others than by default. `shared` are files of others, by their names here, in which
    constants of the models lie: they are linked, so that nothing is copied. With `is_read` predict
    jobs read the state as inputs. `served` are predict jobs whose models are given as they are.
    `for_devices` adds a README and the list of operators, `ort_format` the models in the runtime's
    own format.
    """

    source: StateSource
    step: CompiledJob
    predicts: Sequence[CompiledJob]
    metadata: Mapping[str, str]
    halves: Sequence[CompiledJob] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    for_devices: bool = False
    ort_format: bool = False
    shared: Mapping[str, Path] = field(default_factory=dict)
    is_read: bool = False
    served: Sequence[tuple[PredictJob, bytes]] = ()

    @cached_property
    def variables(self) -> dict[str, Variable]:
        """The state, in the order of the jobs that have it first."""
        found = dict(self.step.variables)
        for job in (*self.halves, *self.predicts):
            found |= {name: v for name, v in job.variables.items() if name not in found}
        return found

    @property
    def half_files(self) -> dict[str, CompiledJob]:
        """The halves of the step by file."""
        return dict(zip((GRADIENTS, UPDATE), self.halves, strict=False))

    def write(self, path: Path) -> None:
        """Write the folder, whole or not at all; an earlier bundle at `path` is replaced."""
        _check_target(path)
        for job in self.predicts:
            check_keeps_nothing(job)
        try:
            replace_folder(path, lambda folder: _fill(folder, self), overwrite=True)
        except (OSError, ValueError) as error:
            if isinstance(error, BundleError):
                raise
            raise BundleError(
                f"{path} cannot be written: {error}",
                hint="check the permissions and the free space",
            ) from error


def compile_bundle(
    path: Path, view: SessionView, job: Exportable, step: CompiledJob, options: BundleExport
) -> Bundle:
    """The bundle of a train job, compiled as `view` sees it, that is to be written at `path`."""
    if path.suffix == ".onnx":
        raise ArgumentError(
            f"{path}: {job.spec.name} is a train job, which becomes a folder",
            hint=f"give the name of a folder, such as {path.with_suffix('')}",
        )
    return Bundle(
        source=view,
        step=step,
        predicts=[_compile_predict(view, spec) for spec in _predict_specs(job, options.predict)],
        metadata=dict(options.metadata or {}),
        halves=view.compile_halves(job.spec) if options.accumulate or options.distributed else (),
        for_devices=options.on_device,
        ort_format=options.ort_format,
    )


def _predict_specs(job: Exportable, predict: Predict | Sequence[Predict] | None) -> list[JobSpec]:
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
    spec = known_spec(asked)
    if asked.session is not job.session:
        raise ArgumentError(
            f"job {spec.name} is of another session than {job.spec.name}",
            hint="define both jobs before the first call",
        )
    return spec


def _compile_predict(view: SessionView, spec: JobSpec) -> CompiledJob:
    job = view.compile(spec)
    if job.kind == "train":
        raise ArgumentError(
            f"predict={spec.name} is a train job", hint="name a job of type='predict'"
        )
    return job


def check_keeps_nothing(job: CompiledJob) -> None:
    """Raise for a predict job that changes variables: a predict model has nowhere to keep them."""
    if job.writes:
        raise UnsupportedError(
            f"job {job.spec.name} assigns {job.writes[0]}; an exported predict model keeps nothing "
            "between calls",
            job=job.spec.name,
            source=job.spec.source,
            hint="assign in a train job",
        )


def _fill(folder: Path, bundle: Bundle) -> None:
    first = {name for job in bundle.predicts for name in job.variables}
    dtypes = {name: v.dtype for name, v in bundle.variables.items()}
    bundle.source.lend(
        bundle.variables,
        lambda values: write_weights(folder / WEIGHTS, values, dtypes, first=first),
    )
    for name, path in bundle.shared.items():
        link_file(path, folder / name)
    init = bundle.source.initial(bundle.variables)
    places = places_in(folder / WEIGHTS, bundle.variables)
    externalize_values(init, {first_value(name): place for name, place in places.items()})
    set_job_metadata(bundle.step, bundle.metadata)
    metadata = bundle.step.model.metadata_props
    models = {name: job.model for name, job in bundle.half_files.items()}
    for name, model in {INIT: init, **models}.items():
        set_metadata(model, version(), metadata)
        write_bytes(folder / name, model_bytes(model))
    write_bytes(folder / STEP, model_bytes(bundle.step.model))
    entries = tuple(_predict(folder, job, i, bundle) for i, job in enumerate(bundle.predicts))
    entries += tuple(_served(folder, entry, model, bundle) for entry, model in bundle.served)
    names = [INIT, STEP, *models, WEIGHTS, *bundle.shared, *(entry.file for entry in entries)]
    names += convert(folder) if bundle.ort_format else []
    files = {name: FileEntry.of(folder / name) for name in names}
    manifest = _manifest(bundle, files, entries)
    if bundle.for_devices:
        write_notes(folder, manifest)
    manifest.write(folder)


def _predict(folder: Path, job: CompiledJob, index: int, bundle: Bundle) -> PredictJob:
    """Write a predict model; one whose weights lie in the bundle's file also runs by itself."""
    set_job_metadata(job, bundle.metadata)
    usual = f"predict-{job.spec.name}.onnx" if index else "predict.onnx"
    file = bundle.names.get(job.spec.name, usual)
    feeds, results = _feeds(job), _results(job)
    names = tuple(job.variables)
    holds, reads = ((), names) if bundle.is_read else (names, ())
    externalize_values(job.model, places_in(folder / WEIGHTS, holds))
    write_bytes(folder / file, model_bytes(job.model))
    return PredictJob(job.spec.name, file, feeds, results, reads=reads, holds=holds)


def _served(folder: Path, entry: PredictJob, model: bytes, bundle: Bundle) -> PredictJob:
    """Write a model as it is given; what is known of a step's feeds holds for its own."""
    write_bytes(folder / entry.file, model)
    ranges = {feed.name: feed.range for feed in _feeds(bundle.step)}
    feeds = tuple(replace(feed, range=ranges.get(feed.name)) for feed in entry.feeds)
    return replace(entry, feeds=feeds)


def _manifest(
    bundle: Bundle, files: dict[str, FileEntry], predict: tuple[PredictJob, ...]
) -> Manifest:
    step = bundle.step
    rate = learning_rate(step.spec)
    is_halved = bool(bundle.halves)
    return Manifest(
        job=step.spec.name,
        producer=producer(),
        opset=bundle.source.opset,
        files=files,
        state=_state(bundle),
        feeds=_feeds(step),
        results=_results(step),
        losses=step.losses,
        init=INIT,
        step=STEP,
        predict=predict,
        weights=WEIGHTS,
        learning_rate=rate if rate in bundle.variables else None,
        accumulate=(Accumulation(GRADIENTS, UPDATE, batch_count(step.spec)) if is_halved else None),
        in_place=_in_place({STEP: step, **bundle.half_files}),
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


def _state(bundle: Bundle) -> tuple[StateSpec, ...]:
    counter, written = bundle.step.spec.step_counter, set(bundle.step.writes)
    return tuple(
        StateSpec(
            name,
            v.shape,
            v.dtype.name,
            # the manifest knows one counter, the step's own
            "slot" if v.role == "counter" and name != counter else v.role,
            name in written,
            v.owner,
        )
        for name, v in bundle.variables.items()
    )


def _feeds(job: CompiledJob) -> tuple[TensorSpec, ...]:
    values = {v.name: v for v in job.model.graph.inputs}
    return tuple(
        replace(_spec(s), range=_range(values[s.name]))
        for s in signature(job.model.graph.inputs)
        if s.name not in job.variables
    )


def _range(value: Value) -> IndexRange | None:
    found = index_numbers(value)
    if found is None:
        return None
    return IndexRange(found.least, found.below, found.layer, found.ignored)


def _results(job: CompiledJob) -> tuple[TensorSpec, ...]:
    state = set(map(next_name, job.variables))
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
