"""Session: the jobs and variables that belong together, from definition to the last call."""

import dataclasses
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from flow2onnx_runtime.providers import find_provider

from flow2onnx.data.pipeline import Pipeline
from flow2onnx.engine.preset import Preset
from flow2onnx.engine.queue import CallQueue
from flow2onnx.errors import ContextError, FlowError, JobError, ProviderError
from flow2onnx.source import user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.variables import Variable, check_same
from flow2onnx.typing import TreeDef

if TYPE_CHECKING:
    from flow2onnx_runtime import State

    from flow2onnx.compile import CompiledJob, Target
    from flow2onnx.engine.executable import Executable
    from flow2onnx.engine.opening import Opening

__all__ = [
    "SESSION",
    "Session",
    "clear_default_session",
    "current_session",
    "sync_default_session",
]

Array = np.ndarray[Any, np.dtype[Any]]
Shapes = tuple[tuple[int, ...], ...]
T = TypeVar("T")
_NO_WISHES = Preset()
_IN_FLIGHT = 2


class Session:
    """Open while jobs are defined; running from the first call on; closed after `close`.

    Jobs are compiled together when the session starts, share variables by name, and run one after
    another in the order of their calls. `release`, when set, is the OneFlow release whose API the
    jobs speak where their text cannot tell.
    """

    def __init__(self, preset: Preset = _NO_WISHES) -> None:
        self.preset = preset
        self.settings = preset.settings()
        self.release = preset.release
        self.variables: dict[str, Variable] = {}
        self._specs: dict[str, JobSpec] = {}
        self._trees: dict[str, TreeDef] = {}
        self._executables: dict[tuple[str, Shapes], Executable] = {}
        self._state: State | None = None
        self.demands_annotations = False
        self.redefines = False
        self._device, self._device_id = "cpu", 0
        self._unopened: str | None = None
        self._closed = False
        self._counters: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._queue = CallQueue()
        self._pipelines: dict[str, Pipeline] = {}
        self.events: Any = None  # the EventWriter that flow.summary writes with

    @property
    def is_running(self) -> bool:
        """Whether the jobs are compiled."""
        return self._state is not None

    @property
    def state(self) -> "State":
        """The variables' buffers; starts the session."""
        self.start()
        assert self._state is not None, "a started session has a state"
        return self._state

    def define(self, spec: JobSpec) -> JobSpec:
        """Add a job; returns what it is from now on. One of the same name replaces the earlier one.

        With `redefines`, a function that is decorated once more, as eager programs do at each
        call, stays the job it is.
        """
        outer = traced_job()
        known = self._specs.get(spec.name)
        if self.redefines and known is not None and _is_same(known, spec):
            return known
        if self._closed or self.is_running or outer is not None:
            when = f"inside job {outer.spec.name}" if outer else "after the session began"
            raise ContextError(
                f"no avaliable function found. a job is defined {when}",
                job=spec.name,
                source=spec.source,
                hint="define every job before the first call, or call flow.clear_default_session()",
            )
        with self._lock:
            self._specs[spec.name] = spec
        return spec

    def start(self) -> None:
        """Compile all jobs and give the variables their first values, once."""
        outer = traced_job()
        if outer is not None:
            raise ContextError(
                "inside a job function there are no values yet",
                job=outer.spec.name,
                source=user_frame(),
                hint="return or watch the blob, and use its value after a call",
            )
        with self._lock:
            if self.redefines and not self._specs:
                return  # an eager program makes its jobs later
            self._check_open()
            if not self.is_running:
                self._start()

    def start_for_values(self) -> str | None:
        """Start; if the providers of the jobs cannot be used here, give values on the CPU alone.

        Returns why the jobs were not opened, or None. Calling one then fails for that reason.
        """
        with self._lock:
            try:
                self.start()
            except ProviderError as error:
                self._start(opens=False)
                self._unopened = error.message
            return self._unopened

    def compiled(
        self, job: str | JobSpec, target: "Target | None" = None, shapes: Shapes | None = None
    ) -> "CompiledJob":
        """A job compiled apart, for export, with the session's seed; `shapes` as in `trace`."""
        spec = self._specs[job] if isinstance(job, str) else job
        return self._compile(spec, shapes, target)

    def unique_str(self, prefix: str) -> str:
        """`prefix` and the number of times it was asked for before."""
        with self._lock:
            self._counters[prefix] += 1
            return f"{prefix}{self._counters[prefix] - 1}"

    @staticmethod
    def has_gpu() -> bool:
        """Whether the runtime can use a GPU."""
        from flow2onnx.engine.placement import best_device

        return best_device() == "gpu"

    def spec(self, name: str) -> JobSpec:
        """The specification of a job."""
        return self._specs[name]

    def job_names(self) -> tuple[str, ...]:
        """The jobs, in order of definition."""
        return tuple(self._specs)

    def device_count(self) -> int:
        """The devices that a mirrored job is fed for: they are all played by one."""
        number = self.settings.value("gpu_device_num") or self.settings.value("cpu_device_num")
        return int(number or 1)

    def pieces(self, spec: JobSpec) -> int:
        """How many pieces the lists among the arguments and results of a job have."""
        from flow2onnx.trace.trace import pieces_of

        return pieces_of(spec, self.device_count())

    def tree(self, name: str) -> TreeDef:
        """The nesting of what the body of a job returned."""
        return self._trees[name]

    def target(self) -> "Target":
        """What to compile for, by the session's settings."""
        from flow2onnx_runtime import kernels

        from flow2onnx.compile import Target
        from flow2onnx.engine.placement import provider_name

        on_gpu = self._starts_on_gpu()
        names = [provider_name(tag) for tag in (("gpu", "cpu") if on_gpu else ("cpu",))]
        return Target(
            seed=self.settings.value("random_seed"),
            kernels=kernels(*names),
            shows_losses=self.settings.value("stop_on_non_finite"),
            devices=self.device_count(),
        )

    def run(self, spec: JobSpec, arrays: Sequence[Array]) -> list[Array]:
        """Run a job now, after everything queued before it."""
        executable = self._executable(spec, arrays)
        return self._queue.run(lambda: executable.run(arrays))

    def submit(
        self, spec: JobSpec, arrays: Sequence[Array], shown: Callable[[list[Array]], T]
    ) -> "Future[T]":
        """Queue a run; the arrays are copied, so that the caller may change them.

        The future holds `shown` of the results; `wait` for it. A caller that is ahead of its runs
        by `concurrency_width`, if it set that, or else by two, waits here.
        """
        executable = self._executable(spec, arrays)
        copies, source = [np.array(a) for a in arrays], user_frame()

        def work() -> T:
            try:
                return shown(executable.run(copies))
            except FlowError as error:
                error.located(None, None, source)
                raise

        # Two runs under way are enough to feed one while the other computes. A script that reads
        # what its callbacks gathered right after its loop has most of it then, as on OneFlow.
        width = spec.config.values().get("concurrency_width", _IN_FLIGHT)
        return self._queue.submit(work, width)

    def wait(self, future: "Future[T]") -> T:
        """The result of a queued run."""
        return self._queue.wait(future)

    def later(self, work: Callable[[], T]) -> "Future[T]":
        """Queue something behind the runs so far."""
        return self._queue.later(work)

    def opening(self, name: str) -> "Opening":
        """How a job was opened."""
        self.start()
        return next(e.opening for (job, _), e in self._executables.items() if job == name)

    @property
    def device(self) -> str:
        """The tag of the device that the jobs of a started session run on."""
        return self._device

    def read(self, name: str) -> Array:
        """The present value of a variable, after everything queued."""
        return self.snapshot([name])[name]

    def snapshot(self, names: Sequence[str]) -> dict[str, Array]:
        """The present values of variables, all of one moment, after everything queued."""
        state = self.state

        def read() -> dict[str, Array]:
            return {n: state.read(n).view(self.variables[n].dtype.numpy) for n in names}

        return self._queue.run(read)

    def write(self, values: Mapping[str, Array]) -> None:
        """Replace the values of variables, after everything queued; they must fit."""
        state = self.state

        def write() -> None:
            with state.lock:
                for name, value in values.items():
                    state.write(name, value)

        self._queue.run(write)

    def sync(self) -> None:
        """Wait for everything queued; raises what a queued run failed with, if nobody took it."""
        self._queue.sync()

    def close(self) -> None:
        """Wait, then refuse further calls; raises what nobody took, as `sync` does."""
        try:
            self._queue.close()  # callbacks still under way may call jobs
        finally:
            self._closed = True
            _close(self._pipelines)
            if self.events is not None:
                self.events.close()

    def _check_open(self) -> None:
        if self._closed:
            raise JobError(
                "this job belongs to a session that was cleared",
                source=user_frame(),
                hint="define the job again after flow.clear_default_session()",
            )
        if not self._specs:
            raise JobError("no job function is defined", source=user_frame(),
                           hint="decorate one with @flow.global_function(...)")  # fmt: skip

    def _start(self, opens: bool = True) -> None:
        compiled = {name: self._compile_to_run(spec) for name, spec in self._specs.items()}
        variables: dict[str, Variable] = {}
        for name, job in compiled.items():
            _merge(variables, job, name)
        compiled = {name: job.without_clashes(variables) for name, job in compiled.items()}
        self._device, self._device_id = self._device_of(compiled), _device_id(compiled)
        openings = [(name, self._opening(job)) for name, job in compiled.items() if opens]
        if opens:
            self._check_memory([opening for _, opening in openings])
        first = next(iter(compiled.values())) if opens else None
        state, compute = self._new_state(variables, first)
        with ThreadPoolExecutor(1, "flow2onnx-init") as beside:  # drawing takes no Python
            values = beside.submit(compute)
            bound = {(n, _shapes(o.job)): self._bind(o, state) for n, o in openings}
            values.result()
        self._executables |= bound
        self._trees = {name: job.tree for name, job in compiled.items()}
        if self.settings.value("enable_debug_mode"):
            _write_graphs(compiled, Path(self.settings.value("log_dir")))
        self.settings.start()
        self.variables, self._state = variables, state

    def _compile(
        self, spec: JobSpec, shapes: Shapes | None = None, target: "Target | None" = None
    ) -> "CompiledJob":
        from flow2onnx.compile import compile_job

        target = target or self.target()
        try:
            job = compile_job(spec, shapes, target)
            tuned = self._tuned(job, target)
            if tuned is not target:
                job = compile_job(spec, shapes, tuned)
        except FlowError as error:
            error.located(spec.name, None, spec.source)
            raise
        return job.without_clashes(self.variables)

    def _compile_to_run(self, spec: JobSpec, shapes: Shapes | None = None) -> "CompiledJob":
        """A job for calls, each of which may read several batches."""
        from flow2onnx.compile import compile_rounds

        job, rounds = self._compile(spec, shapes), _rounds(spec)
        if job.kind == "predict" or rounds == 1:
            return job
        try:
            job = compile_rounds(spec, shapes, self._tuned(job, self.target()), rounds)
        except FlowError as error:
            error.located(spec.name, None, spec.source)
            raise
        return job.without_clashes(self.variables)

    def _tuned(self, job: "CompiledJob", target: "Target") -> "Target":
        """The target with the forms that `autotune` found for a job, where that is on."""
        config = job.spec.config
        how = config.value("runtime.autotune")
        if not how or target.tuned:
            return target
        from flow2onnx.engine.tuning import cache_path, fastest_forms

        path = cache_path(config.value("runtime.tuning_cache_path"))
        options = self._options_of(job, self._device_of({job.spec.name: job}))
        forms = fastest_forms(job, options, path, measures=how is True)
        return dataclasses.replace(target, tuned=forms) if forms else target

    def _device_of(self, compiled: Mapping[str, "CompiledJob"]) -> str:
        """The one that all jobs run on, as they share variables: the GPU if any asks for it."""
        from flow2onnx.engine.placement import asked_provider

        if self.preset.device is not None:
            return self.preset.device
        chosen = asked_provider(job.spec.config for job in compiled.values())
        if chosen is not None:
            return chosen
        asked = {d for job in compiled.values() for d in job.devices or {self._default(job.spec)}}
        return "gpu" if "gpu" in asked else "cpu"

    def _default(self, spec: JobSpec) -> str:
        from flow2onnx.engine.placement import best_device

        scope = spec.config.value("default_placement_scope")
        if scope is not None:
            return str(scope.device_tag)
        return "cpu" if self.settings.value("gpu_device_num") == 0 else best_device()

    def _starts_on_gpu(self) -> bool:
        """Whether jobs without a placement run on a GPU."""
        is_elsewhere = self.preset.device not in (None, find_provider("gpu").tag)
        if is_elsewhere or self.settings.value("gpu_device_num") == 0:
            return False
        return self.has_gpu()

    def _opening(self, job: "CompiledJob") -> "Opening":
        from flow2onnx.engine.opening import plan_opening

        stops = self.settings.value("stop_on_non_finite")
        return plan_opening(job, self._options_of(job), stops_on_non_finite=stops)

    def _check_memory(self, openings: "list[Opening]") -> None:
        from flow2onnx_runtime.free_memory import free_bytes

        from flow2onnx.engine.memory import check_memory

        check_memory(openings, free_bytes(openings[0].options.device))

    def _new_state(
        self, variables: dict[str, Variable], job: "CompiledJob | None"
    ) -> "tuple[State, Callable[[], None]]":
        """The state where a job's session has it, without a job on the CPU; and what fills it."""
        from flow2onnx_runtime import Options, State, require_providers
        from flow2onnx_runtime.init_model import bind_init_model

        from flow2onnx.compile import initial_state
        from flow2onnx.graph.model import model_bytes

        options = self._options_of(job) if job is not None else Options()
        require_providers(options)
        state = State(*options.device)
        if not variables:
            return state, lambda: None
        tensors = [(name, v.shape, v.dtype.name) for name, v in variables.items()]
        plain = Options(optimization="disable")  # else it would hold every large constant
        model = model_bytes(initial_state(variables, self.target()))
        return state, bind_init_model(state, model, tensors, plain)

    def _options_of(self, job: "CompiledJob", device: str | None = None) -> Any:
        from flow2onnx.engine.options import job_options
        from flow2onnx.engine.placement import provider_of

        config = job.spec.config
        provider = provider_of(device or self._device, config.value("runtime.placement"))
        trains, number = job.kind == "train", self._device_id
        return job_options(config, self.settings, provider, trains=trains, device_id=number)

    def _bind(self, opening: "Opening", state: "State") -> "Executable":
        from flow2onnx.engine.executable import Executable

        return Executable(opening, state, self._pipeline(opening.job))

    def _pipeline(self, job: "CompiledJob") -> Pipeline | None:
        """What feeds a job from the host: one pipeline, whatever shapes its other inputs have."""
        if job.host is None:
            return None
        if not self._pipelines:
            # At exit too, but behind the queue of calls, which begins later: it needs batches.
            weakref.finalize(self, _close, self._pipelines)
        known = self._pipelines.setdefault(job.spec.name, Pipeline(job.host))
        if known.plan.signature != job.host.signature:
            raise JobError(
                "inputs of other shapes change what the job reads",
                job=job.spec.name,
                source=job.spec.source,
                hint="let readers and decoders not depend on the shape of an input",
            )
        return known

    def _executable(self, spec: JobSpec, arrays: Sequence[Array]) -> "Executable":
        if self._specs.get(spec.name) is not spec:
            raise JobError(
                f"job {spec.name} was replaced by a later job of the same name",
                source=user_frame(),
                hint="give the functions different names",
            )
        self.start()
        key = (spec.name, tuple(a.shape for a in arrays))
        if key not in self._executables:
            with self._lock:
                if key not in self._executables:
                    self._executables[key] = self._for_shapes(spec, key[1])
        return self._executables[key]

    def _for_shapes(self, spec: JobSpec, shapes: Shapes) -> "Executable":
        """The job once more, for inputs smaller than declared."""
        compiled = self._compile_to_run(spec, shapes)
        unknown = [n for n in compiled.variables if n not in self.variables]
        if unknown:
            raise JobError(
                f"inputs of shapes {shapes} need other variables: {', '.join(unknown)}",
                job=spec.name,
                hint="names and shapes of variables may not depend on the shape of an input",
            )
        _merge(dict(self.variables), compiled, spec.name)
        return self._bind(self._opening(compiled), self.state)


