"""A started session as an export sees it: its jobs compiled for files, and present values."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Protocol

import numpy as np
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.providers import CPU

from flow2onnx.compile import CompiledJob, Target, initial_state
from flow2onnx.compile.opsets import USUAL_OPSET
from flow2onnx.compile.variants import count_draws, for_any_batch, halves, without_watches
from flow2onnx.engine.session import Session
from flow2onnx.errors import ArgumentError, FlowError, JobError, UnsupportedError
from flow2onnx.graph import Model
from flow2onnx.optim import Training
from flow2onnx.trace.initializers import Constant
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import leaf_placeholders
from flow2onnx.trace.variables import Variable
from flow2onnx.typing import PlaceholderSpec

__all__ = ["Exportable", "SessionView", "find_job", "known_spec"]

Shapes = tuple[tuple[int, ...], ...]


class Exportable(Protocol):
    """A job function: its specification and the session it belongs to."""

    @property
    def spec(self) -> JobSpec:
        """The specification of the job."""

    @property
    def session(self) -> Session:
        """Where its variables are."""


@dataclass(frozen=True)
class SessionView:
    """A started session at one opset and one batch size (None: as declared).

    A step `for_devices` has a rate that can be set. `tuned`: forms of lowerings by question.
    `shards`: how many devices the models tell of.
    """

    session: Session
    opset: int = USUAL_OPSET
    batch: int | None = None
    for_devices: bool = False
    tuned: Mapping[str, str] = field(default_factory=dict)
    _: KW_ONLY
    shards: int = 1

    @property
    def target(self) -> Target:
        """The target to compile for."""
        return replace(
            self.session.target(),
            opset=self.opset,
            shows_losses=False,
            training=Training(adjusts_rate=self.for_devices),
            devices=1,
            shards=self.shards,
            tuned=self.tuned,
            provider=CPU.tag,  # a file is the same on every machine
        )

    def compile(self, spec: JobSpec) -> CompiledJob:
        """A job without its watches; all its losses are outputs."""
        return self._compile(spec, self.target)

    def compile_halves(self, spec: JobSpec) -> tuple[CompiledJob, CompiledJob]:
        """A train job's step as two models: sum up gradients of a batch, update by the mean."""
        target = self.target
        return halves(
            target.training, lambda half: self._compile(spec, replace(target, training=half))
        )

    def compile_for_any_batch(self, spec: JobSpec, declared: CompiledJob) -> CompiledJob:
        """A job for batches of any size; `declared` is what it is as declared."""
        size = _declared_batch(spec)
        known = {d for _, p in leaf_placeholders(spec) for d in p.shape}
        try:
            return for_any_batch(lambda n: self._compile_at(spec, n), known, (declared, size))
        except UnsupportedError as error:
            error.located(spec.name, None, spec.source)
            raise

    def initial(self, variables: dict[str, Variable]) -> Model:
        """The model that computes the first values of variables."""
        with self._hint_at_opset():
            return initial_state(variables, self.target)

    def values(self, variables: Mapping[str, Variable]) -> dict[str, Array]:
        """The present values of variables, all of one moment; what only devices have is new."""
        known = self.session.snapshot([n for n in variables if n in self.session.variables])
        return _with_new(known, variables)

    def lend(
        self, variables: Mapping[str, Variable], use: Callable[[dict[str, Array]], None]
    ) -> None:
        """Let `use` read what `values` would copy, where it lies; calls wait meanwhile."""
        known = [n for n in variables if n in self.session.variables]
        self.session.lend(known, lambda values: use(_with_new(values, variables)))

    def _compile(self, spec: JobSpec, target: Target) -> CompiledJob:
        shapes = _shapes_at(spec, self.batch) if self.batch is not None else None
        job = self._compile_known(spec, shapes, target)
        if job.kind == "train" and not job.losses:
            job = self._compile_known(spec, shapes, replace(target, shows_losses=True))
        job = without_watches(job)
        if self.for_devices and job.kind == "train":
            count_draws(job)
        return job

    def _compile_at(self, spec: JobSpec, batch: int) -> CompiledJob:
        try:
            return without_watches(self._compile_known(spec, _shapes_at(spec, batch), self.target))
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

    def _compile_known(self, spec: JobSpec, shapes: Shapes | None, target: Target) -> CompiledJob:
        """A job, if it has the variables of the session for these inputs too."""
        with self._hint_at_opset():
            job = self.session.compile(spec, target, shapes)
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
        return job

    @contextmanager
    def _hint_at_opset(self) -> Iterator[None]:
        """Let what cannot be had at an unusual opset point there."""
        try:
            yield
        except UnsupportedError as error:
            if self.opset != USUAL_OPSET:
                error.hint = f"this is so at opset {self.opset}; try opset={USUAL_OPSET}"
            raise


def _with_new(known: Mapping[str, Array], variables: Mapping[str, Variable]) -> dict[str, Array]:
    """The values that are known, and the first ones of other variables."""
    return {n: known[n] if n in known else _first_value(v) for n, v in variables.items()}


def _first_value(variable: Variable) -> Array:
    assert isinstance(variable.initializer, Constant), "only variables have other initializers"
    return np.full(variable.shape, variable.initializer.value, variable.dtype.numpy)


def _declared_batch(spec: JobSpec) -> int:
    """The size of the first declared batch axis."""
    sizes = (_batch_of(p) for _, p in leaf_placeholders(spec))
    size = next((s for s in sizes if s is not None), None)
    if size is None:
        raise UnsupportedError(
            f"job {spec.name} has no input with a batch axis",
            job=spec.name,
            source=spec.source,
            hint="export it as declared, without dynamic_batch and batch",
        )
    return size


def _batch_of(placeholder: PlaceholderSpec) -> int | None:
    axis = placeholder.batch_axis
    return None if axis is None or not placeholder.shape else placeholder.shape[axis]


def _shapes_at(spec: JobSpec, batch: int) -> Shapes:
    """The shapes of the inputs at another batch size: of those whose batch is the first's."""
    declared, shapes = _declared_batch(spec), []
    for _, placeholder in leaf_placeholders(spec):
        shape, axis = placeholder.shape, placeholder.batch_axis
        if axis is not None and _batch_of(placeholder) == declared:
            shape = (*shape[:axis], batch, *shape[axis + 1 :])
        shapes.append(shape)
    return tuple(shapes)


def known_spec(job: Exportable) -> JobSpec:
    """The specification of a job, which is one of its session still."""
    if not isinstance(getattr(job, "spec", None), JobSpec):
        raise ArgumentError(
            f"{job!r} is no job", hint="give a function decorated with @flow.global_function(...)"
        )
    session = job.session
    if job.spec.name not in session.job_names() or session.spec(job.spec.name) is not job.spec:
        raise JobError(
            f"job {job.spec.name} was replaced by a later job of the same name",
            job=job.spec.name,
            source=job.spec.source,
            hint="give the functions different names",
        )
    return job.spec


def find_job(session: Session, name: str) -> JobSpec:
    """The job of that name in a session."""
    if name not in session.job_names():
        raise JobError(
            f"there is no job {name!r}", hint=f"the session has {', '.join(session.job_names())}"
        )
    return session.spec(name)
