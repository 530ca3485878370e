"""Curves of several runs: one picture, or lines of a terminal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from flow2onnx_runtime import History
from flow2onnx_runtime.curves import (
    VALIDATION,
    curve_names,
    curve_picture,
    finite_points,
    merge_validation,
)
from flow2onnx_runtime.files import replace_bytes
from flow2onnx_runtime.view.texts import clean

from flow2onnx.errors import ArgumentError, spelling_hint

__all__ = ["choose_curves", "draw_curves", "text_curves"]

Runs = Mapping[str, History]
Points = list[tuple[float, float]]

_MARKS = "●○◆◇■□▲△"
_WIDTH, _HEIGHT = 64, 12  # characters


def choose_curves(runs: Runs, wanted: Sequence[str]) -> list[str]:
    """The curves that are drawn, each with that of validation beside it: all, or those named."""
    known = curve_names(name for run in runs.values() for name in run.columns)
    for name in wanted:
        if name not in known:
            there = f"there are {', '.join(known) or 'none'}"
            raise ArgumentError(
                f"no run has a curve {name}", hint=spelling_hint(name, known, there)
            )
    return merge_validation(list(wanted) or known)


def _along(runs: Runs, over: str | None) -> str:
    """The column that all runs have to go along."""
    columns = [set(run.columns) for run in runs.values()]
    shared = [n for n in ("epoch", "step") if all(n in c for c in columns)]
    if over is None and shared:
        return shared[0]
    if over is None or not all(over in c for c in columns):
        raise ArgumentError(
            f"not every run has the column {over or 'epoch or step'}",
            hint=f"those of all are {', '.join(sorted(set.intersection(*columns))) or 'none'}",
        )
    return over


def draw_curves(path: Path, runs: Runs, names: Sequence[str], over: str | None = None) -> None:
    """Draw to a picture (.png, .svg, .pdf): an axis for each curve, a colour for each run.

    Validation is dashed.
    """
    ending = path.suffix[1:].lower()
    if ending not in ("png", "svg", "pdf"):
        raise ArgumentError(f"{path} is no .png, .svg or .pdf", hint="name the picture so")
    replace_bytes(path, curve_picture(runs, names, _along(runs, over), ending))


def text_curves(runs: Runs, names: Sequence[str], over: str | None = None) -> list[str]:
    """Lines of text: each curve as a grid, a mark for each run, its last number beside its name."""
    axis, lines = _along(runs, over), list[str]()
    for name in names:
        shown: list[tuple[str, str, Points]] = []
        for title, run in runs.items():
            for column in (name, f"{VALIDATION}{name}"):
                points = finite_points(run, axis, column)
                if points:
                    mark = _MARKS[len(shown) % len(_MARKS)]
                    held = ", validation" if column != name else ""
                    shown.append((mark, f"{clean(title)}{held}", points))
        if shown:
            lines += [clean(name), *_grid([(mark, points) for mark, _, points in shown], axis)]
            lines += [f"  {mark} {title}: {points[-1][1]:.4g}" for mark, title, points in shown]
            lines.append("")
    return lines


def _grid(curves: Sequence[tuple[str, Points]], axis: str) -> list[str]:
    every = [p for _, points in curves for p in points]
    (left, right), (low, high) = ((min(v), max(v)) for v in zip(*every, strict=True))
    cells = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for mark, points in curves:
        for x, y in points:
            column = round((x - left) / (right - left or 1) * (_WIDTH - 1))
            row = round((y - low) / (high - low or 1) * (_HEIGHT - 1))
            cells[_HEIGHT - 1 - row][column] = mark
    labels = [f"{high:.4g}", *[""] * (_HEIGHT - 2), f"{low:.4g}"]
    rows = [
        f"{label:>10} │{''.join(row)}".rstrip() for label, row in zip(labels, cells, strict=True)
    ]
    ends = f"{left:g}{f'{right:g}':>{_WIDTH - len(f'{left:g}')}}"
    return [*rows, f"{'':>10} └{'─' * _WIDTH}", f"{axis:>10}  {ends}"]
