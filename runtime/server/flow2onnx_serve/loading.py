"""One version of a model: open_program, warmed up, checked, and only then fit to answer."""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from time import time
from typing import Any

import numpy as np
from flow2onnx_runtime import (
    BundleError,
    FlowError,
    Options,
    Program,
    RunError,
    TensorInfo,
    load_safetensors,
)
from flow2onnx_runtime.model_config import DeclaredTensor, ModelConfig
from flow2onnx_runtime.slots import slots_of
from flow2onnx_runtime.zero_copy import ZeroCopyProgram, run_options
from numpy.typing import NDArray

from flow2onnx_serve.errors import RequestError
from flow2onnx_serve.inline import inline_rows, open_program
from flow2onnx_serve.ports import Port, mark_columns, port
from flow2onnx_serve.settings import Prepare
from flow2onnx_serve.synthetic import batch_axis, concrete_shape, synthetic_array, synthetic_inputs

__all__ = ["CHECK_FILES", "Statistics", "Version", "VersionFiles", "load_version"]

CHECK_FILES = ("check.safetensors", "check.npz")
_FEEDS, _RESULTS = "feeds/", "results/"
_RTOL, _ATOL = 1e-3, 1e-5
_TRIAL_SECONDS = 120.0  # for all runs before a version answers

Feeds = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class VersionFiles:
    """Where a version lies: its model, and the files that may accompany it, nearest first."""

    model: Path
    checks: tuple[Path, ...] = ()
    labels: Path | None = None


@dataclass
class Statistics:
    """Counts of what a version has done so far; times in nanoseconds."""

    successes: int = 0
    failures: int = 0
    rows: int = 0
    runs: int = 0
    total: int = 0
    failed: int = 0
    queue: int = 0
    compute: int = 0
    last: int = 0
    sizes: dict[int, tuple[int, int]] = field(default_factory=dict)

    def answered(self, is_good: bool, seconds: float) -> None:
        """Count a request."""
        if is_good:
            self.successes += 1
            self.total += int(seconds * 1e9)
        else:
            self.failures += 1
            self.failed += int(seconds * 1e9)

    def ran(self, rows: int, waited: Sequence[float], seconds: float) -> None:
        """Count a run of so many rows for requests that had waited so long."""
        taken = int(seconds * 1e9)
        self.runs += 1
        self.rows += rows
        self.queue += int(sum(waited) * 1e9)
        self.compute += taken * len(waited)
        self.last = int(time() * 1000)
        count, spent = self.sizes.get(rows, (0, 0))
        self.sizes[rows] = count + 1, spent + taken


@dataclass(frozen=True)
class Version:
    """A version that has proved itself: `notes` tell what an operator may want to know."""

    number: int
    program: Program
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    config: ModelConfig
    max_batch: int  # rows of one run; 1 if requests are not to be combined
    labels: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    proven: list[NDArray[Any]] | None  # arrays that it has run on
    inline: int  # rows of a run so quick that no thread is worth it
    statistics: Statistics = field(default_factory=Statistics)

    @property
    def has_batch(self) -> bool:
        """True if the first axis of everything is a free batch."""
        return batch_axis(self.program) is not None

    @cached_property
    def slots(self) -> Mapping[str, TensorInfo]:
        """The inputs that adapters fill."""
        return slots_of(self.program.session)

    @cached_property
    def _slotted(self) -> ZeroCopyProgram:
        return ZeroCopyProgram(self.program)

    def run(
        self,
        arrays: Sequence[NDArray[Any]],
        options: Any = None,
        slots: Mapping[str, Any] | None = None,
    ) -> list[NDArray[Any]]:
        """The results; a failure is the request's fault if the model still runs on others.

        `options` are onnxruntime's for this run, through which it may be told to stop; `slots` are
        the values of an adapter.
        """
        try:
            if slots is not None:
                return self._slotted.run(arrays, options=options, slots=slots)
            return self.program.run(arrays, run_options=options)
        except RunError as error:
            if self.proven is None or (options is not None and options.terminate):
                raise
            self.program.run(self.proven)
            raise RequestError(f"the model cannot run on these values: {error.message}") from error

    @property
    def ports(self) -> tuple[Port, ...]:
        """Inputs and outputs."""
        return (*self.inputs.values(), *self.outputs.values())


