"""The opening of a job: what it becomes when it is opened, decided once for all who ask."""

import functools
import logging
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from flow2onnx_runtime import Options
from flow2onnx_runtime.extensions import (
    Accelerator,
    GraphAnalysis,
    OperatorTraits,
    Rewriting,
    accelerator,
)
from flow2onnx_runtime.model_check import OwnModel
from flow2onnx_runtime.options import DEFAULT_OPTIONS
from flow2onnx_runtime.providers import CPU, PROVIDERS

from flow2onnx.analysis.in_place import (
    WORTH_BYTES,
    InPlace,
    in_place,
    index_origin,
    late_readers,
)
from flow2onnx.analysis.live_range import CallSizes, call_sizes
from flow2onnx.compile import CompiledJob
from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.compile.variants import count_draws
from flow2onnx.engine.opening_cache import KeptOpening, OpeningCache, Place
from flow2onnx.errors import ConfigError, FlowError, UnsupportedError
from flow2onnx.graph import Model
from flow2onnx.graph.deferred_model import DeferredModel, inputs_of, outputs_of
from flow2onnx.graph.model import model_bytes, parse_model
from flow2onnx.graph.nodes import RANDOM_OPERATORS

__all__ = ["Capture", "Opening", "open_model", "plan_opening", "plan_portable_opening"]

T = TypeVar("T")
_log = logging.getLogger("flow2onnx.execute")
_CUDA = PROVIDERS["cuda"]
_ACCELERATED = (CPU.name, _CUDA.name)


