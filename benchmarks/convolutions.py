"""400 shapes of convolutions in three passes beside torch, whose convolutions are oneDNN's.

    python -m benchmarks.convolutions [--threads 1,2] [--only "1-D,depthwise"] [--every N] [--quick]
                                      [--seed N] [--isa avx2] [--resume] [--out DIR]

writes convolutions.json, convolutions.md and convolutions.svg. The shapes are layers of published
networks on batches of 1 to 32, drawn by a fixed seed (`convolution_shapes.py`), 25 of each class;
another `--seed` draws others.
Each side is one process, confined to as many processors as threads; they run blocks of a pass in
turn. A pass is timed only if both results are equal. It takes 15 to 25 minutes on two cores;
`--every 10` measures each tenth shape of a class, `--quick` the same in fewer blocks.

What is measured is written after each pass to convolutions.unfinished.json, from which `--resume`
goes on after an interruption. A process that ends or gives no answer costs that pass alone.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from flow2onnx_runtime.files import replace_bytes

from benchmarks import instruction_sets
from benchmarks.contest import (
    MKL,
    Contestant,
    disagreement,
    environment_of,
    intel_library,
    machine,
)
from benchmarks.convolution_shapes import CLASSES, SEED, Convolution, draw_shapes
from benchmarks.convolution_worker import PASSES
from benchmarks.driver import RESULTS
from benchmarks.environments import interpreter
from benchmarks.report import Grid, save
from benchmarks.worker_process import PeerError, WorkerProcess

BAR, LEAST = 1.0, 0.8  # what nearly all shapes should reach, and what all should
PATIENCE = 120.0  # seconds that a process may take for a pass
WORKER = "benchmarks.convolution_worker"
SIDES = (("flow2onnx", "flow2onnx:native"), ("torch", "torch"))  # names, and their environments
TOLERANCE = 1e-4  # of the mean size of the elements, or of the element
_COLORS = {"forward": "#0072b2", "input gradient": "#e69f00", "weight gradient": "#009e73"}
NOTES = (
    "Ratios are the time of torch divided by ours: above 1 we are faster. Times are medians over "
    "blocks that the two processes ran in turn, each confined to as many processors as threads, "
    "and stopped while the other ran; of two rounds through all passes, each by new processes, the "
    "lesser for each side. Results are made anew in every pass, on both sides.",
    "Ours is the graph of one pass as a train job has it, after all passes and with native "
    "operators; torch's is its function of that pass, without the walk of autograd. Both had equal "
    "results first: 61 elements and the mean size, to 1e-4.",
    "A layer is written as images x channels > channels @ size, k kernel, s stride, d dilation, "
    "p padding, o output padding, g groups, t transposed.",
    MKL + " Here torch is asked with that library, where it can be made.",
)


@dataclass(frozen=True)
class Pace:
    """How long is measured: a block's seconds, how many blocks, and rounds through all passes."""

    block_s: float = 0.02
    blocks: int = 3
    rounds: int = 2


QUICK = Pace(0.01, 3, 1)


@dataclass(frozen=True)
class Row:
    """One pass of one shape; times are in milliseconds, ours first, `busy` those of processors.

    They are the least of so many rounds.
    """

    kind: str
    net: str
    shape: str
    which: str
    threads: int
    ms: tuple[float, float] | None = None
    busy_ms: tuple[float, float] | None = None
    ratio: float | None = None
    busy_ratio: float | None = None
    how: str = ""
    note: str = ""
    rounds: int = 1

    def least(self, other: "Row") -> "Row":
        """This row and another of the same pass, of one round, as one; one is timed, or none."""
        rounds = self.rounds + other.rounds
        if self.ms is None or other.ms is None:
            return replace(other if self.ms is None else self, rounds=rounds)
        mine, others = (list(zip(r.ms or (), r.busy_ms or (), strict=True)) for r in (self, other))
        return _with_times(replace(self, rounds=rounds), *map(min, mine, others))


