"""Session: the jobs and variables that belong together, from definition to the last call."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from flow2onnx_runtime import Options, State
from flow2onnx_runtime.collectives import follow_first, join_world
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.files import replace_bytes
from flow2onnx_runtime.free_memory import free_bytes
from flow2onnx_runtime.interrupts import uninterrupted
from flow2onnx_runtime.world import launched_world

from flow2onnx.compile import CompiledJob, Target
from flow2onnx.compile.garbage_collection import collector_paused
from flow2onnx.engine.capture import keep_within_memory, plan_captured_opening
from flow2onnx.engine.compiling import JobCompiler, Shapes
from flow2onnx.engine.executable import Executable
from flow2onnx.engine.kept import kept_value, merge_kept, own_value
from flow2onnx.engine.memory import check_memory
from flow2onnx.engine.opening import Opening
from flow2onnx.engine.opening_cache import cache_for
from flow2onnx.engine.options import options_of
from flow2onnx.engine.pipelines import Pipelines
from flow2onnx.engine.placement import Device, Placement, best_device
from flow2onnx.engine.preset import Preset
from flow2onnx.engine.queue import CallQueue
from flow2onnx.engine.ranks import (
    RankedExecutable,
    WholeExecutable,
    check_devices,
    check_same_jobs,
)
from flow2onnx.engine.redefinition import compile_together, is_interactive, keep_values
from flow2onnx.engine.variables import (
    check_variables,
    merge_variables,
    new_state,
    whole_value,
    write_value,
)
from flow2onnx.errors import ContextError, FlowError, JobError, ProviderError
from flow2onnx.graph.model import model_text
from flow2onnx.source import user_frame
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.guessed_release import GuessedRelease
from flow2onnx.trace.job import Kept
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.trace import fed_shapes
from flow2onnx.trace.variables import Variable

__all__ = [
    "SESSION",
    "Session",
    "clear_default_session",
    "current_session",
    "sync_default_session",
]

T = TypeVar("T")
_log = logging.getLogger("flow2onnx.session")
_NO_WISHES = Preset()
_IN_FLIGHT = 2


class Session:
    """Open while jobs are defined; running from the first call on; closed after `close`.

    Jobs are compiled together when the session starts, share variables by name, and run one after
    another in the order of their calls. A job that is defined again while it runs replaces the
    earlier one: at the next call all jobs are compiled anew, and variables of equal shape keep
    their values. `release`, when set, is the OneFlow release whose API the
    jobs speak where their text cannot tell.
    """

    def __init__(self, preset: Preset = _NO_WISHES) -> None:
        self.preset = preset
        self.settings = preset.settings()
        self.release = preset.release
        self.variables: dict[str, Variable] = {}
        self.demands_annotations = False
        self.redefines = False
        self.events: Any = None  # the EventWriter that flow.summary writes with
        self.guess = GuessedRelease()
        self._specs: dict[str, JobSpec] = {}
        self._jobs: Mapping[str, CompiledJob] = {}
        self._executables: dict[tuple[str, Shapes], Executable] = {}
        self._kept: Mapping[str, Kept] = {}
        self._redefined: set[str] = set()  # while it runs, and not compiled yet
        self._aside: Mapping[str, Exception] = {}  # why jobs do not fit those defined later
        self._state: State | None = None
        self._device = Device()
        self._unopened: str | None = None
        self._closed = False
        self._counters: Counter[str] = Counter()
        self._lock = threading.RLock()
        self._queue = CallQueue()
        self._placement = Placement(self.settings, preset.device)
        self._compiler = JobCompiler(self._placement)
        self._pipelines = Pipelines()

    @property
    def is_running(self) -> bool:
        """True once the jobs are compiled."""
        return self._state is not None

    @property
    def state(self) -> State:
        """The variables' buffers; starts the session."""
        self.start()
        assert self._state is not None, "a started session has a state"
        return self._state

    def define(self, spec: JobSpec) -> JobSpec:
        """Add a job; returns what it is from now on. One of the same name replaces the earlier one.

        While the session runs, a job may be defined again, and in a notebook a new one too. With
        `redefines`, a function that is decorated once more, as eager programs do at each
        call, stays the job it is.
        """
        outer = traced_job()
        known = self._specs.get(spec.name)
        if self.redefines and known is not None and _is_same(known, spec):
            return known
        may_replace = launched_world().size == 1 and (known is not None or is_interactive())
        if self._closed or (self.is_running and not may_replace) or outer is not None:
            when = f"inside job {outer.spec.name}" if outer else "after the session began"
            raise ContextError(
                f"no avaliable function found. a job is defined {when}",
                job=spec.name,
                source=spec.source,
                hint="define every job before the first call, or call flow.clear_default_session()",
            )
        with self._lock:
            if self.is_running:
                self._redefined.add(spec.name)
                self._specs.pop(spec.name, None)  # the one defined last stands last
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
        if self.is_running and not self._closed and not self._redefined:
            return  # without the lock: every call asks
        with self._lock:
            if self.redefines and not self._specs:
                return  # an eager program makes its jobs later
            self._check_open()
            if not self.is_running:
                self._start()
            elif self._redefined:
                self._restart()

    def start_for(self, spec: JobSpec) -> CompiledJob:
        """Start for a call of one job; raises what is wrong with it since others were redefined.

        Returns the job as it was compiled: how many lists of arguments and results are long, and
        how results are nested.
        """
        self.start()
        if spec.name in self._aside and self._specs.get(spec.name) is spec:
            with self._lock:
                self._restart()  # what it calls may be another by now
                if spec.name in self._aside:
                    raise self._aside[spec.name]
        return self._jobs[spec.name]

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

    def compile(
        self, job: str | JobSpec, target: Target | None = None, shapes: Shapes | None = None
    ) -> CompiledJob:
        """A job compiled apart, for export, with the session's seed; `shapes` as in `trace`."""
        spec = self._specs[job] if isinstance(job, str) else job
        with self.guess.warnings():
            compiled = self._compiler.compile(spec, shapes, target)
        return compiled.without_clashes(self.variables)

    def unique_str(self, prefix: str) -> str:
        """`prefix` and the number of times it was asked for before."""
        with self._lock:
            self._counters[prefix] += 1
            return f"{prefix}{self._counters[prefix] - 1}"

    @staticmethod
    def has_gpu() -> bool:
        """True if the runtime can use a GPU."""
        return best_device() == "gpu"

    def spec(self, name: str) -> JobSpec:
        """The specification of a job."""
        return self._specs[name]

    def job_names(self) -> tuple[str, ...]:
        """The jobs, in order of definition."""
        return tuple(self._specs)

    def pieces(self, spec: JobSpec) -> int:
        """The length of the lists among the arguments and results of a job; it has started."""
        return self._jobs[spec.name].pieces

    def target(self) -> Target:
        """The opset, seed, kernels and devices to compile for, by the session's settings."""
        return self._compiler.target()

    def run(self, spec: JobSpec, arrays: Sequence[Array]) -> list[Array]:
        """Run a job now, after everything queued before it."""
        executable = self._executable(spec, arrays)
        return self._queue.run(executable.run, arrays)

    def submit(
        self, spec: JobSpec, arrays: Sequence[Array], shown: Callable[[list[Array]], T]
    ) -> "Future[T]":
        """Queue a run; the arrays are copied, so that the caller may change them.

        The future holds `shown` of the results; `wait` for it. A caller that is ahead of its runs
        by `concurrency_width`, if it set that, or else by two, waits here.
        """
        executable = self._executable(spec, arrays)
        call, source = executable.ahead(arrays), user_frame()

        def work() -> T:
            try:
                return shown(call())
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

    def opening(self, name: str) -> Opening:
        """The opening of a job; starts the session."""
        self.start_for(self._specs[name])
        return next(e.opening for (job, _), e in self._executables.items() if job == name)

    @property
    def device(self) -> str:
        """The tag of the device that the jobs of a started session run on."""
        return self._device.tag

    def read(self, name: str) -> Array:
        """The present value of a variable, after everything queued."""
        return self.snapshot([name])[name]

    def snapshot(self, names: Sequence[str]) -> dict[str, Array]:
        """The present values of variables, all of one moment, after everything queued.

        Of state that several processes keep in parts, all of them ask for the same in one order.
        """
        state = self.state

        def read() -> dict[str, Array]:
            values = {n: self._value(state, n) for n in names}
            return {n: v.view(self.variables[n].dtype.numpy) for n, v in values.items()}

        return self._queue.run(read)

    def lend(self, names: Sequence[str], use: Callable[[dict[str, Array]], None]) -> None:
        """Let `use` read what `snapshot` would copy, where it lies; calls wait meanwhile."""
        state = self.state

        def read() -> None:
            with state.lock:
                values = {n: self._lent(state, n) for n in names}
                use({n: v.view(self.variables[n].dtype.numpy) for n, v in values.items()})

        self._queue.run(read)

    def write(self, values: Mapping[str, Array]) -> None:
        """Replace the values of variables, after everything queued; they must fit.

        Of several processes all do so in the same order, and the values of the first rank hold.
        """
        state = self.state

        def write() -> None:
            # ranks wait for each other, which an interrupt ends
            with state.lock, uninterrupted() if join_world() is None else nullcontext():
                for name, value in values.items():
                    self._write(state, name, value)

        self._queue.run(write)

    def _value(self, state: State, name: str) -> Array:
        """The present value; of what ranks keep parts of, every rank asks for it at once."""
        others, kept = join_world(), self._kept.get(name)
        if others is None or kept is None:
            return whole_value(state, self.variables[name])
        return kept_value(others, state, self.variables[name], kept)

    def _lent(self, state: State, name: str) -> Array:
        """The present value for reading, of one process without a copy."""
        return self._value(state, name) if join_world() is not None else state.lend(name)

    def _write(self, state: State, name: str, value: Array) -> None:
        """Replace a value, or the part of it that this rank keeps: as the first rank has it."""
        others, kept = join_world(), self._kept.get(name)
        if others is None or kept is None:
            write_value(state, self.variables[name], value, others)
            return
        whole = np.array(value)
        others.broadcast(whole)
        own = own_value(whole, kept, others.world.size, others.world.rank)
        if own is not None:
            state.write(name, own)

    def sync(self) -> None:
        """Wait for everything queued; raises what a queued run failed with, if nobody took it."""
        self._queue.sync()

    def close(self) -> None:
        """Wait, then refuse further calls; raises what nobody took, as `sync` does."""
        try:
            self._queue.close()  # callbacks still under way may call jobs
        finally:
            self._closed = True
            self._pipelines.close()
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

    def _restart(self) -> None:
        """Compile the jobs of a running session anew; variables of equal shape keep their values.

        If nothing can be compiled or opened, all stays as it was.
        """
        state = self._state
        assert state is not None, "the session runs"
        jobs, aside = compile_together(self._specs, self._compiler.compile_for_calls)
        values = self._queue.run(lambda: {name: state.read(name) for name in state})
        before = (self.variables, self._jobs, self._executables, self._kept)
        self._executables = {}
        try:
            self._pipelines.forget(self._redefined)
            self._start(jobs=jobs)
        except BaseException:
            self.variables, self._jobs, self._executables, self._kept = before
            raise
        self._redefined, self._aside = set(), aside
        assert self._state is not None, "the session runs again"
        changed = keep_values(values, before[0], self._state, self.variables)
        if changed:
            _log.warning("%s", changed)

    @collector_paused()
    def _start(self, opens: bool = True, jobs: Mapping[str, CompiledJob] | None = None) -> None:
        check_devices(self.settings)
        if jobs is None:
            with self.guess.warnings():
                specs = self._specs.items()
                jobs = {name: self._compiler.compile_for_calls(s) for name, s in specs}
        variables = merge_variables(jobs.values())
        jobs = {name: job.without_clashes(variables) for name, job in jobs.items()}
        self._device = self._placement.device_of(list(jobs.values()))
        others = join_world()
        if others is not None:
            check_same_jobs(others, jobs, self.settings)
        openings = [self._opening(job) for job in jobs.values()] if opens else []
        options = openings[0].options if opens else Options()
        if opens:
            free = free_bytes(options.device)
            openings = keep_within_memory(openings, free)
            check_memory(openings, free)
        kept, world = merge_kept(jobs.values()), launched_world()
        target = replace(self.target(), ranks=world.size, rank=world.rank)
        state, compute = new_state(variables, options, target, kept)
        self._kept, self.variables = kept, variables
        with ThreadPoolExecutor(1, "flow2onnx-init") as beside:  # drawing takes no Python
            values = beside.submit(compute)
            bound = [self._bind(opening, state) for opening in openings]
            values.result()
        if others is not None:
            follow_first(
                others, state, [n for n, v in variables.items() if v.parts == 1 and n not in kept]
            )
        for executable in bound:
            job = executable.opening.job
            self._executables[job.spec.name, tuple(fed_shapes(job.spec, job.pieces))] = executable
        self._jobs = jobs
        if self.settings.value("enable_debug_mode"):
            _write_graphs(jobs, Path(self.settings.value("log_dir")))
        self.settings.start()
        self.variables, self._state = variables, state

    def _opening(self, job: CompiledJob, *, is_first: bool = True) -> Opening:
        """How a job is opened; not the first of a job are those for other shapes."""
        stops = self.settings.value("stop_on_non_finite")
        takes_turns = len(self._specs) > 1 or not is_first
        options = options_of(job, self.settings, self._device, takes_turns=takes_turns)
        return plan_captured_opening(
            job,
            options,
            stops_on_non_finite=stops,
            may=is_first,
            cache=cache_for(job.spec.config),
        )

    def _bind(self, opening: Opening, state: State) -> Executable:
        source, others = self._pipelines.feeding(opening.job), join_world()
        if others is not None and opening.job.digest:
            return RankedExecutable(opening, state, others, source)
        divided = others is not None and self._kept.keys() & opening.job.variables.keys()
        if others is not None and divided:
            own = [self.variables[name] for name in opening.job.variables]
            return WholeExecutable(opening, state, others, own, self._kept, source)
        return Executable(opening, state, source)

    def _executable(self, spec: JobSpec, arrays: Sequence[Array]) -> Executable:
        if self._specs.get(spec.name) is not spec:
            raise JobError(
                f"job {spec.name} was replaced by a later job of the same name",
                source=user_frame(),
                hint="give the functions different names",
            )
        self.start()
        key = (spec.name, tuple([a.shape for a in arrays]))
        found = self._executables.get(key)
        if found is None:
            with self._lock:
                if key not in self._executables:
                    self._executables[key] = self._for_shapes(spec, key[1])
                found = self._executables[key]
        return found

    def _for_shapes(self, spec: JobSpec, shapes: Shapes) -> Executable:
        """The job once more, for inputs smaller than declared."""
        job = self._compiler.compile_for_calls(spec, shapes).without_clashes(self.variables)
        check_variables(job, self.variables, shapes)
        return self._bind(self._opening(job, is_first=False), self.state)


def _is_same(known: JobSpec, spec: JobSpec) -> bool:
    """True if both were made of one piece of text, with the same interface."""
    codes = [getattr(s.function, "__code__", None) for s in (known, spec)]
    is_one_text = codes[0] is not None and codes[0] is codes[1]
    return is_one_text and (known.kind, known.parameters) == (spec.kind, spec.parameters)


def _write_graphs(jobs: Mapping[str, CompiledJob], folder: Path) -> None:
    """Write the graph of each job as text, for people."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, job in jobs.items():
        replace_bytes(folder / f"{name}.onnx.txt", model_text(job.model).encode())


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
