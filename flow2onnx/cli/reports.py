"""A verification report and the files it is about, for people."""

from collections.abc import Iterable
from pathlib import Path

from rich.text import Text

from flow2onnx.cli.show import Cell, note, print_table, shape_text, size_text
from flow2onnx.export import Comparison, Report

__all__ = ["print_files", "print_report"]

_MARKS = {True: ("ok", "green"), False: ("FAIL", "bold red"), None: ("-", "dim")}


def print_report(report: Report) -> None:
    """Print the checks, how far the outputs differ, and the verdict."""
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
    if report.comparison is not None:
        _print_comparison(report.comparison)
    verdict, style = ("passed", "bold green") if report.ok else ("FAILED verification", "bold red")
    note(f"\n{report.subject}: {verdict}", style)


def _print_comparison(comparison: Comparison) -> None:
    """Print what the precision costs and saves, and how far each output is from float32's."""
    note("")
    print_table(("", comparison.precision, "float32"), comparison.table())
    note(f"\non {comparison.data}:")
    print_table(
        ("output", "max abs", "max rel", "mean"),
        [(d.name, f"{d.max_abs:.1e}", f"{d.max_rel:.1e}", f"{d.mean_abs:.1e}")
         for d in comparison.differences],
        right=("max abs", "max rel", "mean"),
    )  # fmt: skip


def print_files(paths: Iterable[Path]) -> None:
    """Files with their sizes."""
    files = sorted(paths)
    rows: list[tuple[Cell, ...]] = [(str(f), size_text(f.stat().st_size)) for f in files]
    print_table(("file", "size"), rows, right=("size",))


def _mark(ok: bool | None) -> Text:
    return Text(*_MARKS[ok])
