"""verify_model: whether what was written is valid, standard, runnable, and computes the right."""

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import (
    BundleError,
    FlowError,
    Manifest,
    Options,
    Program,
    TensorInfo,
    Trainer,
    kernels,
)
from flow2onnx_runtime.manifest import MANIFEST
from flow2onnx_runtime.providers import CPU, provider_named

from flow2onnx.dtypes import bfloat16
from flow2onnx.errors import ArgumentError, ProviderError
from flow2onnx.export.differences import compared
from flow2onnx.export.reference import IncomparableError, Trial, check_bytes
from flow2onnx.export.report import Check, Output, Report
from flow2onnx.graph.verify import missing_kernels
from flow2onnx.onnx_io.read import ModelFile, open_model, typed_model

__all__ = ["verify_model"]

Array = np.ndarray[Any, np.dtype[Any]]

_BUDGET = 5.0  # seconds that the reference evaluator may take for a model, as estimated
_RTOL, _ATOL = 1e-3, 1e-4
_HALF = 2e-2  # both tolerances where half precision is computed with
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class _Way:
    """How models are verified."""

    options: Options
    rtol: float | None
    atol: float | None
    seed: int
    full: bool

    @property
    def provider(self) -> str:
        return self.options.provider_names[0]

    def tolerances(self, trial: Trial) -> tuple[float, float]:
        halves = any(name in trial.dtypes for name in _HALVES)
        usual = (_HALF, _HALF) if halves else (_RTOL, _ATOL)
        return (
            usual[0] if self.rtol is None else self.rtol,
            usual[1] if self.atol is None else self.atol,
        )


def verify_model(
    path: str | os.PathLike[str],
    *,
    provider: str = CPU.name,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    full: bool = False,
) -> Report:
    """Check a model file or a bundle: valid, standard operators, kernels, values.

    Values are those of the runtime on random inputs (the state of a bundle is its own) against the
    ONNX reference evaluator (the mistakes in `graph.corrections` mended), which must agree within
    ``atol + rtol * |reference|``: 1e-4 and 1e-3 unless given, 2e-2 both with half precision. Where
    outputs do not agree, every node is compared on the runtime's own inputs instead: what merely
    enlarges rounding passes, and what computes something else is named. Free sizes are 3;
    whole-number inputs are within what the graph indexes with them, else 0 or 1. Random nodes are
    replaced by one draw for both.

    The reference is slow. Nodes that would make it take more than about 5 seconds are left out and
    named in the report, and the others are compared one by one, each on the runtime's own inputs;
    `full` compares all, however long that takes.

    Raises BundleError for what is no model or bundle at all, ProviderError for a provider that
    cannot be used here. Everything else that is wrong is a row of the report.
    """
    way = _Way(Options(providers=(provider,), log_level="fatal"), rtol, atol, seed, full)
    _check_tolerances(rtol, atol)
    target = Path(path)
    if target.is_dir():
        return _verified_bundle(target, way)
    rows, outputs = _verified(target, way, {})
    return Report(str(target), tuple(rows), tuple(outputs))


def _check_tolerances(*tolerances: object) -> None:
    for value in tolerances:
        if value is not None and not (isinstance(value, int | float) and value >= 0):
            raise ArgumentError(f"tolerance {value!r}", hint="give a number of at least 0, or None")


# One model


def _verified(
    path: Path, way: _Way, given: Mapping[str, Array]
) -> tuple[list[Check], list[Output]]:
    stored = open_model(path)
    rows = list(_valid(stored, way))
    if any(row.ok is False for row in rows):
        return [*rows, Check("reference", None, "not compared: the checks above failed")], []
    row = _opens(path, way)
    if not row.ok:
        return [*rows, row, Check("reference", None, "not compared: it does not open")], []
    more, outputs = _reference(stored, way, given)
    return [*rows, row, *more], outputs


def _valid(stored: ModelFile, way: _Way) -> Iterator[Check]:
    complaint = stored.checker_complaint()
    yield Check("checker", complaint is None, complaint or f"valid at opset {stored.opset}")
    foreign = stored.foreign_operators()
    yield Check(
        "operators", not foreign,
        f"not of the standard: {', '.join(foreign)}" if foreign else "standard only",
    )  # fmt: skip
    if complaint is None and not foreign:
        yield _kernels(stored, way)


