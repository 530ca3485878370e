"""The tracing phase: the body runs once on blobs, and what it returned is checked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flow2onnx.errors import ContextError, FlowError
from flow2onnx.graph import Value
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import traced_job, tracing
from flow2onnx.trace.job import Job
from flow2onnx.trace.source import raised_at
from flow2onnx.trace.spec import JobSpec
from flow2onnx.typing import (
    ParameterSpec,
    PlaceholderSpec,
    TreeDef,
    check_return,
    flatten,
    unflatten,
)

__all__ = ["Traced", "leaf_placeholders", "trace"]

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Traced:
    """A job after tracing, with the values its body returned and their nesting."""

    job: Job
    results: tuple[Value, ...]
    tree: TreeDef


def leaf_placeholders(spec: JobSpec) -> list[tuple[str, PlaceholderSpec]]:
    """Every placeholder of a job with the name of its input, in the order arrays are fed."""
    return [
        pair
        for name, parameter in zip(spec.names, spec.parameters, strict=True)
        for pair in _leaves(name, parameter)
    ]


def _leaves(name: str, parameter: ParameterSpec) -> Iterator[tuple[str, PlaceholderSpec]]:
    if isinstance(parameter, PlaceholderSpec):
        yield name, parameter
        return
    keys = parameter.items() if isinstance(parameter, dict) else enumerate(parameter)
    for key, part in keys:
        yield from _leaves(f"{name}/{key}", part)


def trace(spec: JobSpec, shapes: Shapes | None = None, opset: int = 21, seed: int = 0) -> Traced:
    """Run the body of a job on blobs, in the declared shapes or for inputs of other `shapes`."""
    outer = traced_job()
    if outer is not None:
        raise ContextError(
            f"job {spec.name} is traced inside job {outer.spec.name}",
            job=outer.spec.name,
            hint="call a plain function instead: only the outermost function is a job",
        )
    with tracing(Job(spec, opset, seed)) as job:
        try:
            returned = spec.function(*_arguments(job, shapes))
        except FlowError as error:
            error.located(spec.name, None, raised_at(error))
            raise
    job.body_ended = True
    try:
        return _traced(job, returned)
    except FlowError as error:
        error.located(spec.name, None, spec.source)
        raise


def _traced(job: Job, returned: object) -> Traced:
    check_return(job.spec.returns, returned, job.spec.name, lambda x: isinstance(x, Blob))
    leaves, tree = flatten(returned)
    for blob in leaves:
        job.check_own(blob.value, "returned blob")
    return Traced(job, tuple(blob.value for blob in leaves), tree)


def _arguments(job: Job, shapes: Shapes | None) -> list[object]:
    leaves = leaf_placeholders(job.spec)
    chosen = shapes or [p.shape for _, p in leaves]
    blobs = []
    for (name, placeholder), shape in zip(leaves, chosen, strict=True):
        value = job.b.input(name, shape, placeholder.dtype)
        job.inputs.append(value)
        blobs.append(Blob(value, is_dynamic=placeholder.kind != "numpy"))
    remaining = iter(blobs)
    return [_nested(p, remaining) for p in job.spec.parameters]


def _nested(parameter: ParameterSpec, blobs: Iterator[Blob]) -> object:
    _, tree = flatten(parameter)
    return unflatten(tree, [next(blobs) for _ in range(tree.leaf_count)])
