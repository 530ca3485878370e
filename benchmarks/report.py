"""Results of a contest as JSON, as tables of text, and as a chart.

    python -m benchmarks.report benchmarks/results/training.json    # the table and chart anew

takes what `benchmarks.training` and `benchmarks.prediction` wrote.
"""

import dataclasses
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flow2onnx_runtime.files import replace_bytes

Rows = list[dict[str, Any]]
_WIDEST = 1000  # columns of a terminal, more than any table has
_FASTER, _SLOWER = "#2a7f62", "#c0392b"


@dataclass(frozen=True)
class Grid:
    """A table: its cells are text."""

    title: str
    header: Sequence[str]
    lines: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """As Markdown; numbers stand to the right."""
        rule = ["---"] + ["---:"] * (len(self.header) - 1)
        rows = (f"| {' | '.join(line)} |" for line in (self.header, rule, *self.lines))
        return f"### {self.title}\n\n" + "\n".join(rows) + "\n"

    def show(self) -> None:
        """On the terminal, with rich where it is installed; as Markdown where it does not fit."""
        try:
            from rich.console import Console
            from rich.measure import Measurement
            from rich.table import Table
        except ModuleNotFoundError:
            print(self.markdown())
            return
        table = Table(title=self.title)
        for i, column in enumerate(self.header):
            table.add_column(column, justify="right" if i else "left")
        for line in self.lines:
            table.add_row(*line)
        console = Console()
        wanted = console.options.update(width=_WIDEST)
        if console.width < Measurement.get(console, wanted, table).maximum:
            print(self.markdown())
        else:
            console.print(table)


def document(contest: Any, machine: dict[str, Any], **more: Any) -> dict[str, Any]:
    """All that is known, for a file of JSON."""
    return {
        "machine": machine,
        "versions": contest.versions,
        **more,
        "rows": [_plain(dataclasses.asdict(row)) for row in contest.rows],
    }


def write(found: dict[str, Any], folder: Path, name: str) -> None:
    """Write a contest between peers: NAME.json, NAME.md and, with matplotlib, NAME.svg."""
    tables = [*ratios(found["rows"]), _details(found["rows"])]
    save(found, folder / f"{name}.json", tables, draw)


def save(
    found: dict[str, Any], path: Path, tables: Sequence[Grid],
    drawn: Callable[[dict[str, Any], Path], None],
) -> None:  # fmt: skip
    """Write the numbers, a page of tables, and a chart where matplotlib is installed."""
    write_numbers(found, path)
    replace_bytes(path.with_suffix(".md"), page(found, tables).encode())
    if importlib.util.find_spec("matplotlib") is None:
        print(f"no chart: matplotlib is not installed; {path.with_suffix('.md')} has the numbers")
        return
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "flow2onnx"  # the same file for the same numbers
    drawn(found, path.with_suffix(".svg"))


