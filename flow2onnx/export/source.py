"""Source: the jobs of one export, compiled for it, and the values of their variables."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Protocol

import numpy as np

from flow2onnx.compile import CompiledJob, Target, initial_state
from flow2onnx.engine.session import Session
from flow2onnx.errors import ArgumentError, FlowError, JobError, UnsupportedError
from flow2onnx.graph import Builder, Model
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.onnx_io.free_batch import free_batch
from flow2onnx.onnx_io.serialize import NEWEST_OPSET, drop_inputs, drop_outputs
from flow2onnx.optim import Training, count_name
from flow2onnx.passes import CounterBasedRandom, run_passes
from flow2onnx.trace.initializers import Constant
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import leaf_placeholders
from flow2onnx.trace.variables import Variable
from flow2onnx.typing import PlaceholderSpec

__all__ = ["OLDEST_OPSET", "Exportable", "Source", "check_opset", "find_job"]

OLDEST_OPSET = 18  # before it, reductions take their axes in another form
_USUAL_OPSET = 21
# Sizes to trace a job at that no layer has by accident: odd, even, a multiple of three.
_UNUSUAL = (61, 74, 87, 91, 106, 123)

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = tuple[tuple[int, ...], ...]


class Exportable(Protocol):
    """A job function: its specification and the session it belongs to."""

    @property
    def spec(self) -> JobSpec:
        """What the job is."""

    @property
    def session(self) -> Session:
        """Where its variables are."""


@dataclass(frozen=True)
class Source:
    """A started session, seen by an export at one opset and one batch size (None: as declared).

    A step `for_devices` has a rate that can be set. `tuned`: forms of lowerings by question.
    """

    session: Session
    opset: int = _USUAL_OPSET
    batch: int | None = None
    for_devices: bool = False
    tuned: Mapping[str, str] = field(default_factory=dict)

    @property
    def target(self) -> Target:
        """What to compile for."""
        training = Training(adjusts_rate=self.for_devices)
        return replace(
            self.session.target(),
            opset=self.opset,
            shows_losses=False,
            training=training,
            devices=1,
            tuned=self.tuned,
        )

    def compiled(self, spec: JobSpec) -> CompiledJob:
        """A job without its watches; all its losses are outputs."""
        return self._part(spec, self.target)

    def halves(self, spec: JobSpec) -> tuple[CompiledJob, CompiledJob]:
        """A train job's step as two models: sum up gradients of a batch, update by the mean."""
        way = self.target.training
        first = self._part(spec, replace(self.target, training=replace(way, part="gradients")))
        second = self._part(spec, replace(self.target, training=replace(way, part="update")))
        drop_outputs(second.model, second.results)
        run_passes(second.model.graph)
        drop_inputs(first.model, first.feeds)
        drop_inputs(second.model, ())
        return first, replace(second, feeds=(), results=(), losses=())

    def _part(self, spec: JobSpec, target: Target) -> CompiledJob:
        shapes = _at(spec, self.batch) if self.batch is not None else None
        job = self._compiled(spec, shapes, target)
        if job.kind == "train" and not job.losses:
            job = self._compiled(spec, shapes, replace(target, shows_losses=True))
        self._check_variables(job)
        job = _without_watches(job)
        if self.for_devices and job.kind == "train":
            CounterBasedRandom(_counters(job)).run(job.model.graph)
        return job

    def compiled_free(self, spec: JobSpec, declared: CompiledJob) -> CompiledJob:
        """A job for batches of any size; `declared` is what it is as declared."""
        axes = _batch_axes(spec)
        first = next(i for i, axis in enumerate(axes) if axis is not None)
        size = _declared([p for _, p in leaf_placeholders(spec)][first])
        assert size is not None, "the axis is one of the batch"
        sizes = [n for n in _UNUSUAL if n not in _all_dims(spec)][:3]
        jobs = [self._compiled_at(spec, n) for n in sizes]
        for job in jobs:
            self._check_variables(job)
        named = {f: axis for f, axis in zip(jobs[0].feeds, axes, strict=True) if axis is not None}
        jobs = [_without_watches(job) for job in jobs]
        try:
            graphs = [job.model.graph for job in jobs]
            free_batch(graphs, sizes, named, (declared.model.graph, size))
        except UnsupportedError as error:
            error.located(spec.name, None, spec.source)
            raise
        return jobs[0]

    def initial(self, variables: dict[str, Variable]) -> Model:
        """The model that computes the first values of variables."""
        with self._opset_named():
            return initial_state(variables, self.target)

    def values(self, variables: Mapping[str, Variable]) -> dict[str, Array]:
        """The present values of variables, all of one moment; what only devices have is new."""
        known = self.session.snapshot([n for n in variables if n in self.session.variables])
        return {n: known[n] if n in known else _first(v) for n, v in variables.items()}

    def _compiled_at(self, spec: JobSpec, batch: int) -> CompiledJob:
        try:
            return self._compiled(spec, _at(spec, batch), self.target)
        except UnsupportedError:
            raise
        except FlowError as error:
            raise UnsupportedError(
                f"the job cannot be made for another batch size than declared, such as {batch}: "
                f"{error.message}",
                job=spec.name,
                op=error.op,
                source=error.source or spec.source,
                hint="write sizes with -1, or take them from the shape of an input",
            ) from error

    def _compiled(self, spec: JobSpec, shapes: Shapes | None, target: Target) -> CompiledJob:
        with self._opset_named():
            return self.session.compiled(spec, target, shapes)

    @contextmanager
    def _opset_named(self) -> Iterator[None]:
        """Let what cannot be had at an unusual opset point there."""
        try:
            yield
        except UnsupportedError as error:
            if self.opset != _USUAL_OPSET:
                error.hint = f"this is so at opset {self.opset}; try opset={_USUAL_OPSET}"
            raise

    def _check_variables(self, job: CompiledJob) -> None:
        """Raise unless the job has the variables of the session at this batch too."""
        for name, variable in job.variables.items():
            known = self.session.variables.get(name)
            if known is None and self.for_devices and variable.role != "variable":
                continue
            if known is None or known.shape != variable.shape:
                declared = known.shape if known else "not there"
                raise UnsupportedError(
                    f"variable {name} depends on the batch size: {variable.shape}, "
                    f"with the declared inputs {declared}",
                    job=job.spec.name,
                    source=variable.source,
                    hint="give variables names and shapes that do not depend on the batch",
                )


