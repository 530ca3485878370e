"""A verification report and the files it is about, for people."""

from collections.abc import Iterable
from pathlib import Path

from rich.text import Text

from flow2onnx.cli.show import Cell, note, print_table, shape_text, size_text
from flow2onnx.export import Comparison, Report

__all__ = ["print_files", "print_report"]

_MARKS = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("-", "dim")}


def print_report(report: Report, *, details: bool) -> None:
    """Print the verdict in one line, after what failed or could not be checked.

    With `details` all checks and outputs stand before it as tables.
    """
    if details:
        _print_details(report)
    else:
        for row in report.rows:
            if row.ok is not True:
                note(f"{_MARKS[row.ok][0]} {row.check}: {row.detail}", _MARKS[row.ok][1])
        for output in report.outputs:
            if not output.ok:
                text = f"FAIL {output.name} differs by {output.max_abs:.1e} from the reference"
                note(text, _MARKS[False][1])
    if report.comparison is not None:
        _print_comparison(report.comparison, details)
    note(report.summary(), "bold green" if report.ok else "bold red")


def _print_details(report: Report) -> None:
    rows = [r for r in report.rows if r.check != "written"]
    print_table(("", "check", "result"), [(_mark(r.ok), r.check, r.detail) for r in rows])
    if report.outputs:
        note("")
        print_table(
            ("", "output", "type", "shape", "max abs", "max rel"),
            [(_mark(o.ok), o.name, o.dtype, shape_text(o.shape), f"{o.max_abs:.1e}",
              f"{o.max_rel:.1e}") for o in report.outputs],
            right=("max abs", "max rel"),
        )  # fmt: skip
    note("")


def _print_comparison(comparison: Comparison, details: bool) -> None:
    """Print what the precision costs and saves, and how far outputs are from float32's."""
    print_table(("", comparison.precision, "float32"), comparison.table())
    note(f"\non {comparison.data}" + (":" if details else f", {comparison.worst()}\n"))
    if not details:
        return
    print_table(
        ("output", "max abs", "max rel", "mean"),
        [(d.name, f"{d.max_abs:.1e}", f"{d.max_rel:.1e}", f"{d.mean_abs:.1e}")
         for d in comparison.differences],
        right=("max abs", "max rel", "mean"),
    )  # fmt: skip
    note("")


def print_files(paths: Iterable[Path]) -> None:
    """Files with their sizes."""
    files = sorted(paths)
    rows: list[tuple[Cell, ...]] = [(str(f), size_text(f.stat().st_size)) for f in files]
    print_table(("file", "size"), rows, right=("size",))


def _mark(ok: bool | None) -> Text:
    return Text(*_MARKS[ok])