def _is_same(known: JobSpec, spec: JobSpec) -> bool:
    """Whether both were made of one piece of text, with the same interface."""
    codes = [getattr(s.function, "__code__", None) for s in (known, spec)]
    is_one_text = codes[0] is not None and codes[0] is codes[1]
    return is_one_text and (known.kind, known.parameters) == (spec.kind, spec.parameters)


def _close(pipelines: Mapping[str, Pipeline]) -> None:
    for pipeline in pipelines.values():
        pipeline.close()


def _rounds(spec: JobSpec) -> int:
    """How many batches one call of a train job reads."""
    rounds: int = spec.config.value("train.num_gradient_accumulation_steps")
    return rounds


def _merge(variables: dict[str, Variable], job: "CompiledJob", name: str) -> None:
    for variable in job.variables.values():
        first = variables.setdefault(variable.name, variable)
        check_same(first, variable, name)


def _write_graphs(compiled: Mapping[str, "CompiledJob"], folder: Path) -> None:
    """Write the graph of each job as text, for people."""
    from flow2onnx.graph.model import model_text

    folder.mkdir(parents=True, exist_ok=True)
    for name, job in compiled.items():
        (folder / f"{name}.onnx.txt").write_text(model_text(job.model), encoding="utf-8")


def _device_id(compiled: Mapping[str, "CompiledJob"]) -> int:
    """The number of the GPU that a `default_placement_scope` names first; else the first."""
    scopes = [job.spec.config.value("default_placement_scope") for job in compiled.values()]
    ids = [s.device_ids[0] for s in scopes if s is not None and s.device_tag == "gpu"]
    return int(ids[0].rpartition(":")[2].partition("-")[0]) if ids else 0


def _shapes(job: "CompiledJob") -> Shapes:
    from flow2onnx.trace.trace import fed_shapes

    return tuple(fed_shapes(job.spec, job.pieces))


class _Default:
    """The process's session: OneFlow scripts have one, whatever thread they call from."""

    def __init__(self) -> None:
        self.session = Session()


_default = _Default()
# Tests and servers that keep several sessions apart set this one.
SESSION: ContextVar[Session | None] = ContextVar("flow2onnx_session", default=None)


def current_session() -> Session:
    """The session that definitions and calls go to."""
    return SESSION.get() or _default.session


def clear_default_session() -> None:
    """Wait for outstanding work; forget jobs and variables; begin a new session."""
    old = current_session()
    new = Session(old.preset)
    if SESSION.get() is None:
        _default.session = new
    else:
        SESSION.set(new)
    old.close()


def sync_default_session() -> None:
    """Wait until everything that was called has finished."""
    current_session().sync()
