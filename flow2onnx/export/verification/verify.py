"""verify_model: one call that checks a model file or a bundle."""

import os
from pathlib import Path

from flow2onnx_runtime import Options
from flow2onnx_runtime.providers import CPU

from flow2onnx.errors import ArgumentError
from flow2onnx.export.report import Report
from flow2onnx.export.verification.bundle import verify_bundle
from flow2onnx.export.verification.model import Settings, verify_file

__all__ = ["verify_model"]


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
    ONNX reference evaluator (with `reference_fixes`), which must agree within
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
    settings = Settings(Options(providers=(provider,), log_level="fatal"), rtol, atol, seed, full)
    _check_tolerances(rtol, atol)
    target = Path(path)
    if target.is_dir():
        return verify_bundle(target, settings)
    rows, outputs = verify_file(target, settings, {})
    return Report(str(target), tuple(rows), tuple(outputs))


def _check_tolerances(*tolerances: object) -> None:
    for value in tolerances:
        if value is not None and not (isinstance(value, int | float) and value >= 0):
            raise ArgumentError(f"tolerance {value!r}", hint="give a number of at least 0, or None")
