"""Comparison: a reduced export beside the float32 one: differences, answers, bytes, time."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flow2onnx_runtime import Options, Predictor
from flow2onnx_runtime.dtypes import Array

from flow2onnx.errors import ArgumentError
from flow2onnx.export.calibration import Batch
from flow2onnx.export.report import Answers, Comparison, Difference, Left, Timing
from flow2onnx.export.verification.differences import distances

__all__ = ["Counts", "compare"]

_SMALL = 1e-4  # below it, a relative difference says nothing
_BLOCKS = 7
_BLOCK_SECONDS = 0.1


@dataclass(frozen=True)
class Counts:
    """The outcome for the operators: reduced, by operator; left in float32, with the reason.

    `unquantized` nodes, by name, are those left in float32 on purpose.
    """

    reduced: Mapping[str, int]
    left: Mapping[tuple[str, str], int]
    unquantized: frozenset[str] = frozenset()


def compare(
    precision: str,
    reduced: Sequence[Path],
    full: Sequence[Path],
    batches: Sequence[Batch],
    data: str,
    labels: object,
    counts: Counts,
    exact: Path | None = None,
) -> Comparison:
    """Run both models, the first of their files, on the same batches, and time them in turn.

    `exact` is a model to take the results from in place of the reduced one's, which is timed.
    """
    # one thread each: idle threads of the one would be in the way of the other
    ours, theirs = (Predictor(p[0], Options(intra_op_threads=1)) for p in (reduced, full))
    measured = ours if exact is None else Predictor(exact, Options(optimization="disable"))
    found = [(_run(measured, b), _run(theirs, b), b) for b in batches]
    rows = sum(b.rows for b in batches)
    names = [r.name for r in theirs.results]
    return Comparison(
        precision=precision,
        data=f"{rows} rows of {data}",
        differences=tuple(_difference(n, found) for n in names),
        answers=_answers(names[0], found, labels),
        bytes=_bytes(reduced),
        float32_bytes=_bytes(full),
        timing=_time_both(ours, theirs, batches[0]),
        reduced=dict(sorted(counts.reduced.items())),
        left=tuple(Left(op, n, why) for (op, why), n in sorted(counts.left.items())),
    )


def _bytes(paths: Sequence[Path]) -> int:
    return sum(p.stat().st_size for p in paths)


def _fitting(predictor: Predictor, batch: Batch) -> dict[str, Array]:
    """The feeds in the model's element types: float16 inputs take what float32 ones do."""
    types = {f.name: f.dtype for f in predictor.feeds}
    return {n: a.astype(types[n]) if a.dtype.kind == "f" else a for n, a in batch.feeds.items()}


def _run(predictor: Predictor, batch: Batch) -> dict[str, Array]:
    return predictor(**_fitting(predictor, batch))


Pairs = Sequence[tuple[Mapping[str, Array], Mapping[str, Array], Batch]]


def _pairs(name: str, found: Pairs) -> list[tuple[Array, Array]]:
    """The values of one output in both models, without the rows that fill batches up."""
    return [(_meant_rows(ours[name], b), _meant_rows(theirs[name], b)) for ours, theirs, b in found]


def _meant_rows(value: Array, batch: Batch) -> Array:
    whole = len(next(iter(batch.feeds.values()))) if batch.rows else 0
    return value[: batch.rows] if value.ndim and len(value) == whole else value


def _difference(name: str, found: Pairs) -> Difference:
    most = relative = total = 0.0
    count = 0
    for ours, theirs in _pairs(name, found):
        apart, shares = distances(ours, theirs, _SMALL)
        most = max(most, float(apart.max(initial=0.0)))
        relative = max(relative, float(shares.max(initial=0.0)))
        total, count = total + float(apart.sum()), count + apart.size
    return Difference(name, most, relative, total / max(count, 1))


def _answers(name: str, found: Pairs, labels: object) -> Answers | None:
    """The classes that both models choose, where the first output chooses any."""
    pairs = [(_classes(x), _classes(y)) for x, y in _pairs(name, found)]
    if any(x is None or y is None for x, y in pairs):
        if labels is not None:
            raise ArgumentError(
                f"labels are for models that choose classes; {name} has no axis of them",
                hint="leave labels out; tolerance= limits the difference",
            )
        return None
    ours, theirs = (np.concatenate([p[i].ravel() for p in pairs]) for i in (0, 1))  # type: ignore[union-attr]  # none is None
    agreement = float(np.mean(ours == theirs))
    if labels is None:
        return Answers(len(ours), agreement)
    truth = _read_labels(labels, len(ours))
    return Answers(
        len(ours), agreement, float(np.mean(ours == truth)), float(np.mean(theirs == truth))
    )


def _classes(value: Array) -> Array | None:
    """The class for each row: the largest of the last axis, or the whole number that is there."""
    if value.dtype.kind in "iu" and value.ndim == 1:
        return value
    if value.dtype.kind != "f" or value.ndim < 2 or value.shape[-1] < 2:
        return None
    return np.asarray(value.argmax(-1))


def _read_labels(labels: object, count: int) -> Array:
    truth = np.asarray(labels)
    if truth.dtype.kind not in "iu":
        raise ArgumentError(
            f"labels are {truth.dtype}", hint="give the number of its class for each row"
        )
    if truth.size != count:
        raise ArgumentError(
            f"{truth.size} labels for {count} answers on the samples",
            hint="one label for each row of samples, in their order",
        )
    return truth.ravel()


def _time_both(ours: Predictor, theirs: Predictor, batch: Batch) -> Timing:
    """Milliseconds of one run, in the middle of runs of both in alternating blocks."""
    feeds = [(p, _fitting(p, batch)) for p in (ours, theirs)]
    once = max(_seconds(p, f, 1)[0] for p, f in feeds)
    runs = int(np.clip(_BLOCK_SECONDS / max(once, 1e-6), 1, 50))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(_BLOCKS):
        for kept, (predictor, arrays) in zip(times, feeds, strict=True):
            kept += _seconds(predictor, arrays, runs)
    middle = [float(np.median(kept)) * 1e3 for kept in times]
    return Timing(len(next(iter(batch.feeds.values()), ())), _BLOCKS * runs, *middle)


def _seconds(predictor: Predictor, arrays: Mapping[str, Array], runs: int) -> list[float]:
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        predictor(**arrays)
        found.append(time.perf_counter() - start)
    return found
