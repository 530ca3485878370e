"""Variants of a job: halves of its step, rounds, a free batch, counted draws, no watches."""

import hashlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from flow2onnx.compile.job import CompiledJob, Target, compile_job, cut_job
from flow2onnx.compile.names import SUM
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph.model import model_bytes
from flow2onnx.graph.nodes import has_seed, reseed
from flow2onnx.onnx_io.free_batch import free_batch
from flow2onnx.onnx_io.serialize import drop_inputs, drop_outputs
from flow2onnx.optim import Training, batch_count
from flow2onnx.passes import CounterBasedRandom, run_passes
from flow2onnx.passes.shard_annotations import renew_sizes
from flow2onnx.passes.share_rows import DRAWS_ROWS
from flow2onnx.trace.spec import JobSpec

__all__ = [
    "compile_for_ranks",
    "compile_rounds",
    "count_draws",
    "draw_as_rank",
    "for_any_batch",
    "halves",
    "unusual_sizes",
    "without_watches",
]

# Sizes of the batch that no layer has by accident: odd, even, a multiple of three.
_UNUSUAL = (61, 74, 87, 91, 106, 123)


def halves(
    training: Training, compile_half: Callable[[Training], CompiledJob]
) -> tuple[CompiledJob, CompiledJob]:
    """A step as two models: sum up the gradients of a batch; update by the mean, empty the sums.

    `compile_half` compiles the job with the part of the training that it is given.
    """
    first = compile_half(replace(training, part="gradients"))
    second = compile_half(replace(training, part="update"))
    shown = {o for watch in second.watches for o in watch.outputs}
    drop_outputs(second.model, {*second.results, *second.losses, *shown})
    run_passes(second.model.graph)
    drop_inputs(first.model, first.feeds)
    drop_inputs(second.model, ())
    return first, replace(second, feeds=(), results=(), losses=(), watches=(), host=None)


def count_draws(job: CompiledJob) -> None:
    """Let the random nodes of a step draw by its seed and the batch's number alone, in place.

    A runtime's own generators go on from whatever was drawn before.
    """
    counters = (job.spec.step_counter, batch_count(job.spec))  # they tell one batch from another
    CounterBasedRandom([n for n in counters if n in job.variables]).run(job.model.graph)


def compile_rounds(
    spec: JobSpec, shapes: Sequence[tuple[int, ...]] | None, target: Target, rounds: int
) -> CompiledJob:
    """A train job whose calls read `rounds` batches and make one update."""
    first, update = halves(
        target.training, lambda half: compile_job(spec, shapes, replace(target, training=half))
    )
    _check_read(first)
    variables = {**first.variables, **update.variables}
    return replace(first, rounds=rounds, update=update, variables=variables)


def _check_read(job: CompiledJob) -> None:
    """Raise where the several batches of a call would all be the one that it is given."""
    if len(job.feeds) > len(job.host.feeds if job.host else ()):
        raise UnsupportedError(
            "train.num_gradient_accumulation_steps: the job has placeholders, and every "
            "micro-step of a call needs a batch of its own",
            job=job.spec.name,
            hint="read the batches in the job: flow.data.ofrecord_reader; or make smaller calls",
        )


def compile_for_ranks(
    spec: JobSpec, shapes: Sequence[tuple[int, ...]] | None, target: Target, rounds: int
) -> CompiledJob:
    """The part of a train job that one of several processes does: gradients, then the update.

    Between the two it sends what the first half has in `sent`, and the second takes what came of
    it. `digest` is the same for all processes that do parts of the same job.
    """
    training = replace(target.training, rounds=rounds)
    first, update = halves(
        training, lambda half: compile_job(spec, shapes, replace(target, training=half))
    )
    if rounds > 1:
        _check_read(first)
    state = {*first.variables, *update.variables}
    inputs = (str(v.name) for v in update.model.graph.inputs)
    update = replace(
        update, feeds=tuple(n for n in inputs if n not in state and not n.startswith(SUM))
    )
    if first.division is not None and update.division is not None:
        kept = {**first.division.kept, **update.division.kept}  # slots are in the update alone
        update = replace(update, division=replace(update.division, micro=1))
        whole = replace(first, division=replace(first.division, kept=kept))
        first, update = (cut_job(half, target) for half in (whole, update))
    variables = {**first.variables, **update.variables}
    digest = first.digest
    if not digest:
        content = b"".join(model_bytes(job.model) for job in (first, update))
        digest = hashlib.sha256(content).hexdigest()
    return replace(first, rounds=rounds, update=update, variables=variables, digest=digest)


def draw_as_rank(job: CompiledJob, rank: int) -> None:
    """Let the random nodes of what one process has for itself draw as its rank does, in place."""
    for node in (n for graph in job.graphs for n in graph):
        if has_seed(node) and (job.pieces > 1 or DRAWS_ROWS in node.meta):
            reseed(node, rank)


def without_watches(job: CompiledJob) -> CompiledJob:
    """The job without the outputs that only its handlers, which no file holds, would see."""
    if drop_outputs(job.model, {o for watch in job.watches for o in watch.outputs}):
        run_passes(job.model.graph)
    return replace(job, watches=())


def for_any_batch(
    compile_at: Callable[[int], CompiledJob],
    known: Collection[int],
    declared: tuple[CompiledJob, int] | None = None,
) -> CompiledJob:
    """A job for batches of any size, from what it is at three of them, none of those `known`.

    `declared` is what it is at a size of its own. Raises UnsupportedError for what depends on the
    batch in another way than by sizes that grow with it.
    """
    sizes = unusual_sizes(known)
    jobs = [compile_at(size) for size in sizes]
    graphs = [job.model.graph for job in jobs]
    own, size = declared or (jobs[1], sizes[1])
    free_batch(graphs, sizes, _batch_axes(*jobs[:2]), (own.model.graph, size))
    if jobs[0].model.device_configurations:
        renew_sizes(jobs[0].model)
    return jobs[0]


def unusual_sizes(known: Collection[int]) -> list[int]:
    """Three sizes of the batch that say of each number in a job whether it depends on them."""
    return [size for size in _UNUSUAL if size not in known][:3]


def _batch_axes(first: CompiledJob, second: CompiledJob) -> dict[str, int]:
    """For each feed whose shape depends on the batch, the axis."""
    shapes = [
        {str(v.name): v.shape or () for v in job.model.graph.inputs} for job in (first, second)
    ]
    axes = {}
    for name in first.feeds:
        sizes = zip(*(shape[name] for shape in shapes), strict=True)
        differing = [axis for axis, (a, b) in enumerate(sizes) if a != b]
        if differing:
            axes[name] = differing[0]
    return axes
