"""Session: the jobs and variables that belong together, from definition to the last call."""

import atexit
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from flow2onnx.config import Settings
from flow2onnx.errors import ContextError, FlowError, JobError
from flow2onnx.trace.context import traced_job
from flow2onnx.trace.source import user_frame
from flow2onnx.trace.spec import JobSpec
from flow2onnx.trace.variables import Variable, check_same
from flow2onnx.typing import TreeDef

if TYPE_CHECKING:
    from flow2onnx_runtime import State

    from flow2onnx.compile import CompiledJob, Target
    from flow2onnx.execute import Executable

__all__ = ["Session", "clear_default_session", "current_session", "sync_default_session"]

_log = logging.getLogger("flow2onnx.session")
Array = np.ndarray[Any, np.dtype[Any]]
T = TypeVar("T")


class Session:
    """Open while jobs are defined; running from the first call on; closed after `close`.

    Jobs are compiled together when the session starts, share variables by name, and run one after
    another in the order of their calls. `release`, when set, is the OneFlow release whose API the
    jobs speak where their text cannot tell.
    """

    def __init__(self) -> None:
        self.settings = Settings()
        self.release: str | None = None
        self.variables: dict[str, Variable] = {}
        self._specs: dict[str, JobSpec] = {}
        self._executables: dict[tuple[str, Any], Executable] = {}
        self._state: State | None = None
        self._closed = False
        self._lock = threading.RLock()
        self._queue = _Queue()

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

    def define(self, spec: JobSpec) -> None:
        """Add a job. One of the same name replaces the earlier one."""
        if self._closed or self.is_running:
            raise ContextError(
                "no avaliable function found. a job is defined after the session began",
                job=spec.name,
                source=spec.source,
                hint="define every job before the first call, or call flow.clear_default_session()",
            )
        if spec.name in self._specs:
            _log.warning("job %s is defined again and replaces the earlier one", spec.name)
        self._specs[spec.name] = spec

    def start(self) -> None:
        """Compile all jobs and give the variables their first values, once."""
        if traced_job() is not None:
            raise ContextError("inside a job function there are no values yet", source=user_frame())
        with self._lock:
            if self.is_running:
                return
            self._check_can_start()
            self._start()

    def compiled(self, name: str, target: "Target | None" = None) -> "CompiledJob":
        """A job compiled apart, for export, with the session's seed."""
        from flow2onnx.compile import compile_job

        return compile_job(self._specs[name], None, target or self.target())

    def spec(self, name: str) -> JobSpec:
        """The specification of a job."""
        return self._specs[name]

    def job_names(self) -> tuple[str, ...]:
        """The jobs, in order of definition."""
        return tuple(self._specs)

    def tree(self, name: str) -> TreeDef:
        """The nesting of what the body of a job returned."""
        return next(e.compiled.tree for k, e in self._executables.items() if k[0] == name)

    def target(self) -> "Target":
        """What to compile for, by the session's settings."""
        from flow2onnx_runtime import kernels

        from flow2onnx.compile import Target

        return Target(
            seed=self.settings.value("random_seed"),
            kernels=kernels("CPUExecutionProvider"),
            shows_losses=self.settings.value("stop_on_non_finite"),
        )

    def run(self, spec: JobSpec, arrays: Sequence[Array]) -> list[Array]:
        """Run a job now, after everything queued before it."""
        self._check_current(spec)
        executable = self._executable(spec, arrays)
        return self._queue.run(lambda: executable.run(arrays))

    def submit(
        self, spec: JobSpec, arrays: Sequence[Array], shown: Callable[[list[Array]], T]
    ) -> "Future[T]":
        """Queue a run; the arrays are copied, so that the caller may change them.

        The future holds `shown` of the results. A failure nobody asks the future about comes up at
        the next `sync`.
        """
        self._check_current(spec)
        executable = self._executable(spec, arrays)
        copies = [np.array(a) for a in arrays]
        return self._queue.submit(lambda: shown(executable.run(copies)))

    def later(self, work: Callable[[], T]) -> "Future[T]":
        """Queue something behind the runs so far."""
        return self._queue.submit(work)

    def read(self, name: str) -> Array:
        """The present value of a variable, after everything queued."""
        return self._queue.run(lambda: self.state.read(name))

    def write(self, values: Mapping[str, Array]) -> None:
        """Replace the values of variables, after everything queued: all of them or none."""
        state = self.state

        def replace() -> None:
            whole = {**state.to_dict(), **values}
            state.from_dict(whole)

        self._queue.run(replace)

    def sync(self) -> None:
        """Wait for everything queued; raises what a queued run failed with, if nobody took it."""
        self._queue.sync()

    def close(self) -> None:
        """Wait, then forget jobs and variables."""
        try:
            self._queue.sync()
        finally:
            self._queue.close()
            self._closed = True

    def _check_can_start(self) -> None:
        if self._closed:
            raise JobError(
                "this job belongs to a session that was cleared", hint="define the job again"
            )
        if not self._specs:
            raise JobError("no job function is defined", source=user_frame(),
                           hint="decorate one with @flow.global_function(...)")  # fmt: skip

    def _start(self) -> None:
        from flow2onnx.compile import compile_job

        target = self.target()
        compiled = {name: compile_job(spec, None, target) for name, spec in self._specs.items()}
        variables: dict[str, Variable] = {}
        for name, job in compiled.items():
            _merge(variables, job, name)
        self.settings.start()
        state = self._filled_state(compiled, variables)
        executables = {(n, _shapes(j)): self._bind(j, state) for n, j in compiled.items()}
        self.variables, self._executables, self._state = variables, executables, state

    def _filled_state(
        self, compiled: Mapping[str, "CompiledJob"], variables: Mapping[str, Variable]
    ) -> "State":
        from flow2onnx_runtime import Program, State

        from flow2onnx.compile import initial_state
        from flow2onnx.graph import model_bytes

        device, device_id = self._options_of(*compiled.values()).device
        state = State(device, device_id)
        if variables:
            init = Program(model_bytes(initial_state(dict(variables), self.target())), name="init")
            for (name, v), value in zip(variables.items(), init.run([]), strict=True):
                state.add(name, value, v.dtype.name)
        return state

    def _options_of(self, *jobs: "CompiledJob") -> Any:
        from flow2onnx.execute import best_device, job_options, provider_of

        devices = {d for job in jobs for d in job.devices} or {best_device()}
        device = "gpu" if "gpu" in devices else "cpu"
        return job_options(jobs[0].spec.config, provider_of(device))

    def _bind(self, job: "CompiledJob", state: "State") -> "Executable":
        from flow2onnx.execute import Executable

        executable = Executable(job, state, self._options_of(job))
        executable.stops_on_non_finite = self.settings.value("stop_on_non_finite")
        return executable

    def _check_current(self, spec: JobSpec) -> None:
        self.start()
        if self._specs.get(spec.name) is not spec:
            raise JobError(
                f"job {spec.name} was replaced by a later job of the same name",
                source=user_frame(),
                hint="give the functions different names",
            )

    def _executable(self, spec: JobSpec, arrays: Sequence[Array]) -> "Executable":
        key = (spec.name, tuple(a.shape for a in arrays))
        found = self._executables.get(key)
        if found is None:
            with self._lock:
                found = self._executables[key] = self._for_shapes(spec, key[1])
        return found

    def _for_shapes(self, spec: JobSpec, shapes: tuple[tuple[int, ...], ...]) -> "Executable":
        """The job once more, for inputs smaller than declared."""
        from flow2onnx.compile import compile_job

        compiled = compile_job(spec, shapes, self.target())
        unknown = [n for n in compiled.variables if n not in self.variables]
        if unknown:
            raise JobError(
                f"inputs of shapes {shapes} need other variables: {', '.join(unknown)}",
                job=spec.name,
                hint="names and shapes of variables may not depend on the shape of an input",
            )
        _merge(dict(self.variables), compiled, spec.name)
        return self._bind(compiled, self.state)


