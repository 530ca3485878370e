"""The command line that the tables have in common: rows, threads, and where the files go."""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks import instruction_sets
from benchmarks.contest import MKL, QUICK, Contest, Contestant, Pace, Row, Setting
from benchmarks.record import Record
from benchmarks.report import ratios, write

RESULTS = Path(__file__).parent / "results"
COMMON_NOTES = (
    "Times are medians over blocks of steps that the peers, each a process of its own, ran in "
    "turn, with the quartiles beside them. Ratios are the time of the peer divided by ours, the "
    "median over pairs of blocks of one turn: above 1 we are faster. Every process is confined to "
    "as many processors as threads.",
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
    name = "_".join(filter(None, (program.name, args.isa)))
    record = _record(program, args, name)
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
        write(found, args.out, name)
    for grid in ratios(found["rows"]):
        grid.show()


def _record(program: Program, args: argparse.Namespace, name: str) -> Record:
    title = instruction_sets.title_with_cap(program.title, args.isa)
    title += ", a rehearsal of few short blocks" * args.quick
    return Record(
        args.out / f"{name}.json", title, program.table,
        (*program.notes, *instruction_sets.note(args.isa)), adds=args.add,
        instruction_set=args.isa or "the processor's",
    )  # fmt: skip


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