def _kernels(stored: ModelFile, way: _Way) -> Check:
    row = provider_named(way.provider)
    if not row.has_kernels:
        return Check("kernels", None, f"not asked: {row.title} compiles what it can of a graph")
    expanded, missing = missing_kernels(typed_model(stored), kernels(way.provider))
    if missing and row is CPU:
        return Check("kernels", False, "; ".join(missing))
    if missing:
        return Check("kernels", True, f"on the CPU for want of kernels: {'; '.join(missing)}")
    by_function = f"; expanded by the runtime: {', '.join(expanded)}" if expanded else ""
    return Check("kernels", True, f"all of {way.provider}{by_function}")


def _opens(path: Path, way: _Way) -> Check:
    try:
        Program(path, None, way.options)
    except ProviderError:
        raise
    except FlowError as error:
        return Check("session", False, error.message)
    return Check("session", True, f"opens on {way.provider}")


def _reference(
    stored: ModelFile, way: _Way, given: Mapping[str, Array]
) -> tuple[list[Check], list[Output]]:
    try:
        trial = Trial(stored, given, way.seed, None if way.full else _BUDGET)
        ours = _run(trial.content() if trial.is_changed else stored.path, trial.feeds, way)
        theirs = trial.whole()
        outputs = (
            [_compared(trial, way, n, v, theirs[n]) for n, v in ours.items()] if theirs else []
        )
        if theirs is None or not all(o.ok for o in outputs):
            # an optimizer may make a step of the rounding where a gradient is 0: look closer
            rows, outputs = _by_node(trial, ours, way)
        else:
            rows = [_outputs_row(trial, way, outputs)]
    except IncomparableError as reason:
        return [Check("reference", None, f"not compared: {reason}")], []
    except FlowError as error:
        return [Check("reference", False, error.message)], []
    if trial.random:
        rows.append(
            Check("randomness", True, f"one draw for both engines: {_counted(trial.random)}")
        )
    return rows, outputs


def _by_node(
    trial: Trial, ours: Mapping[str, Array], way: _Way
) -> tuple[list[Check], list[Output]]:
    """Compare node by node, and the outputs at the nodes that they come from.

    All values are of one run: with every value shown the runtime fuses less, and rounds otherwise.
    """
    values = _run(trial.content(with_values=True), trial.feeds, way)
    nodes = []
    for theirs in trial.by_node(values):
        nodes += [_compared(trial, way, n, values[n], v) for n, v in theirs.items()]
    outputs = [o for o in nodes if o.name in ours]
    done = {o.name for o in nodes}
    wrong = [o.name for o in nodes if not o.ok]
    detail = (
        f"differs {_within(trial, way)} at {', '.join(wrong[:5])}" if wrong
        else f"{len(done)} of {trial.value_count} values agree {_within(trial, way)}; "
        "each was computed from the runtime's inputs of its node"
    )  # fmt: skip
    return [Check("reference", not wrong, detail), *_left_out(trial, ours, done)], outputs


def _left_out(trial: Trial, ours: Mapping[str, Array], done: set[str]) -> Iterator[Check]:
    if trial.slow:
        yield Check(
            "left out",
            None,
            f"not compared: {_counted(trial.slow)}, too slow for the reference; "
            "full=True (--full) compares all",
        )
    if trial.failed:
        yield Check(
            "left out",
            None,
            f"not compared: {', '.join(trial.failed)}, which the reference cannot compute",
        )
    missing = [name for name in ours if name not in done]
    if missing:
        yield Check("left out", None, f"not compared: outputs {', '.join(missing)}")


def _outputs_row(trial: Trial, way: _Way, outputs: Sequence[Output]) -> Check:
    return Check("reference", True, f"all {len(outputs)} outputs agree {_within(trial, way)}")


def _compared(trial: Trial, way: _Way, name: str, ours: Array, theirs: Array) -> Output:
    rtol, atol = way.tolerances(trial)
    return compared(name, ours, theirs, rtol, atol)


def _within(trial: Trial, way: _Way) -> str:
    rtol, atol = way.tolerances(trial)
    return f"within rtol {rtol:g}, atol {atol:g}"


def _run(model: bytes | Path, feeds: Mapping[str, Array], way: _Way) -> dict[str, Array]:
    program = Program(model, None, way.options)
    check_bytes(sum(_bytes(info) for info in program.results), is_full=way.full)
    results = program.run([feeds[info.name] for info in program.feeds])
    return {i.name: _typed(v, i.element) for i, v in zip(program.results, results, strict=True)}


def _typed(value: Array, element: str) -> Array:
    """The runtime shows bfloat16 as the bits of its values."""
    return value.view(bfloat16.numpy) if element == "bfloat16" else value


