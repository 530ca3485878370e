"""Capture: which jobs on CUDA have runs of one launch, recorded as CUDA graphs, and why not."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from flow2onnx_runtime import Options
from flow2onnx_runtime.assignment import capture_fault
from flow2onnx_runtime.providers import provider_named

from flow2onnx.compile import CompiledJob
from flow2onnx.compile.variants import count_draws
from flow2onnx.engine.memory import most_bytes, needed_bytes
from flow2onnx.engine.opening import Capture, Opening, plan_opening
from flow2onnx.engine.opening_cache import OpeningCache
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Graph
from flow2onnx.passes.computed_outputs import ComputedOutputs, constant_outputs
from flow2onnx.passes.equal_batches import EqualBatches
from flow2onnx.passes.narrow_concats import NarrowConcats
from flow2onnx.passes.splits_as_slices import SplitsAsSlices

__all__ = ["keep_within_memory", "plan_captured_opening"]

_FLAG = "runtime.enable_cuda_graph"
_SHRINKING = "memory.enable_memory_arena_shrinkage"


@dataclass(frozen=True)
class _Fault:
    """Why a job is not captured."""

    reason: str


def plan_captured_opening(
    job: CompiledJob,
    options: Options,
    *,
    stops_on_non_finite: bool = False,
    may: bool = True,
    cache: OpeningCache | None = None,
) -> Opening:
    """How a job is opened: captured where its flag says so, or is unset and nothing is against it.

    The opening of a job that is captured unasked has another one, `otherwise`, for the case that
    the runtime refuses. `may` is False for jobs of which each run may have other shapes. `cache` as
    in `plan_opening`.
    """
    name = provider_named(options.provider_names[0]).capture_option
    asked = job.spec.config.value(_FLAG)

    def plan(of: CompiledJob, with_options: Options, capture: Capture | None) -> Opening:
        found = plan_opening(of, with_options, stops_on_non_finite=stops_on_non_finite, cache=cache)
        return _judge(found, capture)

    if name != "enable_cuda_graph":  # TensorRT has a switch of its own, the CPU has no launches
        return plan(job, options, None)
    if asked is not None:
        verdict = Capture(asked, f"{_FLAG}({asked})")
        return plan(_recordable(job) if asked else job, options, verdict)
    twin = _capturable(job, options, may)
    if isinstance(twin, _Fault):
        return plan(job, options, Capture(False, twin.reason))
    captured = plan(twin, _capturing(options), Capture(True, "a run is one launch"))
    return _with_otherwise(captured, plan(job, options, None))


def _judge(opening: Opening, capture: Capture | None) -> Opening:
    """The opening and its other half with a verdict."""
    update = None if opening.update is None else replace(opening.update, capture=capture)
    return replace(opening, capture=capture, update=update)


def _with_otherwise(captured: Opening, plain: Opening) -> Opening:
    update = captured.update
    if update is not None:
        update = replace(update, otherwise=plain.update)
    return replace(captured, otherwise=plain, update=update)


def _capturing(options: Options) -> Options:
    """The options with the first provider's switch on."""
    first, *others = options.providers
    name, given = (first, {}) if isinstance(first, str) else first
    return replace(options, providers=((name, {**given, "enable_cuda_graph": "1"}), *others))


def _capturable(job: CompiledJob, options: Options, may: bool) -> CompiledJob | _Fault:
    """The job with draws that a replay does not repeat; why it is not captured, where it is not."""
    update = None if job.update is None else _capturable(job.update, options, may)
    if isinstance(update, _Fault):
        return update
    fault = capture_fault() or _fault_of_flags(job, options)
    if fault is None and job.parts:
        fault = "it runs in parts, between which processes meet"
    if fault is None and not may:
        fault = "inputs smaller than declared come in many shapes"
    if fault is not None:
        return _Fault(fault)
    if job.draws and job.kind != "train":
        return _Fault("a replay would repeat its random numbers, and no step counts them")
    twin = replace(job, model=job.model.clone(), update=update)
    try:
        if job.draws:
            count_draws(twin)
    except UnsupportedError as error:
        return _Fault(f"a replay would repeat its random numbers: {error.message}")
    _rewrite(twin.model.graph)
    constant = constant_outputs(twin.model.graph)
    if constant:
        return _Fault(f"the host makes {', '.join(constant)}, which depends on nothing")
    return twin


def _recordable(job: CompiledJob) -> CompiledJob:
    """The job and its other half in the form that a runtime records."""
    model = job.model.clone()
    _rewrite(model.graph)
    update = None if job.update is None else _recordable(job.update)
    return replace(job, model=model, update=update)


def _rewrite(graph: Graph) -> None:
    for kind in (ComputedOutputs, NarrowConcats, SplitsAsSlices, EqualBatches):
        kind().run(graph)


def _fault_of_flags(job: CompiledJob, options: Options) -> str | None:
    """The reason, if a setting of the program keeps its runs from being captured; else None."""
    config = job.spec.config
    if config.value("runtime.recompute"):
        return "runtime.recompute waits for a number that the host reads"
    if options.parallel or options.inter_op_threads is not None:
        return "operators that run at once are not captured"
    if options.profile is not None:
        return "a profile shows operators, and a replay has one launch"
    if _SHRINKING in options.run_entries:
        return f"{_SHRINKING} frees memory that a replay would use"
    streams = [p[1].get("user_compute_stream") for p in options.providers if not isinstance(p, str)]
    if any(streams):
        return "the stream is the program's own"
    return None


def keep_within_memory(openings: Sequence[Opening], free: int | None) -> list[Opening]:
    """The openings, uncaptured where nobody asked and two buffers of all state do not fit."""
    most = most_bytes(openings, free)
    if most is None or needed_bytes(openings) <= most:
        return list(openings)
    reason = "captured, all state has two buffers, which there is no memory for"
    return [
        o if o.otherwise is None else _judge(o.otherwise, Capture(False, reason)) for o in openings
    ]