def check_opset(opset: object) -> None:
    """Raise unless our operators and the installed runtime can be had at `opset`."""
    newest = _newest_opset()
    if type(opset) is not int or not OLDEST_OPSET <= opset <= newest:
        raise ArgumentError(
            f"opset {opset!r} is not supported",
            hint=f"the installed runtime and flow2onnx take {OLDEST_OPSET} to {newest}; "
            f"{_USUAL_OPSET} is a good choice",
        )


@cache
def _newest_opset() -> int:
    """The newest that the runtime opens: a fact it tells in no other way."""
    return next(n for n in range(NEWEST_OPSET, 0, -1) if _opens(n))


def _opens(opset: int) -> bool:
    from flow2onnx_runtime import BundleError, open_session

    from flow2onnx.dtypes import float32

    b = Builder(opset)
    b.output(b.Identity(b.input("x", (1,), float32)), "y")
    try:
        return open_session(model_bytes(model_of(b.graph))) is not None
    except BundleError:
        return False


def _counters(job: CompiledJob) -> list[str]:
    """What tells one batch of training from another: steps done, batches since the last."""
    names = [f"System-Train-TrainStep-{job.spec.name}", count_name(job.spec.name)]
    return [name for name in names if name in job.variables]


def _first(variable: Variable) -> Array:
    assert isinstance(variable.initializer, Constant), "only variables have other initializers"
    return np.full(variable.shape, variable.initializer.value, variable.dtype.numpy)


def _without_watches(job: CompiledJob) -> CompiledJob:
    """The job without the outputs that only its handlers, which no file holds, would see."""
    if drop_outputs(job.model, {o for w in job.watches for o in w.outputs}):
        run_passes(job.model.graph)
    return replace(job, watches=())


def _batch_axes(spec: JobSpec) -> list[int | None]:
    """For each input, where its batch is: the declared axis, if it has the size of the first's."""
    leaves = [p for _, p in leaf_placeholders(spec)]
    size = next((_declared(p) for p in leaves if _declared(p) is not None), None)
    if size is None:
        raise UnsupportedError(
            f"job {spec.name} has no input with a batch axis",
            job=spec.name,
            source=spec.source,
            hint="export it as declared, without dynamic_batch and batch",
        )
    return [p.batch_axis if _declared(p) == size else None for p in leaves]


def _declared(placeholder: PlaceholderSpec) -> int | None:
    axis = placeholder.batch_axis
    return None if axis is None or not placeholder.shape else placeholder.shape[axis]


def _at(spec: JobSpec, batch: int) -> Shapes:
    """The shapes of the inputs at another batch size."""
    leaves = [p.shape for _, p in leaf_placeholders(spec)]
    return tuple(
        shape if axis is None else (*shape[:axis], batch, *shape[axis + 1 :])
        for shape, axis in zip(leaves, _batch_axes(spec), strict=True)
    )


def _all_dims(spec: JobSpec) -> set[int]:
    return {d for _, p in leaf_placeholders(spec) for d in p.shape}


def find_job(session: Session, name: str) -> JobSpec:
    """The job of that name in a session."""
    if name not in session.job_names():
        raise JobError(
            f"there is no job {name!r}", hint=f"the session has {', '.join(session.job_names())}"
        )
    return session.spec(name)