def _counted(names: list[str]) -> str:
    return ", ".join(f"{n} ×{names.count(n)}" for n in sorted(set(names)))


def _bytes(info: TensorInfo) -> int:
    sizes = [size for size in info.shape if isinstance(size, int)]
    return info.dtype.itemsize * math.prod(sizes)


# A bundle


def _verified_bundle(folder: Path, way: _Way) -> Report:
    manifest = Manifest.read(folder, verify=False)
    rows = [_files_row(folder, manifest)]
    outputs: list[Output] = []
    rows.append(_trainer_row(folder, way))
    state = _first_state(folder, way) if rows[-1].ok else {}
    for file, given in _models(manifest, state):
        more, compared_outputs = _in_bundle(folder, file, way, given)
        rows += [replace(row, check=f"{file}: {row.check}") for row in more]
        outputs += [replace(o, name=f"{file}: {o.name}") for o in compared_outputs]
    if all(row.ok is not False for row in rows):
        rows.append(_init_row(folder, manifest, way))
    return Report(str(folder), tuple(rows), tuple(outputs))


def _models(
    manifest: Manifest, state: Mapping[str, Array]
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """The models of a bundle, each with the state to try it on."""
    yield manifest.init, state
    yield manifest.step, state
    if manifest.accumulate is not None:
        count = manifest.accumulate.count
        yield manifest.accumulate.gradients, state
        # an update is by the mean over at least one batch
        yield manifest.accumulate.update, {**state, count: np.ones(1, np.int64)}
    for job in manifest.predict:
        yield job.file, state


def _files_row(folder: Path, manifest: Manifest) -> Check:
    try:
        manifest.verify(folder)
    except BundleError as error:
        return Check(MANIFEST, False, error.message)
    return Check(MANIFEST, True, f"{len(manifest.files)} files have their size and SHA-256")


def _trainer_row(folder: Path, way: _Way) -> Check:
    try:
        trainer = Trainer(folder, way.options)
    except ProviderError:
        raise
    except FlowError as error:
        return Check("trainer", False, error.message)
    return Check("trainer", True, f"opens on {way.provider} at step {trainer.steps}")


def _first_state(folder: Path, way: _Way) -> dict[str, Array]:
    trainer = Trainer(folder, way.options)
    return {n: _typed(v, trainer.state.element(n)) for n, v in trainer.state_dict().items()}


def _in_bundle(
    folder: Path, file: str, way: _Way, state: Mapping[str, Array]
) -> tuple[list[Check], list[Output]]:
    try:
        return _verified(folder / file, way, state)
    except BundleError as error:
        return [Check("file", False, error.message)], []


def _init_row(folder: Path, manifest: Manifest, way: _Way) -> Check:
    """What init computes, against the manifest and against its own model with numpy's draws."""
    name = f"{manifest.init}: state"
    found = _run(folder / manifest.init, {}, way)
    wanted = {s.name: (s.shape, s.dtype) for s in manifest.state}
    have = {n: (v.shape, v.dtype.name) for n, v in found.items()}
    if have != wanted:
        return Check(name, False, f"computes {have}, the manifest says {wanted}")
    if any(not np.isfinite(v.astype(np.float64)).all() for v in found.values()):
        return Check(name, False, "computes values that are not finite")
    odd = _oddly_distributed(open_model(folder / manifest.init), found, way)
    if odd:
        return Check(name, False, f"mean or spread is not what the model says: {', '.join(odd)}")
    return Check(name, True, f"{len(found)} tensors of the manifest's shapes, means and spreads")


def _oddly_distributed(stored: ModelFile, found: Mapping[str, Array], way: _Way) -> list[str]:
    try:
        trial = Trial(stored, {}, way.seed, None if way.full else _BUDGET)
        drawn = trial.whole()
    except IncomparableError:
        return []
    return (
        []
        if drawn is None
        else [n for n, v in found.items() if n in drawn and not _alike(v, drawn[n])]
    )


def _alike(a: Array, b: Array) -> bool:
    """Whether two samples may be of one distribution: means and spreads within six deviations."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    spread, root = float(np.sqrt((x.var() + y.var()) / 2)), float(np.sqrt(max(x.size, 1)))
    apart = max(abs(x.mean() - y.mean()), abs(x.std() - y.std()))
    return bool(apart <= 9 * spread / root + 1e-6 * (1 + abs(y.mean())))
