"""The command line that the tables have in common: rows, threads, and where the files go."""

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks import instruction_sets
from benchmarks.contest import MKL, QUICK, Contest, Contestant, Pace, Row, Setting, machine
from benchmarks.report import document, ratios, write

RESULTS = Path(__file__).parent / "results"
COMMON_NOTES = (
    "Ratios are the time of the peer divided by ours: above 1 we are faster. Times are medians "
    "over blocks of steps that the peers, each a process of its own, ran in turn, with the "
    "quartiles beside them. Every process is confined to as many processors as threads.",
    '"busy" is the time of processors that a step took: with one thread as much as its time by '
    "the clock, unless other programs took the processor meanwhile, and then the numbers are "
    "worth little.",
    MKL,
)


class Contestants(Protocol):
    """Who takes part in a row; what they need is made in `folder`. The first is ours."""

    def __call__(self, row: str, folder: str, *, takes_all: bool) -> Iterator[Contestant]: ...


@dataclass(frozen=True)
class Program:
    """A table: its name, its rows as in `workloads`, and its peers.

    The worker's task is the name, unless another is given.
    """

    name: str
    title: str
    table: dict[str, tuple[str, str]]
    notes: tuple[str, ...]
    contestants: Contestants
    task: str = ""


def main(program: Program, about: str) -> None:
    """Measure the table, write it after each row and show its ratios."""
    args = _arguments(program, about)
    record = _Record(program, args)
    contest = Contest(QUICK if args.quick else Pace())
    for row in args.rows:
        with tempfile.TemporaryDirectory() as folder:
            first, *others = program.contestants(row, folder, takes_all=args.all)
            chosen = [w for w in others if any(part in w.label for part in args.peers)]
            for threads in args.threads:
                setting = Setting(program.task or program.name, program.table[row][1], threads,
                                  isa=args.isa)  # fmt: skip
                _tell(contest.measure(row, setting, [first, *chosen]))
        found = record.merged_document(contest)
        write(found, args.out, record.name)
    for grid in ratios(found["rows"]):
        grid.show()


class _Record:
    """The numbers that a file of results has already, beside those that are measured now."""

    def __init__(self, program: Program, args: argparse.Namespace) -> None:
        self._program, self._isa = program, args.isa
        title = instruction_sets.capped(program.title, args.isa)
        self._title = title + (", a rehearsal of few short blocks" if args.quick else "")
        self.name = "_".join(filter(None, (program.name, args.isa)))
        self._rows: list[dict[str, Any]] = []
        self._versions: dict[str, dict[str, str]] = {}
        path = args.out / f"{self.name}.json"
        if args.add and path.exists():
            self._read(path, json.loads(path.read_text(encoding="utf-8")))

    def _read(self, path: Path, found: dict[str, Any]) -> None:
        for what, wanted in (("machine", machine()), ("title", self._title)):
            if found[what] != wanted:
                raise SystemExit(
                    f"{path} has the {what} {found[what]}, not {wanted}: nothing can be added; "
                    "leave out --add, or name another folder by --out"
                )
        self._rows, self._versions = found["rows"], found["versions"]

    def merged_document(self, contest: Contest) -> dict[str, Any]:
        """The document of both, in the order of the table."""
        found = document(
            contest, machine(), title=self._title, instruction_set=self._isa or "the processor's",
            notes=(*self._program.notes, *instruction_sets.note(self._isa)),
        )  # fmt: skip
        for peer, versions in found["versions"].items():
            if self._versions.get(peer, versions) != versions:
                raise SystemExit(
                    f"{peer} was {self._versions[peer]} in the rows that are there, and is "
                    f"{versions} now: measure them all again, without --add"
                )
        measured = {(r["workload"], r["threads"]) for r in found["rows"]}
        kept = [r for r in self._rows if (r["workload"], r["threads"]) not in measured]
        table = self._program.table
        order = {name: i for i, name in enumerate(table)}
        rows = sorted(kept + found["rows"], key=lambda r: (order[r["workload"]], r["threads"]))
        names = dict.fromkeys(r["workload"] for r in rows)
        return found | {
            "versions": self._versions | found["versions"],
            "workloads": {name: table[name][0] for name in names},
            "rows": rows,
        }


def _tell(rows: list[Row]) -> None:
    for row in rows:
        ratio = f"{row.ratio:.2f} ({row.ms:.4g} ms, {row.busy_ms:.4g} busy)" if row.ratio else ""
        print(f"{row.workload}, {row.threads} thread(s): {row.peer} {ratio} {row.note}", flush=True)


def _arguments(program: Program, about: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=_words, default=list(program.table),
                        help=f"of {', '.join(program.table)}")  # fmt: skip
    parser.add_argument("--threads", type=lambda t: [int(n) for n in _words(t)], default=[1, 2])
    parser.add_argument("--peers", type=_words, default=[""],
                        help="only those with one of these in their names")  # fmt: skip
    parser.add_argument("--isa", choices=instruction_sets.SETS, default="",
                        help="cap the instructions of all peers that have a switch")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--all", action="store_true", help="slow peers in all rows too")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--add", action="store_true",
                        help="to the rows that the file there has, of this machine")  # fmt: skip
    args = parser.parse_args()
    unknown = [row for row in args.rows if row not in program.table]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(program.table)}")
    return args


def _words(text: str) -> list[str]:
    return text.split(",")
