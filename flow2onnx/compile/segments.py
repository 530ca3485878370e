"""The parts of a job of several processes: between them the processes meet.

The way back is cut into segments, so that the gradients of one are on their way while the next
computes. The update is cut alike: variables whose gradients have come move while others are on
their way. One of which each process does its part is cut where it needs sums over all. In host
memory gradients are written where their bucket lies, which takes neither joining nor splitting it.
"""

from collections.abc import Mapping
from dataclasses import replace

from flow2onnx.compile.job import CompiledJob
from flow2onnx.compile.names import BUCKET, PARTIAL, ROWS, SUM
from flow2onnx.graph import Node
from flow2onnx.optim.exchange import group_of
from flow2onnx.passes.cut import cut, output_bytes, parts_by_ends, parts_by_inputs, passed_bytes
from flow2onnx.passes.slices import slice_inputs, slice_outputs, vector_of

__all__ = ["cut_for_ranks"]

# What a cut hides and costs, in seconds and bytes a second. All three are assumed: a link of
# 10 Gbit/s, the memory of a desktop through which passes what a cut hands on, a session's call.
_LINK_RATE = 1.25e9
_PASS_RATE = 2e10
_RUN_COST = 2e-4


def cut_for_ranks(job: CompiledJob, *, on_host: bool, overlaps: bool = True) -> CompiledJob:
    """The job with its halves in parts, as far as these are worth it.

    Where gradients are not made `on_host`, or are sent by processors that all compute, so that
    nothing `overlaps`, there are only as many segments as `runtime.gradient_segments` asks for. Not
    on the host each bucket is one vector of the graphs.
    """
    wish = job.spec.config.value("runtime.gradient_segments")
    if on_host:
        job = _with_slices(job)
    assert job.update is not None, "several processes make their updates apart"
    is_cut = (on_host and overlaps) or isinstance(wish, int)
    parts = _segments(job, is_measured=wish == "auto") if is_cut else {}
    cut_job = _in_parts(job, parts)
    return replace(cut_job, update=_in_parts(job.update, _levels(job.update, _arrivals(cut_job))))


def _with_slices(job: CompiledJob) -> CompiledJob:
    """The job with the gradients of its buckets as outputs and inputs of their own."""
    assert job.update is not None, "several processes make their updates apart"
    vectors = {name for name in job.sent if name.startswith(BUCKET)}
    model = slice_outputs(job.model, vectors)
    made = [str(v.name) for v in model.graph.outputs if vector_of(str(v.name)) in vectors]
    update = slice_inputs(job.update.model, vectors)
    taken = [str(v.name) for v in update.graph.inputs if vector_of(str(v.name)) in vectors]
    return replace(
        job,
        model=model,
        sent=(*(name for name in job.sent if name not in vectors), *made),
        update=replace(
            job.update,
            model=update,
            feeds=(*(name for name in job.update.feeds if name not in vectors), *taken),
        ),
    )


def _segments(job: CompiledJob, *, is_measured: bool) -> dict[Node, int]:
    """The part of each node of the gradients; all in one where cuts hide less than they cost."""
    graph, groups = job.model.graph, dict[int, list[str]]()
    for name in job.sent:
        if not name.startswith(ROWS):
            groups.setdefault(group_of(vector_of(name)), []).append(name)
    ends = [groups[i] for i in sorted(groups)]
    if len(ends) < 2:
        return {}
    while len(ends) > 1:
        parts = _parts(job, ends)
        passed = passed_bytes(graph, parts)
        if passed is None:
            return {}
        if not is_measured:
            return parts
        sent = [output_bytes(graph, names) / _LINK_RATE for names in ends]
        gains = [s - _RUN_COST - p / _PASS_RATE for s, p in zip(sent, passed, strict=True)]
        worst = min(range(len(ends) - 1), key=gains.__getitem__)
        if gains[worst] >= 0:
            return parts
        ends[worst : worst + 2] = [ends[worst] + ends[worst + 1]]
    return {}


def _parts(job: CompiledJob, ends: list[list[str]]) -> dict[Node, int]:
    """The part of each node: losses, which may end a step, are in the first."""
    return parts_by_ends(job.model.graph, [[*job.losses, *ends[0]], *ends[1:]])


def _arrivals(job: CompiledJob) -> dict[str, int]:
    """The part of the update from which on it is fed with each name: where that is sent.

    Empty for a job in one part, and where each process moves its part of the variables, which are
    gathered together.
    """
    assert job.update is not None, "several processes make their updates apart"
    if not job.parts or job.update.moved:
        return {}
    of_vectors = {vector_of(name): k for k, part in enumerate(job.parts) for name in part.sent}
    return {n: of_vectors[vector_of(n)] for n in job.update.feeds if vector_of(n) in of_vectors}


def _levels(update: CompiledJob, arrivals: Mapping[str, int]) -> dict[Node, int]:
    """The part of each node of an update: sums over all processes come between two."""
    partial = [name for name in update.sent if name.startswith(PARTIAL)]
    sums = {SUM + name.removeprefix(PARTIAL): name for name in partial}
    return parts_by_inputs(update.model.graph, sums, arrivals) if sums or arrivals else {}


def _in_parts(job: CompiledJob, parts: Mapping[Node, int]) -> CompiledJob:
    if not max(parts.values(), default=0):
        return job
    models = cut(job.model, parts)
    found = []
    for model in models:
        inputs = {str(v.name) for v in model.graph.inputs}
        outputs = {str(v.name) for v in model.graph.outputs}
        found.append(
            replace(
                job,
                model=model,
                feeds=tuple(name for name in job.feeds if name in inputs),
                losses=tuple(name for name in job.losses if name in outputs),
                results=(),
                watches=(),
                host=None,
                update=None,
                sent=tuple(name for name in job.sent if name in outputs),
            )
        )
    return replace(job, parts=tuple(found))
