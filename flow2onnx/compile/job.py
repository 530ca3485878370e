"""From a job's specification to a model that runs: the whole way on one screen."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from flow2onnx_runtime.axis_parts import part_length, part_start

from flow2onnx.compile.batch_shares import (
    BatchShares,
    micro_share,
    output_shares,
    share_batch,
)
from flow2onnx.compile.divide import Divided
from flow2onnx.compile.division import Segment, segments_of
from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.compile.names import (
    OWN,
    loss_name,
    next_name,
    rename_clashes,
    result_name,
    watch_name,
    written_state,
)
from flow2onnx.compile.programs import KeptProgram
from flow2onnx.compile.shards import annotate_shards
from flow2onnx.errors import JobError
from flow2onnx.graph import Builder, Graph, Model, Value
from flow2onnx.graph.deferred_model import outputs_of
from flow2onnx.graph.model import model_bytes, model_of
from flow2onnx.graph.nodes import RANDOM_OPERATORS
from flow2onnx.graph.verify import Kernels, verify
from flow2onnx.lowering.forms import (
    Choice,
    Picks,
    check_form_names,
    choose_forms,
    surviving_choices,
)
from flow2onnx.optim import WHOLE, Training, append_training
from flow2onnx.passes import run_passes
from flow2onnx.passes.hoist_products import hoist_products
from flow2onnx.passes.mixed_precision import mix_precision
from flow2onnx.passes.quantize_bias import quantize_biases
from flow2onnx.passes.recompute import RecomputedSegment, recompute
from flow2onnx.passes.recurrent_cells import join_cells
from flow2onnx.passes.row_shares import Share
from flow2onnx.passes.shared_halves import DivideSharedHalves
from flow2onnx.passes.sink_relu import sink_relu
from flow2onnx.trace.host import HostPlan
from flow2onnx.trace.job import Job, Kept
from flow2onnx.trace.quantization import quantize
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import Traced, pieces_of, trace
from flow2onnx.trace.variables import Variable
from flow2onnx.typing import TreeDef

__all__ = [
    "CompiledJob",
    "Division",
    "Target",
    "WatchedOutput",
    "build_job",
    "compile_job",
    "cut_job",
    "initial_state",
    "trace_for",
]


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of a compilation: opset, seed of random nodes, kernels, whether to show losses.

    `devices`: how many a mirrored job is fed for. `training`: which part of a train step, and
    whether its rate can be set. `ranks`: how many processes train the job, of which this compiles
    the part of one, `rank` if they differ. `shards`: how many devices the model is to tell of, by
    annotations of the standard. `tuned`: forms of lowerings that were measured, by
    question; `provider`: the tag of the one whose rules pick the others. `contrib`: operators of
    the runtime beside the standard that may be in it.
    """

    opset: int = 21
    seed: int = 0
    kernels: Kernels | None = None
    shows_losses: bool = False
    training: Training = WHOLE
    devices: int = 1
    ranks: int = 1
    rank: int = 0
    shards: int = 1
    tuned: Mapping[str, str] = field(default_factory=dict)
    provider: str = "cpu"
    contrib: Collection[str] = ()


@dataclass(frozen=True)
class WatchedOutput:
    """Outputs of the model that are there for a watch handler: for each argument its pieces.

    With `is_once` it is called in one of the processes that train a job.
    """

    arguments: tuple[tuple[str, ...], ...]
    handler: Callable[..., Any]
    is_once: bool = False

    @property
    def outputs(self) -> tuple[str, ...]:
        """All outputs, in order."""
        return tuple(name for pieces in self.arguments for name in pieces)


