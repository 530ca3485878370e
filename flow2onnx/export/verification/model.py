"""One model: is it valid, standard, runnable, and does it compute what the reference does."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from flow2onnx_runtime import FlowError, Options, Program, TensorInfo, kernels
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.providers import CPU, provider_named

from flow2onnx.dtypes import bfloat16
from flow2onnx.errors import ProviderError
from flow2onnx.export.report import Check, Output
from flow2onnx.export.verification.differences import Tolerance
from flow2onnx.export.verification.reference import IncomparableError, Trial, check_bytes
from flow2onnx.graph.verify import missing_kernels
from flow2onnx.onnx_io.read import ModelFile, open_model, typed_model

__all__ = ["Settings", "restore_bfloat16", "run_model", "verify_file"]


_BUDGET = 5.0  # seconds that the reference evaluator may take for a model, as estimated
_RTOL, _ATOL = 1e-3, 1e-4
_HALF = 2e-2  # both tolerances where half precision is computed with
_HALVES = ("float16", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """How models are verified."""

    options: Options
    rtol: float | None
    atol: float | None
    seed: int
    full: bool

    @property
    def provider(self) -> str:
        """The runtime's name of the provider that is asked for."""
        return self.options.provider_names[0]

    @property
    def budget(self) -> float | None:
        """Seconds that the reference may take for a model, as estimated; None: however many."""
        return None if self.full else _BUDGET

    def tolerance(self, trial: Trial) -> Tolerance:
        """How far values may be apart."""
        halves = any(name in trial.dtypes for name in _HALVES)
        rtol, atol = (_HALF, _HALF) if halves else (_RTOL, _ATOL)
        return Tolerance(
            rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol
        )


def verify_file(
    path: Path, settings: Settings, given: Mapping[str, Array]
) -> tuple[list[Check], list[Output]]:
    """The checks of one model, and its outputs beside the reference's; `given` feeds inputs."""
    stored = open_model(path)
    rows = list(_valid(stored, settings))
    if any(row.ok is False for row in rows):
        return [*rows, Check("reference", None, "not compared: the checks above failed")], []
    row = _opens(path, settings)
    if not row.ok:
        return [*rows, row, Check("reference", None, "not compared: it does not open")], []
    more, outputs = _reference(stored, settings, given)
    return [*rows, row, *more], outputs


def _valid(stored: ModelFile, settings: Settings) -> Iterator[Check]:
    complaint = stored.checker_complaint()
    yield Check("checker", complaint is None, complaint or f"valid at opset {stored.opset}")
    foreign = stored.foreign_operators()
    yield Check(
        "operators", not foreign,
        f"not of the standard: {', '.join(foreign)}" if foreign else "standard only",
    )  # fmt: skip
    if complaint is None and not foreign:
        yield _kernels(stored, settings)


def _kernels(stored: ModelFile, settings: Settings) -> Check:
    row = provider_named(settings.provider)
    if not row.has_kernels:
        return Check("kernels", None, f"not asked: {row.title} compiles what it can of a graph")
    expanded, missing = missing_kernels(typed_model(stored), kernels(settings.provider))
    if missing and row is CPU:
        return Check("kernels", False, "; ".join(missing))
    if missing:
        return Check("kernels", True, f"on the CPU for want of kernels: {'; '.join(missing)}")
    by_function = f"; expanded by the runtime: {', '.join(expanded)}" if expanded else ""
    return Check("kernels", True, f"all of {settings.provider}{by_function}")


def _opens(path: Path, settings: Settings) -> Check:
    try:
        Program(path, None, settings.options)
    except ProviderError:
        raise
    except FlowError as error:
        return Check("session", False, error.message)
    return Check("session", True, f"opens on {settings.provider}")


def _reference(
    stored: ModelFile, settings: Settings, given: Mapping[str, Array]
) -> tuple[list[Check], list[Output]]:
    try:
        trial = Trial(stored, given, settings.seed, settings.budget)
        ours = run_model(
            trial.content() if trial.is_changed else stored.path, trial.feeds, settings
        )
        theirs, tolerance = trial.whole(), settings.tolerance(trial)
        outputs = [tolerance.compare(n, v, theirs[n]) for n, v in ours.items()] if theirs else []
        if theirs is None or not all(o.ok for o in outputs):
            # an optimizer may make a step of the rounding where a gradient is 0: look closer
            rows, outputs = _by_node(trial, ours, settings)
        else:
            text = f"all {len(outputs)} outputs agree within {tolerance}"
            rows = [Check("reference", True, text)]
    except IncomparableError as reason:
        return [Check("reference", None, f"not compared: {reason}")], []
    except FlowError as error:
        return [Check("reference", False, error.message)], []
    if trial.random:
        rows.append(
            Check("randomness", True, f"one draw for both engines: {_count_names(trial.random)}")
        )
    return rows, outputs


def _by_node(
    trial: Trial, ours: Mapping[str, Array], settings: Settings
) -> tuple[list[Check], list[Output]]:
    """Compare node by node, and the outputs at the nodes that they come from.

    All values are of one run: with every value shown the runtime fuses less, and rounds otherwise.
    """
    values = run_model(trial.content(with_values=True), trial.feeds, settings)
    tolerance, nodes = settings.tolerance(trial), []
    for theirs in trial.by_node(values):
        nodes += [tolerance.compare(n, values[n], v) for n, v in theirs.items()]
    outputs = [o for o in nodes if o.name in ours]
    done = {o.name for o in nodes}
    wrong = [o.name for o in nodes if not o.ok]
    detail = (
        f"differs within {tolerance} at {', '.join(wrong[:5])}" if wrong
        else f"{len(done)} of {trial.value_count} values agree within {tolerance}; "
        "each was computed from the runtime's inputs of its node"
    )  # fmt: skip
    return [Check("reference", not wrong, detail), *_omissions(trial, ours, done)], outputs


def _omissions(trial: Trial, ours: Mapping[str, Array], done: set[str]) -> Iterator[Check]:
    if trial.slow:
        yield Check(
            "left out",
            None,
            f"not compared: {_count_names(trial.slow)}, too slow for the reference; "
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


def run_model(
    model: bytes | Path, feeds: Mapping[str, Array], settings: Settings
) -> dict[str, Array]:
    """The results of one run by name."""
    program = Program(model, None, settings.options)
    check_bytes(sum(_bytes(info) for info in program.results), is_full=settings.full)
    results = program.run([feeds[info.name] for info in program.feeds])
    return {
        i.name: restore_bfloat16(v, i.element)
        for i, v in zip(program.results, results, strict=True)
    }


def restore_bfloat16(value: Array, element: str) -> Array:
    """A result as it is: the runtime shows bfloat16 as the bits of its values."""
    return value.view(bfloat16.numpy) if element == "bfloat16" else value


def _count_names(names: list[str]) -> str:
    return ", ".join(f"{n} ×{names.count(n)}" for n in sorted(set(names)))


def _bytes(info: TensorInfo) -> int:
    sizes = [size for size in info.shape if isinstance(size, int)]
    return info.dtype.itemsize * math.prod(sizes)
