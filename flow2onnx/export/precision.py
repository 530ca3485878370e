"""Reduced precision: a predict model in float16 or int8, compared with itself in float32."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import Predictor, kernels
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.providers import find_provider

from flow2onnx.compile import CompiledJob
from flow2onnx.export.calibration import Batch, random_batches, read_batches
from flow2onnx.export.comparison import Counts, compare
from flow2onnx.export.files import publish, staging, write_predict
from flow2onnx.export.options import ModelExport
from flow2onnx.export.quantizer import quantize_dynamically, quantize_statically
from flow2onnx.export.report import Check, Comparison
from flow2onnx.graph import Model
from flow2onnx.graph.model import copy_model
from flow2onnx.graph.verify import verify
from flow2onnx.onnx_io.parse import input_dtypes, load_with_inputs
from flow2onnx.passes import (
    ConvertToHalf,
    FoldBatchNorm,
    RoundMissingKernels,
    count_missing_kernels,
)

__all__ = ["write_in_precision"]

_LARGEST_HALF = 65504.0


def write_in_precision(
    path: Path,
    job: CompiledJob,
    values: Mapping[str, Array],
    options: ModelExport,
    fixed: Sequence[str],
) -> tuple[list[Path], Comparison, list[Check]]:
    """Write a job in reduced precision; `fixed` nodes, by name, stay as they are.

    Returns the files, the comparison with float32 and what follows from it.
    """
    with staging(path) as place:
        base, stage = Path(place) / path.name, Path(place) / "finished"
        stage.mkdir()
        full = write_predict(base, copy_model(job.model), values, weights=options.weights)
        feeds = Predictor(base).feeds
        calibration = _batches("calibration", options.calibration, feeds)
        samples = _batches("samples", options.samples, feeds) or calibration
        data = "the samples" if options.samples is not None else "the calibration set"
        if not samples:
            samples, data = random_batches(feeds), "random numbers"
        rows: list[Check] = []
        exact = None
        if options.precision == "fp16":
            exact = Path(place) / "rounded" / path.name
            written, counts, rows = _write_half(
                stage / path.name, exact, job, values, options, fixed
            )
        else:
            folded = Path(place) / "folded" / path.name
            folded.parent.mkdir()
            held = dict(values)
            FoldBatchNorm(held).run(job.model.graph)
            write_predict(folded, copy_model(job.model), held, weights=options.weights)
            written, counts = _write_int8(
                stage / path.name, job, folded, calibration, options, fixed
            )
        comparison = compare(
            options.precision, written, full, samples, data, options.labels, counts, exact
        )  # fmt: skip
        targets = [path.with_name(p.name) for p in written]
        publish(stage, targets[::-1])  # the model, which names the others, comes last
    return targets, comparison, [*rows, *_verdicts(comparison, options)]


def _batches(what: str, given: object, feeds: Sequence[Any]) -> list[Batch]:
    return [] if given is None else read_batches(what, given, feeds)


# float16


def _write_half(
    path: Path,
    exact: Path,
    job: CompiledJob,
    values: Mapping[str, Array],
    options: ModelExport,
    fixed: Sequence[str],
) -> tuple[list[Path], Counts, list[Check]]:
    """Write the model, and at `exact` one that rounds also where the CPU would not."""
    large = [n for n, v in values.items() if v.dtype.kind == "f" and _most(v) > _LARGEST_HALF]
    halving = ConvertToHalf(
        weights=tuple(values), large=large, fixed=fixed, half_io=options.half_io
    )
    halving.run(job.model.graph)
    verify(job.model, kernels())
    row = _kernel_row(job.model, halving)
    dtypes = input_dtypes(job.model)
    small = {n: v.astype(dtypes[n].numpy, copy=False) for n, v in values.items()}
    rounding = copy_model(job.model)
    RoundMissingKernels(kernels()).run(rounding.graph)
    exact.parent.mkdir()
    write_predict(exact, rounding, small, weights=options.weights)
    written = write_predict(path, job.model, small, weights=options.weights)
    return written, Counts(halving.halved, halving.left), [row]


def _most(value: Array) -> float:
    return float(np.abs(value).max(initial=0))


def _kernel_row(model: Model, halving: ConvertToHalf) -> Check:
    """The operators that the CPU has in float16, which are few: it casts around the rest."""
    lacking = count_missing_kernels(model.graph, kernels())
    count, missing = sum(halving.halved.values()), sum(lacking.values())
    text = f"{count} operators in float16"
    if missing:
        names = ", ".join(f"{op} ×{n}" for op, n in sorted(lacking.items()))
        text += f"; the CPU computes {missing} of them in float32, with casts around: {names}; "
        text += "differences are those of a device that rounds each to float16"
    return Check("float16", None, text)


# int8


def _write_int8(
    path: Path,
    job: CompiledJob,
    base: Path,
    calibration: Sequence[Batch],
    options: ModelExport,
    fixed: Sequence[str],
) -> tuple[list[Path], Counts]:
    made = base.with_name("quantized.onnx")
    if options.precision == "int8":
        counts = quantize_statically(
            base, made, calibration, options.method, fixed,
            is_symmetric=any(find_provider(t).is_symmetric for t in job.spec.config.providers()),
        )  # fmt: skip
    else:
        counts = quantize_dynamically(base, made, fixed)
    model, held = load_with_inputs(made, job.model, counts.unquantized)
    return write_predict(path, model, held, weights=options.weights), counts


# What follows


def _verdicts(comparison: Comparison, options: ModelExport) -> list[Check]:
    rows = [_answers_row(comparison, options.max_drop)]
    if comparison.is_slower:
        rows.append(Check("latency", None, _slowness(comparison)))
    wild = [d.name for d in comparison.differences if not np.isfinite(d.max_abs)]
    if wild:
        text = f"{', '.join(wild)}: not finite where float32's is; large values have no room"
        rows.append(Check("finite", False, text))
    if options.tolerance is not None:
        worst = max(comparison.differences, key=lambda d: d.max_abs)
        text = f"{worst.name} differs by at most {worst.max_abs:.3g}, {options.tolerance:g} allowed"
        rows.append(Check("difference", worst.max_abs <= options.tolerance, text))
    return rows


def _slowness(comparison: Comparison) -> str:
    """That the reduced model is slower here, by how much, and what it is then good for."""
    timing, precision = comparison.timing, comparison.precision
    is_smaller = comparison.bytes < comparison.float32_bytes
    saved = "it saves bytes alone" if is_smaller else "and its files are no smaller"
    return (
        f"{precision} is slower than float32 on this CPU, {timing.ms:.3g} ms against "
        f"{timing.float32_ms:.3g} ms for {timing.batch} rows: {saved}, unless the target "
        "computes it faster"
    )


def _answers_row(comparison: Comparison, max_drop: float) -> Check:
    """The row on answers that are lost: by labels, or by how many are another model's."""
    answers, allowed = comparison.answers, f"{max_drop:.2%} allowed"
    if answers is None:
        return Check("accuracy", None, "it chooses no classes; tolerance= limits differences")
    if answers.drop is not None:
        text = (
            f"{answers.accuracy:.2%} against {answers.float32_accuracy:.2%} in float32 on "
            f"{answers.count} answers: a drop of {answers.drop:.2%}, {allowed}"
        )
        return Check("accuracy", answers.drop <= max_drop + 1e-12, text)
    text = f"{answers.agreement:.2%} of {answers.count} answers are those of float32"
    if 1 - answers.agreement <= max_drop + 1e-12:
        return Check("accuracy", True, f"{text}: no drop above {max_drop:.2%}")
    return Check("accuracy", None, f"{text}; with labels= the drop is known ({allowed})")