@dataclass(frozen=True)
class Division:
    """The part of one process in a divided job: its segments, and what it keeps of variables.

    The batch goes through them in `micro` parts, of which `split` has the feeds with rows and their
    axes, and `shares` what an output of one part is to that of all.
    """

    kept: Mapping[str, Kept]
    micro: int = 1
    split: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, Share] = field(default_factory=dict)
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CompiledJob:
    """A job as a model: inputs `feeds` and the variables read, outputs `results` and ``next/v``.

    What `host` feeds comes last in `feeds`. A mirrored job has several `pieces` of each result,
    which stand together. A job with an `update` sums up gradients in as many
    `rounds` as one call has, then runs that; between the two, a job of several processes gives the
    others what it has `sent`. What each of them has of an output, if not all have the same, is in
    `shares`; `split` has the feeds of which each takes its part, with the axis. `parts`, if there
    are any, are run in turn in place of the model, of which each is a part; `moved` has for an
    output, that all gather, the variables of whose next values it holds this process's parts.
    `program` is what may be kept of it, to know an equal one by.
    """

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
    host: HostPlan | None = None
    pieces: int = 1
    rounds: int = 1
    update: "CompiledJob | None" = None
    sent: tuple[str, ...] = ()
    moved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: tuple["CompiledJob", ...] = ()
    shares: Mapping[str, Share] = field(default_factory=dict)
    split: Mapping[str, int] = field(default_factory=dict)
    digest: str = ""
    division: "Division | None" = None
    choices: Sequence[Choice] = ()
    recomputed: Sequence[RecomputedSegment] = ()
    program: KeptProgram | None = None

    @property
    def draws(self) -> bool:
        """True if a node draws random numbers by the runtime's own generators."""
        return any(n.op_type in RANDOM_OPERATORS for n in self.model.graph.all_nodes())

    @property
    def writes(self) -> tuple[str, ...]:
        """The variables that a call gives a next value."""
        return written_state(outputs_of(self.model))

    def without_clashes(self, variables: Collection[str]) -> "CompiledJob":
        """The job, its feeds renamed that have the name of a variable, be it of another job."""
        inputs = () if set(variables).isdisjoint(self.feeds) else self.model.graph.inputs
        renamed = rename_clashes(inputs, self.feeds, variables)
        return replace(
            self,
            feeds=tuple(renamed.get(f, f) for f in self.feeds),
            parts=tuple(part.without_clashes(variables) for part in self.parts),
        )

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """The graphs that one process computes."""
        if self.division is None:
            return (self.model.graph,)
        return tuple(s.model.graph for s in self.division.segments if s.model is not None)

    def structure(self) -> list[dict[str, Any]]:
        """The nodes of the model in order: name, operator, what each reads and makes."""
        return [
            {
                "name": node.name,
                "operator": node.op_type,
                "inputs": [v.name for v in node.inputs if v is not None],
                "outputs": [v.name for v in node.outputs],
            }
            for node in self.model.graph
        ]


@collector_paused()
def compile_job(
    spec: JobSpec, shapes: Sequence[tuple[int, ...]] | None = None, target: Target = Target()
) -> CompiledJob:
    """Trace, differentiate, update, rewrite, verify."""
    traced, choices = trace_for(spec, shapes, target)
    return build_job(traced, choices, target)


def trace_for(
    spec: JobSpec, shapes: Sequence[tuple[int, ...]] | None, target: Target
) -> tuple[Traced, list[Choice]]:
    """A job after tracing, and the forms that its operators chose."""
    config = spec.config
    check_form_names(config.value("runtime.lowering"), config.source("runtime.lowering"))
    with choose_forms(_picks(spec, target)) as choices:
        traced = trace(
            spec, shapes, target.opset, target.seed, target.devices, target.ranks, target.rank,
            target.shards,
        )  # fmt: skip
    return traced, choices


def build_job(traced: Traced, choices: Sequence[Choice], target: Target) -> CompiledJob:
    """A traced job as one model: the trace becomes part of it."""
    with choose_forms(_picks(traced.job.spec, target), choices) as all_choices:
        job = _build(traced, target)
    return replace(job, choices=surviving_choices(all_choices, job.model.graph))


def _picks(spec: JobSpec, target: Target) -> Picks:
    return Picks(spec.config.value("runtime.lowering"), target.tuned, target.provider)