@dataclass(frozen=True)
class Capture:
    """The decision on capturing the runs of a job as CUDA graphs, with its reason."""

    is_on: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a job is opened: what runs, explanations, memory checks, tuning and bundles agree on.

    `model` is what the runtime opens, with `options`: the model of the job, or one with native
    operators in memory, which `native` counts by name and `traits` describe; `why_not_native` says
    what they miss on a device that they are for. `in_place` has a
    verdict on each large tensor of state that the model updates; what has none keeps two buffers.
    With `keeps_old_values` a step whose loss is not finite changes nothing. `update` is the other
    half of a job whose calls read several batches. `parts` are opened in place of the model.
    `capture` is None where there are no launches to
    save; `otherwise` is the opening without capture, where the runtime may still refuse this one.
    `segments` has the openings of those that a divided job computes here. `place` is where the
    opening is kept on disk, or is to be; `graph` what was found there, as the runtime optimised it.
    `sizes` are the bytes of a call where they are known without the graph.
    """

    job: CompiledJob
    model: Model
    options: Options
    in_place: tuple[InPlace, ...]
    native: Mapping[str, int] = field(default_factory=dict)
    why_not_native: str = ""
    traits: OperatorTraits | None = None
    keeps_old_values: bool = False
    update: "Opening | None" = None
    parts: "tuple[Opening, ...]" = ()
    capture: Capture | None = None
    otherwise: "Opening | None" = None
    segments: "tuple[Opening | None, ...]" = ()
    place: Place | None = None
    graph: bytes = b""
    sizes: CallSizes | None = None

    @property
    def halves(self) -> "tuple[Opening, ...]":
        """The opening itself, and that of the update where it is apart."""
        return (self,) if self.update is None else (self, self.update)

    @property
    def opens_model(self) -> bool:
        """True unless the model has no outputs: the runtime opens none without."""
        return bool(outputs_of(self.model))

    @property
    def names_in_place(self) -> tuple[str, ...]:
        """The state that the model updates in its own buffer."""
        return tuple(v.name for v in self.in_place if v.is_safe)

    @property
    def names_in_two_buffers(self) -> frozenset[str]:
        """The state whose next value the model writes beside the present one."""
        return frozenset(self.job.writes).difference(self.names_in_place)


@collector_paused()
def plan_opening(
    job: CompiledJob,
    options: Options,
    *,
    stops_on_non_finite: bool = False,
    cache: OpeningCache | None = None,
) -> Opening:
    """How a job is opened with the options of its session, as far as its graph tells.

    `open_model` asks the runtime for the rest. With `cache`, what is kept of an equal opening takes
    the place of making one. Raises `ConfigError` for settings under which what the job is made of
    would leave its provider.
    """
    if job.division is not None:
        return _plan_segments(job, options, stops_on_non_finite)
    _check_layout(job, options)
    keeps_old_values = stops_on_non_finite and bool(job.losses)
    native = _accelerator(job, options)
    place = None if cache is None else _place(cache, job, options, native, keeps_old_values)
    kept = None if place is None else place.read()
    if kept is not None:
        found = _kept_opening(job, options, kept, native)
    else:
        found = _planned(job, options, native, keeps_old_values)
        if place is not None:
            found = replace(found, sizes=call_sizes(found.model.graph, job.feeds))
    return replace(
        found,
        keeps_old_values=keeps_old_values,
        place=place,
        update=plan_opening(job.update, options, cache=cache) if job.update is not None else None,
        parts=tuple(
            plan_opening(part, options, stops_on_non_finite=stops_on_non_finite, cache=cache)
            for part in job.parts
        ),
    )


def _planned(
    job: CompiledJob, options: Options, native: Accelerator | None, keeps_old_values: bool
) -> Opening:
    """The opening of one model, made now."""
    (model, own_options, used, why_not), traits = _use_native_operators(job, options, native)
    return Opening(
        job=job,
        model=model,
        options=own_options,
        in_place=_verdicts(job, model, own_options, keeps_old_values, traits),
        native=used,
        why_not_native=why_not,
        traits=traits,
    )


def _place(
    cache: OpeningCache,
    job: CompiledJob,
    options: Options,
    native: Accelerator | None,
    keeps_old_values: bool,
) -> Place | None:
    """Where an opening belongs; None on other devices than the CPU, and for files of a session."""
    is_plain = options.provider_names == CPU.names and options.optimization != "disable"
    if not is_plain or options.profile or options.optimized_path or options.graph_cache:
        return None
    config = job.spec.config
    facts = (
        "" if native is None else native.fingerprint(), config.value("runtime.winograd"),
        bool(config.value("runtime.in_place")), keeps_old_values, job.kind,
        [(name, v.nbytes) for name, v in sorted(job.variables.items())],
    )  # fmt: skip
    return cache.place(job, options, facts)


def _kept_opening(
    job: CompiledJob, options: Options, kept: KeptOpening, native: Accelerator | None
) -> Opening:
    """The opening that is kept of an equal job."""
    is_native = bool(kept.native) and native is not None
    model, content = job.model, kept.model
    if content:
        model = DeferredModel(inputs_of(model), outputs_of(model), lambda: parse_model(content))
    return Opening(
        job=job,
        model=model,
        options=native.with_library(options) if is_native and native is not None else options,
        in_place=kept.in_place,
        native=kept.native,
        traits=native,
        graph=kept.graph,
        sizes=kept.sizes,
    )


def _plan_segments(job: CompiledJob, options: Options, stops: bool) -> Opening:
    """How a divided job is opened: each segment as a job of its own."""
    assert job.division is not None, "hints or placements divide it"
    plain = replace(job, division=None, update=None, results=(), watches=(), losses=(), host=None)
    segments = [
        plan_opening(replace(plain, model=s.model), options) if s.model is not None else None
        for s in job.division.segments
    ]
    return Opening(
        job=job,
        model=job.model,
        options=next((s.options for s in segments if s is not None), options),
        in_place=tuple(v for s in segments if s is not None for v in s.in_place),
        keeps_old_values=stops and bool(job.losses),
        update=plan_opening(job.update, options) if job.update is not None else None,
        segments=tuple(segments),
    )


def _check_layout(job: CompiledJob, options: Options) -> None:
    given = [p[1].get("prefer_nhwc") for p in options.providers if not isinstance(p, str)]
    if not {"1", "True", "true"}.intersection(given):
        return
    found = [n.name for n in job.model.graph if n.op_type == "ConvTranspose"]
    if found:
        raise ConfigError(
            f"prefer_nhwc: the job has {len(found)} transposed convolutions, which CUDA runs in "
            f"NCHW alone: in NHWC they would run on the CPU, {found[0]} among them",
            job=job.spec.name,
            source=job.spec.config.source("runtime.prefer_nhwc"),
            hint="leave prefer_nhwc off; gradients of strided convolutions are such",
        )


def plan_portable_opening(job: CompiledJob) -> Opening:
    """How a trainer elsewhere opens a step: the exported model, on the CPU, by default options."""
    options = DEFAULT_OPTIONS.for_training()
    verdicts = _verdicts(job, job.model, options, keeps_old_values=False)
    return Opening(job=job, model=job.model, options=options, in_place=verdicts)


def open_model(opening: Opening, create: Callable[[OwnModel, Options], T]) -> tuple[T, Opening]:
    """The result of `create`, and the opening with verdicts that the runtime's own graph bears out.

    An optimiser may move readers of an old value behind its update. Where the opening has a place
    on disk, it is kept there.
    """
    if opening.graph:
        try:
            options = replace(opening.options, optimization="disable")
            return create(OwnModel(opening.graph), options), replace(opening, graph=b"")
        except FlowError as error:
            assert opening.place is not None, "it was read from there"
            _log.warning("what is kept of %s opens no more: %s", opening.job.spec.name, error)
            opening.place.forget()
    content = OwnModel(model_bytes(opening.model))
    if not opening.names_in_place and opening.place is None:
        return create(content, opening.options), opening
    try:
        temporary = tempfile.TemporaryDirectory()
    except OSError as error:  # nothing is looked at then, and nothing kept
        _warn_of_no_folder(error.strerror or str(error))  # the path is drawn anew
        opening = replace(
            opening, in_place=tuple(map(_verdict_without_graph, opening.in_place)), place=None
        )
        return create(content, opening.options), opening
    with temporary as folder:
        path = Path(folder, "optimized.onnx")
        opened = create(content, replace(opening.options, optimized_path=str(path)))
        optimized = path.read_bytes()  # which the runtime wrote just now
    verdicts = opening.in_place
    if opening.names_in_place:
        graph, names = parse_model(optimized).graph, [v.name for v in verdicts]
        found = {v.name: v for v in in_place(graph, names, opening.traits)}
        verdicts = tuple(_stricter(v, found[v.name]) for v in verdicts)
    opening = replace(opening, in_place=verdicts, graph=b"")
    if opening.place is not None:
        own = b"" if opening.model is opening.job.model else content.content
        assert opening.sizes is not None, "what has a place was planned with them"
        kept = KeptOpening(
            job=opening.job.spec.name, model=own, graph=optimized, native=opening.native,
            in_place=verdicts, sizes=opening.sizes,
        )  # fmt: skip
        opening.place.write(kept)
    return opened, opening


@functools.cache
def _warn_of_no_folder(error: str) -> None:
    _log.warning(
        "no temporary folder can be written (%s): jobs are opened without the cache of openings, "
        "and large variables have two buffers; set TMPDIR to a folder that can", error,
    )  # fmt: skip


def _verdict_without_graph(verdict: InPlace) -> InPlace:
    """The verdict where nobody can look at what the runtime makes of the model."""
    if not verdict.is_safe:
        return verdict
    return replace(verdict, is_safe=False, reason="there is no temporary folder for the graph "
                   "as the runtime optimises it")  # fmt: skip


def _stricter(written: InPlace, optimized: InPlace) -> InPlace:
    if not written.is_safe or optimized.is_safe:
        return written
    return replace(optimized, reason=f"as the runtime optimises it: {optimized.reason}")


def _verdicts(
    job: CompiledJob,
    model: Model,
    options: Options,
    keeps_old_values: bool,
    traits: OperatorTraits | None = None,
) -> tuple[InPlace, ...]:
    """The verdict on each large tensor of state that a model reads and writes."""
    if options.captures:  # a captured step is run three times before the state is committed
        return ()
    large = [n for n, v in job.variables.items() if v.nbytes >= WORTH_BYTES]
    verdicts = in_place(model.graph, large, traits)
    if keeps_old_values:
        return _refuse(verdicts, "a step whose loss is not finite changes nothing")
    if not job.spec.config.value("runtime.in_place"):
        return _refuse(verdicts, "runtime.in_place(False)")
    return verdicts


def _refuse(verdicts: tuple[InPlace, ...], reason: str) -> tuple[InPlace, ...]:
    return tuple(replace(v, is_safe=False, reason=reason) for v in verdicts)


def _accelerator(job: CompiledJob, options: Options) -> Accelerator | None:
    """The accelerator that takes part in a job.

    Train jobs on the CPU and on CUDA use the operators of an installed one, if `runtime.native`
    does not forbid it. Others run as they are: the runtime itself is at its best where weights do
    not change.
    """
    provider = options.provider_names[0]
    if provider not in _ACCELERATED or job.kind != "train":
        return None
    return accelerator(job.spec.config.value("runtime.native"), needs_library=provider == CPU.name)


def _use_native_operators(
    job: CompiledJob, options: Options, native: Accelerator | None
) -> tuple[Rewriting, OperatorTraits | None]:
    """The model to open with its options and native operators, and what those are like.

    Raises `UnsupportedError` where native operators are insisted on and something is missing.
    """
    if native is None:
        return Rewriting(job.model, options), None
    config, provider = job.spec.config, options.provider_names[0]
    analysis, winograd = GraphAnalysis(late_readers, index_origin), config.value("runtime.winograd")
    rewriting = native.rewrite(_with_counted_draws(job, provider), options, analysis,
                               winograd=winograd)  # fmt: skip
    if not rewriting.used:
        rewriting = rewriting._replace(model=job.model)
    if rewriting.why_not and config.value("runtime.native") is True:
        raise UnsupportedError(
            f"runtime.native(True): {rewriting.why_not}",
            hint="install what is missing, or leave runtime.native at 'auto'",
        )
    return rewriting, native


def _with_counted_draws(job: CompiledJob, provider: str) -> Model:
    """The model that native operators are put into: on CUDA dropout draws by the step's number.

    Kernels there make such numbers where they need them; a generator's would have to be kept.
    """
    drawn = {n.op_type for n in job.model.graph if n.op_type in RANDOM_OPERATORS}
    if provider != _CUDA.name or drawn != {"Dropout"}:
        return job.model
    twin = replace(job, model=job.model.clone())
    try:
        count_draws(twin)
    except UnsupportedError:  # its rate is computed: the runtime draws
        return job.model
    return twin.model