def load_version(
    number: int,
    place: VersionFiles,
    config: ModelConfig,
    options: Options,
    prepare: Prepare | None,
    max_batch: int,
    present: Version | None,
) -> Version:
    """A version, ready to answer; raises `FlowError` with the reason why it is not fit to.

    Without inputs and outputs declared in config.pbtxt, they must be those of the `present`
    version, whose clients go on.
    """
    model, options = (place.model, options) if prepare is None else prepare(place.model, options)
    program, is_quick = open_program(place.model.name, model, options)
    inputs = {info.name: port(info) for info in program.feeds}
    outputs = {info.name: port(info) for info in program.results}
    _check_declared(config, inputs, outputs)
    inputs, outputs = (mark_columns(ports, config.columns) for ports in (inputs, outputs))
    if present is not None and not config.is_declared:
        _check_same(present, (*inputs.values(), *outputs.values()))
    expected = _read_check(place, program)
    notes = [] if model is place.model else ["prepared for this machine"]
    with _limited_runs(program) as trial:
        notes += [_run_check(trial, place, expected)] if expected else []
        proven, failed = _warm_up(trial, config, expected[0] if expected else None)
        notes += failed
        rows, why = _batch_rows(trial, config, max_batch, expected[0] if expected else None)
    notes += [f"no batching: {why}"] if why else []
    inline = inline_rows(program, rows) if is_quick else 0
    labels = _labels(config, place)
    return Version(
        number, program, inputs, outputs, config, rows, labels, tuple(notes), proven, inline
    )


class _Trial:
    """A program whose runs end together after a while; a model may ask for any number of steps."""

    def __init__(self, program: Program) -> None:
        self._program, self.options = program, run_options(program)
        self.feeds, self.results = program.feeds, program.results
        self.arrange, self.by_name = program.arrange, program.by_name

    @property
    def program(self) -> Program:
        """The program itself."""
        return self._program

    def run(self, arrays: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """The results; raises `BundleError` once the time is over."""
        try:
            return self._program.run(arrays, run_options=self.options)
        except RunError as error:
            if not self.options.terminate:
                raise
            raise BundleError(
                f"its trial runs did not end within {_TRIAL_SECONDS:.0f} s",
                hint="give it less to do for one row",
            ) from error

    def stop(self) -> None:
        """End the runs at their next node."""
        self.options.terminate = True


@contextmanager
def _limited_runs(program: Program) -> Iterator[_Trial]:
    trial = _Trial(program)
    timer = threading.Timer(_TRIAL_SECONDS, trial.stop)
    timer.daemon = True
    timer.start()
    try:
        yield trial
    finally:
        timer.cancel()


def _check_declared(
    config: ModelConfig, inputs: Mapping[str, Port], outputs: Mapping[str, Port]
) -> None:
    if config.inputs:
        _check_ports("input", config.inputs, inputs, is_whole=True)
    if config.outputs:
        _check_ports("output", config.outputs, outputs, is_whole=False)
    if config.max_batch:
        fixed = [p.name for p in (*inputs.values(), *outputs.values()) if p.shape[:1] != (-1,)]
        if fixed:
            raise BundleError(
                f"max_batch_size is {config.max_batch}, but the first size of {fixed[0]} is fixed",
                hint="export with dynamic_batch, or set max_batch_size: 0",
            )


def _check_ports(
    what: str, declared: Iterable[DeclaredTensor], ports: Mapping[str, Port], *, is_whole: bool
) -> None:
    names = {item.name for item in declared}
    if names - set(ports) or (is_whole and set(ports) - names):
        raise BundleError(
            f"config.pbtxt declares the {what}s {sorted(names)}, the model has {sorted(ports)}"
        )
    for item in declared:
        found = ports[item.name]
        fits = len(item.shape) == len(found.shape) and all(
            -1 in (a, b) or a == b for a, b in zip(item.shape, found.shape, strict=True)
        )
        if item.datatype != found.datatype or not fits:
            raise BundleError(
                f"config.pbtxt declares {what} {item.name} as {item.datatype} {list(item.shape)}, "
                f"the model has {found}"
            )


def _check_same(present: Version, ports: Sequence[Port]) -> None:
    old, new = {p.key for p in present.ports}, {p.key for p in ports}
    if old != new:
        raise BundleError(
            f"its inputs or outputs differ from version {present.number}: "
            f"{_list_ports(p for p in ports if p.key not in old)} instead of "
            f"{_list_ports(p for p in present.ports if p.key not in new)}",
            hint="unload the model first, or declare them in config.pbtxt",
        )


def _list_ports(ports: Iterable[Port]) -> str:
    return ", ".join(map(str, ports)) or "nothing"


def _read_check(place: VersionFiles, program: Program) -> tuple[Feeds, Feeds] | None:
    """Feeds and expected results from the nearest check file, if there is one."""
    path = next((p for p in place.checks if p.is_file()), None)
    if path is None:
        return None
    tensors = _tensors(path)
    feeds = {n.removeprefix(_FEEDS): v for n, v in tensors.items() if n.startswith(_FEEDS)}
    results = {n.removeprefix(_RESULTS): v for n, v in tensors.items() if n.startswith(_RESULTS)}
    known = {info.name for info in program.results}
    if not results or len(feeds) + len(results) < len(tensors) or set(results) - known:
        raise BundleError(
            f"{path.name} holds {', '.join(sorted(tensors)) or 'nothing'}",
            hint=f"{_FEEDS}NAME for each input, and {_RESULTS}NAME for outputs",
        )
    return feeds, results


def _tensors(path: Path) -> Feeds:
    if path.suffix == ".safetensors":
        return load_safetensors(path)[0]
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}
    except Exception as error:  # zipfile, zlib and numpy have no common base
        raise BundleError(f"{path.name} cannot be read: {error}") from error