def _build(traced: Traced, target: Target) -> CompiledJob:
    job = traced.job
    spec = job.spec
    digest = _digest(job) if job.is_divided else ""
    shared = share_batch(traced) if job.ranks > 1 else None
    divided = shared.divided if shared is not None else None
    traced = divided.traced if divided is not None else traced
    _rewrite_forward(traced, spec, target, is_divided=divided is not None)
    forward = [str(n.name) for n in job.b.nodes]
    diffs = append_training(job, target.training) if job.is_trainable else {}
    results, losses, watches = _name_outputs(traced, diffs, target)
    shares = output_shares(shared, job.b.graph.outputs, diffs) if shared is not None else {}
    run_passes(job.b.graph, spec.half, target.kernels)
    if not job.is_trainable and spec.is_quantized:
        quantize_biases(job.b)  # after biases became operands of their products
    recomputed = _recompute(job, spec, forward) if diffs else ()
    DivideSharedHalves().run(job.b.graph)  # of which recomputation leaves some
    job.b.graph.name = spec.name
    model = model_of(job.b.graph)
    if target.shards > 1:
        annotate_shards(job, model)
    primals = {g: v for v, g in diffs.items()}
    division = _division(job, shared, divided, primals) if shared and divided else None
    if division is None:
        verify(model, target.kernels, target.contrib)
    return CompiledJob(
        spec=spec,
        kind="train" if job.is_trainable else "predict",
        model=model,
        division=division,
        digest=digest,
        variables=job.variables,
        feeds=tuple(str(v.name) for v in (*job.inputs, *job.host.inputs)),
        results=results,
        losses=losses,
        watches=watches,
        tree=traced.tree,
        devices=frozenset(job.devices),
        host=job.host.plan(),
        pieces=max(job.pieces, pieces_of(spec, job.ranks)),
        sent=tuple(job.sent),
        moved=job.moved,
        shares=shares,
        split=shared.split if shared is not None else {},
        recomputed=recomputed,
    )


def _digest(job: Job) -> str:
    """Of what was traced: what processes compute of it differs."""
    return hashlib.sha256(model_bytes(model_of(job.b.graph))).hexdigest()


def _division(
    job: Job, shared: BatchShares, divided: Divided, primals: Mapping[Value, Value]
) -> Division:
    """The part of one process in a divided job, before its model is cut."""
    graph = job.b.graph
    micro = {str(v.name): micro_share(shared, v, primals) for v in graph.outputs}
    kept = {
        name: job.kept[v.owner or name]
        for name, v in job.variables.items()
        if (v.owner or name) in job.kept
    }
    rows = divided.micro_shares
    split = {str(v.name): rows[v].axis for v in graph.inputs if v in rows}
    shares = {name: share for name, share in micro.items() if share is not None}
    return Division(kept, divided.micro, split, shares)


def cut_job(job: CompiledJob, target: Target) -> CompiledJob:
    """A divided job as the segments of one process, and a shell of what its model was."""
    assert job.division is not None, "hints or placements divide it"
    graph = job.model.graph
    outputs, inputs = list(graph.outputs), list(graph.inputs)
    owners = {name: k.number for name, k in job.division.kept.items() if k.kind == "at"}
    owners |= {f"{OWN}{name}": rank for name, rank in owners.items()}
    segments = segments_of(job.model, target.rank, owners)
    for segment in segments:
        if segment.model is not None:
            verify(segment.model, target.kernels, target.contrib)
    graph.remove(list(graph), safe=False)
    for values, now in ((graph.inputs, inputs), (graph.outputs, outputs)):
        values.clear()
        values.extend(now)
    return replace(job, division=replace(job.division, segments=segments))


def _recompute(job: Job, spec: JobSpec, forward: Sequence[str]) -> tuple[RecomputedSegment, ...]:
    """Rewrite a step as its flags ask; the segments that are computed again."""
    segments, config = spec.config.value("runtime.recompute"), spec.config
    if not segments:
        return ()
    products = bool(config.value("runtime.recompute_products"))
    return recompute(job.b.graph, forward, job.values, segments, products=products)


