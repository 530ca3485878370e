"""Compiled jobs known again: an equal program needs no gradients and no passes to be opened."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.compile.job import (
    CompiledJob,
    Target,
    WatchedOutput,
    build_job,
    compile_job,
    trace_for,
)
from flow2onnx.compile.program_key import program_key
from flow2onnx.compile.programs import KeptProgram, Programs
from flow2onnx.dtypes import by_name
from flow2onnx.graph import Value
from flow2onnx.graph.deferred_model import DeferredModel, new_value
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.lowering.forms import Choice
from flow2onnx.optim import WHOLE
from flow2onnx.trace.host import HostPlan
from flow2onnx.trace.initializers import Constant
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import Traced, pieces_of
from flow2onnx.trace.variables import Variable

__all__ = ["compile_known_job"]

T = TypeVar("T")
_GROWTH = 10  # nodes of a train job for each that was traced, at most


@dataclass(frozen=True)
class _TraceFacts:
    """A job as its trace left it, which compiling it goes on with."""

    variables: Mapping[str, Variable]
    feeds: tuple[str, ...]
    devices: frozenset[str]
    host: HostPlan | None

    @classmethod
    def of(cls, traced: Traced) -> "_TraceFacts":
        job = traced.job
        feeds = tuple(str(v.name) for v in (*job.inputs, *job.host.inputs))
        return cls(dict(job.variables), feeds, frozenset(job.devices), job.host.plan())


@collector_paused()
def compile_known_job(
    spec: JobSpec,
    shapes: Sequence[tuple[int, ...]] | None,
    target: Target,
    programs: Programs,
) -> CompiledJob:
    """The job that `compile_job` makes; where `programs` know it, its model is made on demand.

    The job has its program, where it may be kept.
    """
    traced, choices = trace_for(spec, shapes, target)
    key = _key(traced, target, programs)
    if not key:
        return build_job(traced, choices, target)
    kept, facts = programs.read_program(key), _TraceFacts.of(traced)
    if kept is not None:
        build = _Once(
            lambda: build_job(traced, choices, target), lambda: compile_job(spec, shapes, target)
        )
        return _known_job(spec, traced, facts, kept, build)
    job = build_job(traced, choices, target)
    if len(job.model.graph) < programs.fewest_nodes:
        return job
    return replace(job, program=_program(key, job, facts))


def _key(traced: Traced, target: Target, programs: Programs) -> str:
    """The key of a program that may be kept; "" for others."""
    job = traced.job
    is_plain = (
        job.is_trainable
        and not job.is_divided
        and (job.ranks, job.pieces, target.devices, target.shards) == (1, 1, 1, 1)
        and target.provider == "cpu"
        and target.training == WHOLE
        and not _is_warned_of(job.spec)
    )
    if not is_plain or _GROWTH * len(job.b.nodes) < programs.fewest_nodes:
        return ""
    decisive = (
        target.opset, target.seed, target.shows_losses, dict(target.tuned), sorted(target.contrib),
    )  # fmt: skip
    return program_key(traced, *decisive)


def _is_warned_of(spec: JobSpec) -> bool:
    """True for flags of which compiling says, at each start, that they are of no use."""
    return spec.half is not None or spec.config.value("train.secondary_lr") is not None


def _program(key: str, job: CompiledJob, facts: _TraceFacts) -> KeptProgram | None:
    """What is to be kept of a job; None where its trace and such facts are not all of it."""
    added = [v for name, v in job.variables.items() if name not in facts.variables]
    own = [v for name, v in job.variables.items() if facts.variables.get(name) is v]
    now = (job.feeds, job.devices, job.host, [*own, *added])
    before = (facts.feeds, facts.devices, facts.host, list(job.variables.values()))
    divided = (job.division, job.update, job.sent, job.moved, job.parts, job.shares, job.split)
    outputs = job.model.graph.outputs
    if now != before or any(divided) or not all(map(_is_simple, added)):
        return None
    return KeptProgram(
        key=key,
        job=job.spec.name,
        state=tuple(map(_facts_of_state, added)),
        outputs=tuple((str(v.name), sizes_of(v), dtype_of(v).code) for v in outputs),
        results=job.results,
        losses=job.losses,
        watches=tuple(w.arguments for w in job.watches),
    )


def _facts_of_state(v: Variable) -> tuple[str, tuple[int, ...], str, float, str, str | None]:
    assert isinstance(v.initializer, Constant), "other state is not kept"
    return v.name, tuple(v.shape), v.dtype.name, v.initializer.value, v.role, v.owner


def _is_simple(v: Variable) -> bool:
    """True for state that `_state` makes again of its facts."""
    value = v.initializer.value if isinstance(v.initializer, Constant) else None
    return type(value) in (int, float) and v == _state(_facts_of_state(v))


def _state(facts: Sequence[Any]) -> Variable:
    name, shape, dtype, value, role, owner = facts
    return Variable(
        name=name, shape=shape, dtype=by_name(dtype), initializer=Constant(value), role=role,
        is_trainable=False, owner=owner,
    )  # fmt: skip


def _known_job(
    spec: JobSpec, traced: Traced, facts: _TraceFacts, kept: KeptProgram, build: "_Once"
) -> CompiledJob:
    """A traced job with what is kept of an equal one; `build` compiles it when that is asked."""
    job, state = traced.job, list(map(_state, kept.state))
    added: list[Value] = [new_value(v.name, v.shape, v.dtype.code) for v in state]
    outputs = [new_value(*facts) for facts in kept.outputs]
    return CompiledJob(
        spec=spec,
        kind="train",
        model=DeferredModel([*job.b.graph.inputs, *added], outputs, lambda: build().model),
        variables={**facts.variables, **{v.name: v for v in state}},
        feeds=facts.feeds,
        results=kept.results,
        losses=kept.losses,
        watches=tuple(
            WatchedOutput(arguments, watch.handler, watch.is_once)
            for arguments, watch in zip(kept.watches, job.watches, strict=True)
        ),
        tree=traced.tree,
        devices=facts.devices,
        host=facts.host,
        pieces=pieces_of(spec, 1),
        choices=_Later[Choice](lambda: build().choices),
        recomputed=_Later(lambda: build().recomputed),
        program=kept,
    )


class _Once:
    """A job that is compiled at the first call, in one thread.

    `build` makes it of the trace, which is of no use once that was interrupted: from then on
    `compile_anew` makes it.
    """

    def __init__(
        self, build: Callable[[], CompiledJob], compile_anew: Callable[[], CompiledJob]
    ) -> None:
        self._make, self._compile_anew = build, compile_anew
        self._lock = threading.Lock()
        self._job: CompiledJob | None = None

    def __call__(self) -> CompiledJob:
        with self._lock:
            if self._job is None:
                make, self._make = self._make, self._compile_anew
                self._job = make()
            return self._job


class _Later(Sequence[T]):
    """A sequence that is made when somebody reads it."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make

    def __getitem__(self, at: Any) -> Any:
        return self._make()[at]

    def __len__(self) -> int:
        return len(self._make())