def _run_check(trial: _Trial, place: VersionFiles, expected: tuple[Feeds, Feeds]) -> str:
    feeds, results = expected
    found = trial.by_name(trial.run(trial.arrange((), feeds)))
    bits = {info.name: info.element == "bfloat16" for info in trial.results}
    worst = 0.0
    for name, value in results.items():
        if found[name].shape != value.shape or found[name].dtype != value.dtype:
            raise BundleError(
                f"the check expects {name} as {value.dtype} {list(value.shape)}, "
                f"it is {found[name].dtype} {list(found[name].shape)}"
            )
        if not value.size:
            continue
        exact, given = _as_float64(value, bits[name]), _as_float64(found[name], bits[name])
        apart = float(np.nan_to_num(np.abs(given - exact), nan=0.0).max())
        if not np.allclose(given, exact, _RTOL, _ATOL, equal_nan=True):
            raise BundleError(
                f"the check fails: {name} differs by up to {apart:.3g}",
                hint="the model computes something else than when the check was stored",
            )
        worst = max(worst, apart)
    return f"the check passed, largest difference {worst:.3g}"


def _warm_up(
    trial: _Trial, config: ModelConfig, feeds: Feeds | None
) -> tuple[list[NDArray[Any]] | None, list[str]]:
    """Run on made-up values: returns some that worked, and what did not.

    A failure is the model's where the sizes are those that will come.
    """
    proven = None if feeds is None else [np.asarray(a) for a in trial.arrange((), feeds)]
    shapes = list(config.warmups)
    is_known = bool(shapes)
    if not shapes and proven is None:
        axis = batch_axis(trial.program)
        shapes = [{i.name: concrete_shape(i.shape, axis, 1) for i in trial.feeds}]
        is_known = all(s == axis or isinstance(s, int) for i in trial.feeds for s in i.shape)
    try:
        for asked in shapes:
            arrays = [synthetic_array(i.dtype, asked.get(i.name, ())) for i in trial.feeds]
            trial.run(arrays)
            proven = arrays
    except FlowError as error:
        if is_known:
            raise BundleError(f"the warm-up fails: {error.message}") from error
        return proven, [f"not warmed up: {error.message}"]
    return proven, []


def _batch_rows(
    trial: _Trial, config: ModelConfig, max_batch: int, feeds: Feeds | None
) -> tuple[int, str | None]:
    """How many rows a run may have, and why only one request at a time if so."""
    if config.max_batch is not None:
        limit = config.max_batch if config.batches else 1
        asked = "config.pbtxt does not ask for it"
    else:
        limit, asked = max_batch, "it is turned off"
    if limit <= 1:
        return 1, asked
    if batch_axis(trial.program) is None:
        return 1, "inputs and outputs do not all begin with one free batch"
    why = _why_rows_depend(trial, feeds)
    return (1, why) if why else (limit, None)


def _why_rows_depend(trial: _Trial, feeds: Feeds | None) -> str | None:
    """The reason not to combine rows: together they differ from the same rows alone."""
    if feeds is None:
        one, two = (synthetic_inputs(trial.program, 1, seed) for seed in (1, 2))
    else:
        given = [np.asarray(a) for a in trial.arrange((), feeds)]
        one, two = ([array[rows] for array in given] for rows in (slice(0, 1), slice(-1, None)))
    try:
        together = trial.run([np.concatenate(pair) for pair in zip(one, two, strict=True)])
        apart = [np.concatenate(pair)
                 for pair in zip(trial.run(one), trial.run(two), strict=True)]  # fmt: skip
    except RunError as error:
        return f"it could not be tried: {error.message}"
    for info, a, b in zip(trial.results, together, apart, strict=True):
        if a.shape != b.shape or not _is_close(a, b, info):
            return f"the rows of {info.name} depend on each other"
    return None


def _is_close(a: NDArray[Any], b: NDArray[Any], info: TensorInfo) -> bool:
    one, two = (_as_float64(value, info.element == "bfloat16") for value in (a, b))
    rtol = 1e-2 if a.dtype.itemsize < 4 else 1e-3
    return bool(np.allclose(one, two, rtol=rtol, atol=1e-4, equal_nan=True))


def _as_float64(value: NDArray[Any], is_bits: bool) -> NDArray[Any]:
    """The numbers in float64; bfloat16 travels as bits, the upper half of a float32's."""
    numbers = (value.astype(np.uint32) << 16).view(np.float32) if is_bits else value
    return numbers.astype(np.float64)


def _labels(config: ModelConfig, place: VersionFiles) -> dict[str, tuple[str, ...]]:
    if place.labels is None:
        return {}
    found = {}
    for item in config.outputs:
        if item.labels is None:
            continue
        path = place.labels / item.labels
        try:
            found[item.name] = tuple(path.read_text("utf-8").splitlines())
        except (OSError, ValueError) as error:
            raise BundleError(f"{path.name} cannot be read: {error}") from error
    return found
