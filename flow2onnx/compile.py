"""From a job's specification to a model that runs: the whole way on one screen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flow2onnx.errors import JobError
from flow2onnx.graph import Builder, Model, Value, model_of, verify
from flow2onnx.graph.verify import Kernels
from flow2onnx.optim import append_training
from flow2onnx.passes import run_passes
from flow2onnx.passes.sink_relu import sink_relu
from flow2onnx.trace.job import Job
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import Traced, trace
from flow2onnx.trace.variables import Variable
from flow2onnx.typing import TreeDef

__all__ = ["CompiledJob", "Target", "WatchedOutput", "compile_job", "initial_state"]


@dataclass(frozen=True)
class Target:
    """What to compile for: opset, seed of random nodes, kernels to have, whether to show losses."""

    opset: int = 21
    seed: int = 0
    kernels: Kernels | None = None
    shows_losses: bool = False


@dataclass(frozen=True)
class WatchedOutput:
    """An output of the model that is there for a watch handler."""

    output: str
    handler: Any  # a callable of one argument


@dataclass(frozen=True)
class CompiledJob:
    """A job as a model: inputs `feeds` and the variables read, outputs `results` and ``next/v``."""

    spec: JobSpec
    kind: str
    model: Model
    variables: dict[str, Variable]
    feeds: tuple[str, ...]
    results: tuple[str, ...]
    losses: tuple[str, ...]
    watches: tuple[WatchedOutput, ...]
    tree: TreeDef
    devices: frozenset[str]


def compile_job(
    spec: JobSpec, shapes: Sequence[tuple[int, ...]] | None = None, target: Target = Target()
) -> CompiledJob:
    """Trace, differentiate, update, rewrite, verify."""
    traced = trace(spec, shapes, target.opset, target.seed)
    job = traced.job
    if job.is_trainable:
        sink_relu(job.b, _kept(traced))  # before there are gradients, which would read the ReLU
    diffs = append_training(job) if job.is_trainable else {}
    results, losses, watches = _name_outputs(traced, diffs, target)
    run_passes(job.b.graph)
    job.b.graph.name = spec.name
    model = model_of(job.b.graph)
    verify(model, target.kernels)
    kind = "train" if job.is_trainable else "predict"
    feeds = tuple(str(v.name) for v in job.inputs)
    return CompiledJob(
        spec,
        kind,
        model,
        job.variables,
        feeds,
        results,
        losses,
        watches,
        traced.tree,
        frozenset(job.devices),
    )


def _kept(traced: Traced) -> set[Value]:
    """The values that something besides the nodes of the job refers to."""
    job = traced.job
    regions = [v for r in job.regions.values() for v in (*r.inputs, *r.outputs)]
    watched = [w.value for w in job.watches]
    return {*traced.results, *job.losses, *watched, *job.updates.values(), *regions}


def initial_state(variables: dict[str, Variable], target: Target = Target()) -> Model:
    """The model without inputs whose outputs are the first values of `variables`, by name."""
    b = Builder(target.opset)
    for name, v in variables.items():
        seed = Job.seed_for(target.seed, name, v.seed)
        with b.under(f"init/{name}"):
            b.output(v.initializer.emit(b, v.shape, v.dtype, seed), name)
    b.graph.name = "init"
    model = model_of(b.graph)
    verify(model, target.kernels)
    return model


def _name_outputs(
    traced: Traced, diffs: dict[Value, Value], target: Target
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[WatchedOutput, ...]]:
    job = traced.job
    results = tuple(f"out/{i}" for i in range(len(traced.results)))
    losses = [results[traced.results.index(v)] for v in job.losses if v in traced.results]
    for name, value in zip(results, traced.results, strict=True):
        job.b.output(value, name)
    if target.shows_losses:
        losses = [f"loss/{i}" for i in range(len(job.losses))]
        for name, value in zip(losses, job.losses, strict=True):
            job.b.output(value, name)
    watches = tuple(_watch(job, i, diffs) for i in range(len(job.watches)))
    for name, value in job.updates.items():
        job.b.output(value, f"next/{name}")
    return results, tuple(losses), watches


def _watch(job: Job, i: int, diffs: dict[Value, Value]) -> WatchedOutput:
    watch = job.watches[i]
    value = diffs.get(watch.value) if watch.is_gradient else watch.value
    if value is None:
        raise JobError(
            f"watch_diff: no loss depends on {watch.value.name}", job=job.spec.name,
            hint="watch a blob between a variable and the loss of a train job",
        )  # fmt: skip
    return WatchedOutput(str(job.b.output(value, f"watch/{i}").name), watch.handler)