class _Queue:
    """Runs work one after another: in the caller while nothing waits, else on one worker thread."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._worker: int | None = None
        self._waiting = 0
        self._guard = threading.Lock()
        self._turn = threading.RLock()
        self._failure: BaseException | None = None

    def run(self, work: Callable[[], T]) -> T:
        """Do `work` in its turn and wait for it."""
        if self._waiting and threading.get_ident() != self._worker:
            return self.submit(work).result()
        with self._turn:
            return work()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Do `work` on the worker thread, after what was submitted before."""
        with self._guard:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix="flow2onnx")
            self._waiting += 1
            return self._pool.submit(self._work, work)

    def failed(self, error: BaseException) -> None:
        """Keep the first failure that nobody waits for."""
        self._failure = self._failure or error

    def sync(self) -> None:
        """Wait for everything submitted; raise a failure that nobody took."""
        if self._pool is not None and threading.get_ident() != self._worker:
            self._pool.submit(lambda: None).result()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Let the worker thread end."""
        if self._pool is not None:
            self._pool.shutdown(wait=threading.get_ident() != self._worker)

    def _work(self, work: Callable[[], T]) -> T:
        self._worker = threading.get_ident()
        try:
            with self._turn:
                return work()
        finally:
            with self._guard:
                self._waiting -= 1


def _merge(variables: dict[str, Variable], job: "CompiledJob", name: str) -> None:
    for variable in job.variables.values():
        first = variables.setdefault(variable.name, variable)
        check_same(first, variable, name)


def _shapes(job: "CompiledJob") -> tuple[tuple[int, ...], ...]:
    from flow2onnx.trace.trace import leaf_placeholders

    return tuple(p.shape for _, p in leaf_placeholders(job.spec))


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
    old, new = current_session(), Session()
    if SESSION.get() is None:
        _default.session = new
    else:
        SESSION.set(new)
    old.close()


def sync_default_session() -> None:
    """Wait until everything that was called has finished."""
    current_session().sync()


@atexit.register
def _finish() -> None:
    try:
        _default.session.close()
    except FlowError as error:
        _log.error("%s", error)