def _rewrite_forward(traced: Traced, spec: JobSpec, target: Target, *, is_divided: bool) -> None:
    """Rewrite what the body has made, before gradients read and follow it.

    Products of a job that processes divide stay where they are.
    """
    job = traced.job
    if job.is_trainable:
        sink_relu(job.b, _values_in_use(traced))
    if spec.is_quantized:
        quantize(job)
    elif not is_divided:
        hoist_products(job.b, _values_in_use(traced), job.regions)
        if spec.half is None:  # recurrent layers have no kernel in half precision
            join_cells(job.b, _values_in_use(traced), job.regions)
    if spec.half is not None:
        mix_precision(
            job.b,
            spec.half,
            target.kernels,
            rounds_early=target.provider == "cuda",
            **_mixed_precision_facts(job),
        )


def _values_in_use(traced: Traced) -> set[Value]:
    """The values that something besides the nodes of the job refers to."""
    job = traced.job
    regions = [v for r in job.regions.values() for v in (*r.inputs, *r.outputs)]
    watched = [v for w in job.watches for v in w.values]
    return {*traced.results, *job.losses, *watched, *job.updates.values(), *regions}


def _mixed_precision_facts(job: Job) -> dict[str, Collection[Any]]:
    """The arguments of mixed precision for a job: `weights`, `fixed` nodes, `watched` values."""
    return {
        "weights": job.values.values(),
        "fixed": job.regions,
        "watched": [v for w in job.watches if w.is_gradient for v in w.values],
    }


def initial_state(
    variables: dict[str, Variable],
    target: Target = Target(),
    kept: Mapping[str, Kept] = {},
) -> Model:
    """The model without inputs whose outputs are the first values of `variables`, by name.

    Of those in `kept` it gives what the process of the target keeps.
    """
    b = Builder(target.opset)
    for name, v in variables.items():
        seed, own = Job.seed_for(target.seed, name, v.seed), kept.get(name)
        if own is not None and own.kind == "at" and own.number != target.rank:
            continue
        with b.under(f"init/{name}"):
            value = v.initializer.emit(b, v.kept_shape, v.dtype, seed)
            if own is not None and own.kind == "split":
                size, axis = v.shape[own.number], own.number
                start = part_start(size, target.ranks, target.rank)
                end = start + part_length(size, target.ranks, target.rank)
                value = b.Slice(value, [start], [end], [axis])
            b.output(value, name)
    b.graph.name = "init"
    model = model_of(b.graph)
    verify(model, target.kernels)
    return model


def _name_outputs(
    traced: Traced, diffs: dict[Value, Value], target: Target
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[WatchedOutput, ...]]:
    job = traced.job
    results = tuple(map(result_name, range(len(traced.results))))
    losses = [results[traced.results.index(v)] for v in job.losses if v in traced.results]
    for name, value in zip(results, traced.results, strict=True):
        job.b.output(value, name)
    if target.shows_losses:
        losses = list(map(loss_name, range(len(job.losses))))
        for name, value in zip(losses, job.losses, strict=True):
            job.b.output(value, name)
    watches = tuple(_watch(job, i, diffs) for i in range(len(job.watches)))
    for name, value in job.sent.items():
        job.b.output(value, name)
    for name, value in job.updates.items():
        job.b.output(value, next_name(name))
    return results, tuple(losses), watches


def _watch(job: Job, i: int, diffs: dict[Value, Value]) -> WatchedOutput:
    watch, shown = job.watches[i], list[str]()
    for k, value in enumerate(watch.values):
        found = diffs.get(value) if watch.is_gradient else value
        if found is None:
            raise JobError(
                f"watch_diff: no loss depends on {value.name}", job=job.spec.name,
                hint="watch a blob between a variable and the loss of a train job",
            )  # fmt: skip
        name = watch_name(i, k if len(watch.values) > 1 else None)
        shown.append(str(job.b.output(found, name).name))
    starts = range(0, len(shown), job.pieces)
    return WatchedOutput(
        tuple(tuple(shown[s : s + job.pieces]) for s in starts), watch.handler, watch.is_once
    )