class Side:
    """The process of one side, which is stopped but in its turns."""

    def __init__(self, name: str, peer: str, threads: int, folder: str, isa: str = "") -> None:
        python = interpreter(peer)
        if python is None:
            raise PeerError(f"{name} is not installed: python -m benchmarks.environments {peer}")
        one = Contestant(name, peer, is_intel=name == "torch" and intel_library() is not None)
        command = [python, "-m", WORKER, name, "--threads", str(threads), "--offset", "0"]
        self._worker = WorkerProcess(
            command, environment_of(one, folder, isa), name=name, patience=PATIENCE
        )
        try:
            self.versions: dict[str, str] = self._worker.record()["versions"]
        except BaseException:
            self.close()
            raise
        self._worker.signal("SIGSTOP")

    def prepare(self, shape: Convolution, which: str) -> dict[str, Any]:
        """The answer about a pass, which is the one that runs from now on."""
        self._worker.signal("SIGCONT")
        self._worker.tell(json.dumps({"convolution": shape.record(), "pass": which}))
        found = self._worker.record()
        self._worker.signal("SIGSTOP")
        return found

    def run(self, count: int) -> tuple[float, float]:
        """The seconds of so many passes by the clock, and of processors."""
        self._worker.signal("SIGCONT")
        self._worker.tell(f"run {count}")
        wall, busy = self._worker.numbers(2)
        self._worker.signal("SIGSTOP")
        return wall, busy

    def close(self) -> None:
        """End the process."""
        self._worker.close()


class Sides:
    """Both processes, started when they are needed; none is open at first."""

    def __init__(self, threads: int, folder: str, isa: str = "") -> None:
        self._threads, self._folder, self._isa = threads, folder, isa
        self._open: list[Side] = []

    def versions(self) -> dict[str, dict[str, str]]:
        """The versions of what each side runs."""
        return {name: side.versions for (name, _), side in zip(SIDES, self._ready(), strict=True)}

    def measure(self, shape: Convolution, which: str, pace: Pace) -> Row:
        """The row of one pass. Where a process failed, it says so, and both are started anew."""
        sides = self._ready()
        try:
            return measure_pass(sides, shape, which, self._threads, pace)
        except PeerError as error:
            self.close()
            return Row(shape.kind, shape.net, shape.text, which, self._threads, note=str(error))

    def close(self) -> None:
        """End both processes."""
        while self._open:
            self._open.pop().close()

    def _ready(self) -> list[Side]:
        for name, peer in SIDES[len(self._open) :]:
            self._open.append(Side(name, peer, self._threads, self._folder, self._isa))
        return self._open


def measure_pass(
    sides: Sequence[Side], shape: Convolution, which: str, threads: int, pace: Pace
) -> Row:
    """The row of one pass."""
    about = (shape.kind, shape.net, shape.text, which, threads)
    facts = [side.prepare(shape, which) for side in sides]
    errors = [f"{n}: {f['error']}" for n, f in zip(("ours", "torch"), facts, strict=True)
              if "error" in f]  # fmt: skip
    if errors:
        return Row(*about, note="; ".join(errors))
    how, (ours, theirs) = facts[0]["how"], (f["sample"] for f in facts)
    if disagreement(theirs, ours, TOLERANCE):
        return Row(*about, how=how, note="not timed: results differ")
    return _with_times(Row(*about, how=how), *_blocks(sides, pace))


def _with_times(row: Row, ours: tuple[float, float], theirs: tuple[float, float]) -> Row:
    """A row with milliseconds by the clock and of processors, and their ratios."""
    (ms, busy), (their_ms, their_busy) = ours, theirs
    return replace(
        row, ms=(ms, their_ms), busy_ms=(busy, their_busy), ratio=their_ms / ms,
        busy_ratio=their_busy / max(busy, 1e-6),
    )  # fmt: skip