def write_numbers(found: dict[str, Any], path: Path) -> None:
    """Write a result as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(found, indent=1, ensure_ascii=False)
    replace_bytes(path, f"{content}\n".encode())


def page(found: dict[str, Any], tables: Sequence[Grid]) -> str:
    """A result as text: machine, versions, what was measured and how, the tables."""
    machine = ", ".join(f"{k} {v}" for k, v in found["machine"].items())
    versions = "; ".join(
        f"{peer}: {', '.join(f'{p} {v}' for p, v in packages.items())}"
        for peer, packages in found["versions"].items()
    )
    head = f"# {found['title']}\n\nMachine: {machine}.\n\nVersions: {versions}.\n\n"
    head += "".join(f"- {name}: {what}\n" for name, what in found["workloads"].items()) + "\n"
    notes = "".join(f"{note}\n\n" for note in found["notes"])
    return head + notes + "\n".join(table.markdown() for table in tables)


def ratios(rows: Rows) -> list[Grid]:
    """A table of ratios for each number of threads."""
    return [_ratios(t, [r for r in rows if r["threads"] == t]) for t in each(rows, "threads")]


def _ratios(threads: int, rows: Rows) -> Grid:
    names, peers = each(rows, "workload"), each(rows, "peer")
    found = {(r["peer"], r["workload"]): r for r in rows}
    ours = [_number(found[peers[0], name]["ms"], "{:.4g} ms") for name in names]
    lines = [[p, *(_ratio(found.get((p, name))) for name in names)] for p in peers[1:]]
    title = f"{threads} thread{'s' * (threads > 1)}: time of the peer / ours"
    return Grid(title, ["", *names], [[peers[0], *ours], *lines])


def _ratio(row: dict[str, Any] | None) -> str:
    if row is None or row["ratio"] is None:
        return "-"
    return f"{row['ratio']:.2f}" + (" (*)" if row["note"].startswith("(*)") else "")


def _details(rows: Rows) -> Grid:
    header = ["workload", "threads", "peer", "ms a step", "quartiles", "busy ms", "ratio",
              "first step s", "import s", "peak MB", ""]  # fmt: skip
    lines = []
    for r in rows:
        low, high = r["quartiles"] or (None, None)
        spread = f"{low:.4g} … {high:.4g}" if low is not None else "-"
        lines.append([
            r["workload"], str(r["threads"]), r["peer"], _number(r["ms"], "{:.4g}"), spread,
            _number(r["busy_ms"], "{:.4g}"), _number(r["ratio"], "{:.3f}"),
            _number(r["first_step_s"], "{:.2f}"), _number(r["import_s"], "{:.2f}"),
            _number(r["peak_mb"], "{:.0f}"), r["note"],
        ])  # fmt: skip
    return Grid("all numbers", header, lines)


def draw(found: dict[str, Any], path: Path) -> None:
    """The best peer of each workload as a bar from 1, where we are as fast; all peers as lines."""
    import matplotlib.pyplot as plt

    rows, threads = found["rows"], each(found["rows"], "threads")
    names = each(rows, "workload")
    figure, axes = plt.subplots(
        1, len(threads), figsize=(6 * len(threads), 1.3 + 0.34 * len(names)), squeeze=False,
        sharey=True, layout="constrained",
    )  # fmt: skip
    for axis, count in zip(axes[0], threads, strict=True):
        _bars(axis, [r for r in rows if r["threads"] == count], names)
        axis.set_title(f"{count} thread{'s' * (count > 1)}", loc="left")
    figure.suptitle(
        f"{found['title']}: time of the best peer / ours, above 1 we are faster; a line is a peer"
    )
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _bars(axis: Any, rows: Rows, names: Sequence[str]) -> None:
    ours = each(rows, "peer")[:1]
    for place, name in enumerate(names):
        others = [r for r in rows if r["workload"] == name and r["ratio"] and not _is_own(r, ours)]
        if not others:
            continue
        best = min(others, key=lambda r: float(r["ratio"]))
        color = _FASTER if best["ratio"] >= 1 else _SLOWER
        axis.barh(place, best["ratio"] - 1, 0.6, 1, color=color)
        every = [r["ratio"] for r in others]
        axis.plot(every, [place] * len(every), "|", color="0.6", markersize=9, zorder=0)
        axis.text(1.01, place, f"{best['ratio']:.2f}  {best['peer']}", va="center",
                  fontsize="small", transform=axis.get_yaxis_transform())  # fmt: skip
    axis.axvline(1, color="black", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.spines[["top", "right"]].set_visible(False)


def _is_own(row: dict[str, Any], ours: Sequence[str]) -> bool:
    """True for what is ours: the first, and what runs with standard operators alone."""
    return row["peer"] in (*ours, "flow2onnx")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def each(rows: Rows, key: str) -> list[Any]:
    """The values of a column, each once, in the order of the rows."""
    return list(dict.fromkeys(r[key] for r in rows))


def _plain(value: Any) -> Any:
    """Numbers shortened to what they are worth."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        found = json.loads(path.read_text(encoding="utf-8"))
        write(found, path.parent, path.stem)


if __name__ == "__main__":
    main()
