"""The tracing phase: the body runs once on blobs, and what it returned is checked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flow2onnx.errors import ContextError, FlowError, ShapeError, UnsupportedError
from flow2onnx.graph import Value
from flow2onnx.graph.types import dims
from flow2onnx.source import raised_at
from flow2onnx.trace.blob import Blob
from flow2onnx.trace.context import traced_job, tracing
from flow2onnx.trace.distribution import rank_of_devices
from flow2onnx.trace.job import Job
from flow2onnx.trace.mirror import mirror, piece_count
from flow2onnx.trace.spec import JobSpec
from flow2onnx.typing import (
    ParameterSpec,
    PlaceholderSpec,
    TreeDef,
    check_return,
    flatten,
    unflatten,
)

__all__ = ["Traced", "fed_shapes", "leaf_placeholders", "pieces_of", "trace"]

Shapes = Sequence[tuple[int, ...]]


@dataclass(frozen=True)
class Traced:
    """A job after tracing, with the values its body returned and their nesting.

    In a mirrored job on several devices each result stands there once for each of them.
    """

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


def fed_shapes(spec: JobSpec, pieces: int = 1) -> Shapes:
    """The declared shape of every array of a call, those of one placeholder together."""
    leaves = (p for _, p in leaf_placeholders(spec))
    return tuple(p.shape for p in leaves for _ in range(_copies(p, pieces)))


def _copies(placeholder: PlaceholderSpec, pieces: int) -> int:
    return 1 if placeholder.kind == "numpy" else pieces


def pieces_of(spec: JobSpec, devices: int) -> int:
    """The number of pieces in each list among the arguments of a call."""
    return piece_count(spec, [p for _, p in leaf_placeholders(spec)], devices)


def trace(
    spec: JobSpec,
    shapes: Shapes | None = None,
    opset: int = 21,
    seed: int = 0,
    devices: int = 1,
    ranks: int = 1,
    rank: int = 0,
    shards: int = 1,
) -> Traced:
    """Run the body of a job on blobs, in the declared shapes or for inputs of other `shapes`.

    For one of `ranks` processes, a mirrored job has the piece of one device, and `devices` is 1.
    `shards`: how many devices its hints and placements are noted for.
    """
    outer = traced_job()
    if outer is not None:
        raise ContextError(
            f"job {spec.name} is traced inside job {outer.spec.name}",
            job=outer.spec.name,
            hint="call a plain function instead: only the outermost function is a job",
        )
    pieces = pieces_of(spec, devices)
    begun = Job(
        spec=spec, opset=opset, seed=seed, pieces=pieces, ranks=ranks, rank=rank, shards=shards
    )
    with tracing(begun) as job:
        try:
            job.b.place = _default_place(job)
            returned = spec.function(*_arguments(job, shapes))
        except FlowError as error:
            error.located(spec.name, None, raised_at(error))
            raise
    job.body_ended, job.b.place = True, None
    try:
        with tracing(job):  # what the host made becomes an input when it is returned
            return _finish(job, returned)
    except FlowError as error:
        error.located(spec.name, None, spec.source)
        raise


def _default_place(job: Job) -> int | None:
    """The process that computes what no scope places, if one alone does."""
    scope = job.spec.config.value("default_placement_scope")
    return None if scope is None else rank_of_devices(job, scope.device_ids)


def _finish(job: Job, returned: object) -> Traced:
    check_return(job.spec.returns, returned, job.spec.name, lambda x: isinstance(x, Blob))
    leaves, tree = flatten(returned)
    for blob in leaves:
        job.check_own(blob.value, "returned blob")
    results = [blob.value for blob in leaves]
    return Traced(job, tuple(_mirror(job, results)), tree)


def _mirror(job: Job, results: list[Value]) -> list[Value]:
    """The results on every device, whose pieces of the inputs are made here."""
    if job.pieces == 1:
        return results
    traced, job.inputs = job.inputs, []
    others: dict[Value, list[Value]] = {}
    for value, (name, placeholder) in zip(traced, leaf_placeholders(job.spec), strict=True):
        _check_piece(job, name, placeholder)
        names = (f"{name}@{device}" for device in range(1, job.pieces))
        others[value] = [job.b.input(n, dims(value), placeholder.dtype) for n in names]
        job.inputs += [value, *others[value]]
    return mirror(job, others, results)


def _check_piece(job: Job, name: str, placeholder: PlaceholderSpec) -> None:
    if placeholder.kind == "numpy":
        raise UnsupportedError(
            f"parameter {name} is a whole array, and others of the mirrored job are lists of one "
            f"array for each of {job.pieces} devices",
            hint="declare tp.ListNumpy.Placeholder for every parameter",
        )


def _arguments(job: Job, shapes: Shapes | None) -> list[object]:
    leaves = leaf_placeholders(job.spec)
    chosen = _of_one_device(job, shapes) if shapes else [p.shape for _, p in leaves]
    blobs = []
    for (name, placeholder), shape in zip(leaves, chosen, strict=True):
        value = job.b.input(name, shape, placeholder.dtype)
        job.inputs.append(value)
        blobs.append(Blob(value, is_dynamic=placeholder.kind != "numpy"))
    remaining = iter(blobs)
    return [_nest(p, remaining) for p in job.spec.parameters]


def _of_one_device(job: Job, shapes: Shapes) -> Shapes:
    """The shapes of a call that every device has its pieces in."""
    pieces = pieces_of(job.spec, job.ranks) if job.ranks > 1 else job.pieces
    first = shapes[::pieces]
    if [s for s in first for _ in range(pieces)] != list(shapes):
        raise ShapeError(
            f"the devices of a mirrored job are given pieces of shapes {list(shapes)}",
            hint="give every device a piece of the same shape",
        )
    return first


def _nest(parameter: ParameterSpec, blobs: Iterator[Blob]) -> object:
    _, tree = flatten(parameter)
    return unflatten(tree, [next(blobs) for _ in range(tree.leaf_count)])