def _blocks(sides: Sequence[Side], pace: Pace) -> list[tuple[float, float]]:
    """For each side the medians of a pass's milliseconds by the clock, and of processors."""
    counts = [_count(side, pace) for side in sides]
    walls: list[list[float]] = [[] for _ in sides]
    busy: list[list[float]] = [[] for _ in sides]
    for _ in range(pace.blocks):
        for i, side in enumerate(sides):  # in turn: who runs twice in a row finds its caches warm
            wall, used = side.run(counts[i])
            walls[i].append(1000 * wall / counts[i])
            busy[i].append(1000 * used / counts[i])
    return [(statistics.median(w), statistics.median(b)) for w, b in zip(walls, busy, strict=True)]


def _count(side: Side, pace: Pace) -> int:
    """How many passes make a block."""
    side.run(1)
    return max(1, round(pace.block_s / max(side.run(1)[0], 1e-6)))


class UnfinishedSweep:
    """The rows of a sweep so far, and the file that has them; `about` says which sweep it is."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self._about = path, about
        self.versions: dict[str, Any] = {}
        self._rows: dict[tuple[int, str, str], dict[str, Any]] = {}

    def read(self) -> None:
        """Take what the file has, if there is one; it must be of the same sweep."""
        if not self.path.exists():
            return
        try:
            found = json.loads(self.path.read_text(encoding="utf-8"))
            about, self.versions = found["about"], found["versions"]
            self._rows = {(r["threads"], r["shape"], r["which"]): r for r in found["rows"]}
        except (ValueError, KeyError, TypeError) as error:
            raise PeerError(f"{self.path} is no record of a sweep: {error!r}") from None
        self._expect("another sweep", about, self._about)

    def use(self, versions: dict[str, Any]) -> None:
        """Note versions, which must be those of the rows that are there."""
        if self._rows:
            self._expect("other versions", self.versions, versions)
        self.versions = versions

    def add(self, row: Row) -> None:
        """Write the file with this row too, whole or not at all."""
        self._rows[row.threads, row.shape, row.which] = _plain(row)
        found = {"about": self._about, "versions": self.versions, "rows": [*self._rows.values()]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace_bytes(self.path, json.dumps(found).encode())

    def rounds(self, threads: int, shape: Convolution, which: str) -> int:
        """How often this pass has been measured."""
        found = self._rows.get((threads, shape.text, which))
        return int(found["rounds"]) if found else 0

    def row(self, threads: int, shape: Convolution, which: str) -> Row:
        """The row of a pass that has been measured."""
        found: dict[str, Any] = self._rows[threads, shape.text, which]
        return Row(**found | {k: tuple(v) for k, v in found.items() if isinstance(v, list)})

    def _expect(self, what: str, found: Any, wanted: Any) -> None:
        if found != wanted:
            raise PeerError(
                f"{self.path} is of {what}: {found}, not {wanted}; go on as it was begun, or "
                "without --resume"
            )


def summary(rows: Sequence[Row], threads: int) -> Grid:
    """For each class how many passes are at least as fast, the median and the worst."""
    lines = [_line(kind, [r for r in rows if r.kind == kind]) for kind in CLASSES]
    lines += [_line(f"**{which}**", [r for r in rows if r.which == which]) for which in PASSES]
    lines.append(_line("**all**", rows))
    header = ["", "passes", f"at least {BAR:g}", f"at least {LEAST:g}", "median", "worst", "which"]
    title = f"{threads} thread{'s' * (threads > 1)}: time of torch / ours"
    return Grid(title, header, [line for line in lines if line])


def _line(name: str, rows: Sequence[Row]) -> list[str]:
    timed = [(r.ratio, r) for r in rows if r.ratio is not None]
    if not timed:
        return []
    ratios = [ratio for ratio, _ in timed]
    least, worst = min(timed, key=lambda pair: pair[0])
    shares = (sum(r >= bar for r in ratios) / len(ratios) for bar in (BAR, LEAST))
    return [
        name, str(len(ratios)), *(f"{share:.0%}" for share in shares),
        f"{statistics.median(ratios):.2f}", f"{least:.2f}", f"{worst.shape} {worst.which}",
    ]  # fmt: skip


def details(rows: Sequence[Row]) -> Grid:
    """All that are slower, and all that could not be timed."""
    chosen = [r for r in rows if r.ratio is None or r.ratio < BAR]
    header = ["shape", "class", "network", "pass", "threads", "ours ms", "torch ms", "ratio", "by"]
    lines = [
        [r.shape, r.kind, r.net, r.which, str(r.threads),
         *(f"{ms:.4g}" for ms in r.ms or ()), *(["-", "-"] if r.ms is None else []),
         "-" if r.ratio is None else f"{r.ratio:.2f}", r.note or r.how]
        for r in sorted(chosen, key=lambda r: r.ratio or 0.0)
    ]  # fmt: skip
    return Grid("passes that are slower than torch's, the slowest first", header, lines)


def draw(found: dict[str, Any], path: Path) -> None:
    """A strip for each class with its ratios in order; the line at 1 is torch."""
    import matplotlib.pyplot as plt

    rows = [r for r in found["rows"] if r["ratio"]]
    threads = sorted({r["threads"] for r in rows})
    kinds = [k for k in CLASSES if any(r["kind"] == k for r in rows)]
    figure, axes = plt.subplots(
        1, len(threads), figsize=(6.4 * len(threads), 0.46 * len(kinds) + 1.6), squeeze=False,
        sharey=True, layout="constrained",
    )  # fmt: skip
    for axis, count in zip(axes[0], threads, strict=True):
        _strips(axis, [r for r in rows if r["threads"] == count], kinds)
        of_all = [r["ratio"] for r in rows if r["threads"] == count]
        share = sum(r >= BAR for r in of_all) / len(of_all)
        axis.set_title(
            f"{count} thread{'s' * (count > 1)}: {share:.0%} of {len(of_all)} passes at least as "
            f"fast, worst {min(of_all):.2f}", loc="left", fontsize="medium",
        )  # fmt: skip
    axes[0, 0].set_yticks(range(len(kinds)), kinds)
    axes[0, 0].invert_yaxis()
    axes[0, 0].legend(loc="lower right", fontsize="small", frameon=False)
    title = f"{found['title']}\ntime of torch / ours: right of 1 we are faster"
    figure.suptitle(title, fontsize="medium")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _strips(axis: Any, rows: Sequence[dict[str, Any]], kinds: Sequence[str]) -> None:
    axis.axvspan(0.01, BAR, color="#d55e00", alpha=0.12, linewidth=0)
    axis.axvline(BAR, color="black", linewidth=0.8)
    places: dict[str, tuple[list[float], list[float]]] = {which: ([], []) for which in PASSES}
    for at, kind in enumerate(kinds):
        ranked = sorted((r for r in rows if r["kind"] == kind), key=lambda r: r["ratio"])
        for i, row in enumerate(ranked):
            x, y = places[row["which"]]
            x.append(row["ratio"])
            y.append(at + 0.35 - 0.7 * i / max(len(ranked) - 1, 1))
        share = sum(r["ratio"] >= BAR for r in ranked) / max(len(ranked), 1)
        axis.annotate(f"{share:.0%}", (1.01, at), xycoords=("axes fraction", "data"), va="center",
                      fontsize="small")  # fmt: skip
    for which, (x, y) in places.items():
        axis.scatter(x, y, s=8, color=_COLORS[which], label=which, linewidths=0)
    ratios = [r["ratio"] for r in rows]
    axis.set_xscale("log", base=2)
    axis.set_xlim(min(0.5, 0.9 * min(ratios)), 1.1 * max(2.0, *ratios))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    try:
        sweep(_arguments())
    except PeerError as error:
        sys.exit(str(error))


def sweep(args: argparse.Namespace) -> None:
    """Measure, write the results and show the tables."""
    shapes = choose(draw_shapes(seed=args.seed), args.only, args.every)
    title = instruction_sets.title_with_cap(f"{len(shapes)} convolutions", args.isa)
    title += f", seed {args.seed}" * (args.seed != SEED)
    title += ", a rehearsal of few short blocks" * args.quick
    seed = f"seed{args.seed}" if args.seed != SEED else ""
    name = "_".join(filter(None, ("convolutions", args.isa, seed)))
    about = {"machine": machine(), "title": title, "only": args.only, "every": args.every}
    record = UnfinishedSweep(args.out / f"{name}.unfinished.json", about)
    if args.resume:
        record.read()
    with tempfile.TemporaryDirectory() as folder:
        for threads in args.threads:
            pace = QUICK if args.quick else Pace()
            measure(record, shapes, threads, folder, pace, args.isa)
    rows = [record.row(*case) for case in product(args.threads, shapes, PASSES)]
    found = {
        "machine": about["machine"], "versions": record.versions, "title": title,
        "instruction_set": args.isa or "the processor's",
        "notes": (*NOTES, *instruction_sets.note(args.isa)), "workloads": {},
        "rows": [_plain(row) for row in rows],
    }  # fmt: skip
    grids = [summary([r for r in rows if r.threads == t], t) for t in args.threads]
    save(found, args.out / f"{name}.json", [*grids, details(rows)], draw)
    record.path.unlink(missing_ok=True)
    for grid in grids:
        grid.show()


def choose(shapes: Sequence[Convolution], kinds: Sequence[str], every: int) -> list[Convolution]:
    """The first of every so many shapes of each of these classes."""
    of_kind = ([s for s in shapes if s.kind == kind] for kind in CLASSES if kind in kinds)
    return [shape for group in of_kind for shape in group[::every]]


def measure(
    record: UnfinishedSweep,
    shapes: Sequence[Convolution],
    threads: int,
    folder: str,
    pace: Pace,
    isa: str = "",
) -> None:
    """Measure the passes that the record has not, in rounds by processes of their own."""
    for done in range(pace.rounds):
        cases = [c for c in product(shapes, PASSES) if record.rounds(threads, *c) <= done]
        if not cases:
            continue
        with closing(Sides(threads, folder, isa)) as sides:
            record.use(sides.versions())
            for shape, which in _with_progress(cases):
                row = sides.measure(shape, which, pace)
                record.add(record.row(threads, shape, which).least(row) if done else row)


def _plain(row: Row) -> dict[str, Any]:
    """A row with numbers shortened to what they are worth."""
    return {k: [float(f"{n:.4g}") for n in v] if isinstance(v, tuple)
            else float(f"{v:.4g}") if isinstance(v, float) else v
            for k, v in asdict(row).items()}  # fmt: skip


def _with_progress(cases: Sequence[Any]) -> Iterator[Any]:
    """Each case, and on the terminal a bar with the time that is left."""
    begun = time.monotonic()
    for done, case in enumerate(cases):
        yield case
        if not sys.stderr.isatty():
            continue
        spent = time.monotonic() - begun
        left = spent / (done + 1) * (len(cases) - done - 1)
        bar = "#" * (30 * (done + 1) // len(cases))
        print(f"\r[{bar:.<30}] {done + 1}/{len(cases)}, {left / 60:.0f} min left ", end="",
              file=sys.stderr, flush=True)  # fmt: skip
    if sys.stderr.isatty():
        print(file=sys.stderr)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=lambda t: [int(n) for n in t.split(",")], default=[1, 2])
    parser.add_argument("--only", type=lambda t: t.split(","), default=list(CLASSES),
                        help=f"classes, of {', '.join(CLASSES)}")  # fmt: skip
    parser.add_argument("--every", type=int, help="one of so many shapes of a class")
    parser.add_argument("--quick", action="store_true", help="one of ten shapes, short blocks")
    parser.add_argument("--seed", type=int, default=SEED, help="of the draw of shapes")
    parser.add_argument("--isa", choices=instruction_sets.SETS, default="",
                        help="cap the instructions of both sides")  # fmt: skip
    parser.add_argument("--resume", action="store_true",
                        help="go on with convolutions.unfinished.json")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    unknown = [kind for kind in args.only if kind not in CLASSES]
    if unknown:
        parser.error(f"there is no class {unknown[0]!r}; there are {', '.join(CLASSES)}")
    if args.every is None:
        args.every = 10 if args.quick else 1
    if args.every < 1:
        parser.error(f"--every {args.every} has no shapes; give it 1 or more")
    return args


if __name__ == "__main__":
    main()
