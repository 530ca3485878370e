"""Steps with all native operators beside steps with all but one: what each brings.

    python -m benchmarks.native [--rows lenet,gpt-b1] [--threads 1] [--quick] [--out DIR]

writes native.json, native.md and native.svg. A step trains, or in rows such as gpt-b1 predicts. A
process with all operators of flow2onnx-native and one without a kind that the steps use run blocks
of steps in turn, and then two more that are started the other way round. A ratio above 1 is the
time that steps without a kind take over that with all: what it brings beside the others. It counts
if three losses agree, or how large logits are on the mean.
"""

import argparse
import dataclasses
import json
import os
import statistics
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.contest import machine
from benchmarks.driver import RESULTS
from benchmarks.environments import interpreter
from benchmarks.report import Grid, each, save
from benchmarks.worker_process import PeerError, WorkerProcess
from benchmarks.workloads import OTHERS, PREDICTION, TRAINING, workload

if TYPE_CHECKING:
    from benchmarks.peers import Options, Step

# What stands and falls together. Winograd is no operator, but how convolutions may compute.
KINDS = {
    "Fused": ("Fused",),
    "FusedChannels": ("FusedChannels",),
    "Rows, AddRows, PutRows": ("Rows", "AddRows", "PutRows"),
    "AddNamedRows": ("AddNamedRows",),
    "Transpose": ("Transpose",),
    "CrossEntropy": ("CrossEntropy",),
    "MaxPool and gradient": ("MaxPool", "MaxPoolGradient"),
    "Pack, PackedProduct": ("Pack", "PackedProduct"),
    "Recurrence and gradient": ("Recurrence", "RecurrenceGradient"),
    "Attention and gradient": ("Attention", "AttentionGradient"),
    "Conv": ("Conv",),
    "ConvInputGradient": ("ConvInputGradient",),
    "ConvWeightGradient": ("ConvWeightGradient",),
    "Winograd's algorithm": ("Winograd",),
    "Product": ("Product",),
}
NONE = "none"
NOTES = (
    "A ratio is the median time of steps without a kind of operator over that with all, the mean "
    'of two pairs of processes, each of which starts first once; "none" is that of standard '
    "operators alone. What a kind brings depends on the others: elements that no "
    "other operator takes up are fused, and products take in what is around them.",
    "Where a row has no such operator the cell is empty.",
)
ROWS = TRAINING | OTHERS | PREDICTION
_TOLERANCE = 3e-2  # of three results; networks with normalisations over a batch amplify
# Threads of the side that ran before spin for a while, on processors that the next one needs.
_REST_SECONDS = 0.2
Row = dict[str, Any]
_CONVOLUTIONS = ("Conv", "ConvInputGradient", "ConvWeightGradient")


class Side:
    """A process that runs steps with some of the operators."""

    def __init__(self, row: str, kinds: Iterable[str], threads: int) -> None:
        python = interpreter("flow2onnx:native")
        if python is None:
            sys.exit("flow2onnx-native is missing: python -m benchmarks.environments native")
        operators = ",".join(operator for kind in kinds for operator in KINDS[kind])
        command = [
            python, "-m", "benchmarks.native", "--child", operators or "-", "--rows", row,
            "--threads", str(threads),
        ]  # fmt: skip
        # the cache does not know what was left out
        self._worker = WorkerProcess(command, {**os.environ, "FLOW2ONNX_CACHE": "0"}, name=row)
        try:
            self.told = self._worker.record()
        except PeerError:
            self._worker.close()
            raise
        self.blocks: list[tuple[float, float]] = []

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *raised: object) -> None:
        self._worker.close()

    def run(self, steps: int) -> float:
        """The seconds of a block of steps."""
        time.sleep(_REST_SECONDS)
        self._worker.tell(str(steps))
        wall, busy = self._worker.numbers(2)
        self.blocks.append((wall / steps, busy / steps))
        return wall

    def median(self, which: int) -> float:
        """Seconds of a step, by the clock (0) or of processors (1), without the first block."""
        return statistics.median(block[which] for block in self.blocks[1:])


def child(row: str, operators: Collection[str], threads: int) -> None:
    """Run steps as told on stdin, with these operators or none."""
    from benchmarks import worker
    from benchmarks.peers import Options

    worker.confine(threads, 0)
    kept, used = _leave(operators)
    options = Options(frozenset(["native"] if kept else []), threads)
    step = _predictions(row, options) if row in PREDICTION else _training(row, options)
    results = [worker.sample(step(0))[-1] for _ in range(3)]
    versions = worker.versions_of(("onnxruntime", "onnx", "numpy"))
    told = {"results": results, "used": used, "versions": versions}
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        wall, busy = time.perf_counter(), time.process_time()
        for i in range(int(line)):
            step(i)
        print(time.perf_counter() - wall, time.process_time() - busy, flush=True)


def _leave(operators: Collection[str]) -> tuple[tuple[str, ...], dict[str, int]]:
    """Keep these operators of the library alone: which it has, and a count of uses, still empty."""
    from flow2onnx_native import accelerator
    from flow2onnx_native.library import NativeLibrary, open_library

    whole = open_library()
    rewrite, rewrite_prediction = accelerator.rewrite_training, accelerator.rewrite_prediction
    wanted = tuple(o for o in whole.operators if o in operators)
    kept = NativeLibrary(whole.path, wanted, whole.instruction_set)
    used: dict[str, int] = {}

    def rewrite_with_some(*given: Any, winograd: bool, avx512: bool) -> Any:
        may_transform = winograd and "Winograd" in operators
        model, counts = rewrite(*given, winograd=may_transform, avx512=avx512)
        used.update(counts)
        return model, counts

    def rewrite_prediction_with_some(*given: Any, avx512: bool) -> dict[str, int]:
        counts = rewrite_prediction(*given, avx512=avx512)
        used.update(counts)
        return counts

    accelerator.open_library = lambda: kept  # type: ignore[assignment]
    accelerator.rewrite_training = rewrite_with_some  # type: ignore[assignment]
    accelerator.rewrite_prediction = rewrite_prediction_with_some  # type: ignore[assignment]
    return kept.operators, used


def _training(row: str, options: "Options") -> "Step":
    from benchmarks.peers import flow2onnx as peer

    work = workload(ROWS[row][1])
    return peer.training(work, work.variables(), work.data(), options)


def _predictions(row: str, options: "Options") -> "Step":
    """A step runs the exported job, as the rows of `benchmarks.prediction` do."""
    from benchmarks.peers import flow2onnx, predictor

    work = workload(ROWS[row][1])
    with TemporaryDirectory() as folder:
        file = Path(folder, "model.onnx")
        flow2onnx.export(work.name, file)
        opened = dataclasses.replace(options, model=str(file))
        return predictor.prediction(work, {}, work.data(), opened)


def kinds_in(row: str, used: Mapping[str, int]) -> list[str]:
    """The kinds that the steps of a row use, by how many nodes they have of each operator."""
    operators = {operator for operator, nodes in used.items() if nodes}
    # predictions take it where it is faster, and nobody can tell them not to
    if row not in PREDICTION and operators.intersection(_CONVOLUTIONS):
        operators.add("Winograd")
    return [kind for kind, own in KINDS.items() if operators.intersection(own)]


def measure(row: str, threads: int, blocks: int, block_s: float) -> Row:
    """The time of a row's steps without each kind over that with all."""
    with Side(row, KINDS, threads) as side:
        used, versions = kinds_in(row, side.told["used"]), side.told["versions"]
        side.run(1)
        steps = max(1, round(block_s / side.run(1)))
    made: Row = {"workload": row, "threads": threads, "ms": {}, "ratio": {}, "busy_ratio": {},
                 "differ": [], "versions": versions}  # fmt: skip
    for name in (NONE, *used):
        kinds = [k for k in KINDS if name not in (NONE, k)]
        halves = [_pair(row, kinds, threads, steps, blocks, turned) for turned in (False, True)]
        made["ms"][name] = statistics.geometric_mean(ms for _, _, ms, _ in halves)
        made["ratio"][name] = statistics.geometric_mean(wall for wall, *_ in halves)
        made["busy_ratio"][name] = statistics.geometric_mean(busy for _, busy, *_ in halves)
        if not all(are_alike for *_, are_alike in halves):
            made["differ"].append(name)
    return made


def _pair(
    row: str, kinds: Sequence[str], threads: int, steps: int, blocks: int, turned: bool
) -> tuple[float, float, float, bool]:
    """Ratios by the clock and of processors, milliseconds with all, and whether results are alike.

    `turned`: the side with all operators starts second, as the first one is at a disadvantage.
    """
    with ExitStack() as stack:
        sets = [KINDS, kinds]
        sides = [stack.enter_context(Side(row, s, threads)) for s in sets[:: -1 if turned else 1]]
        for block in range(blocks + 1):
            for side in sides[:: -1 if block % 2 else 1]:
                side.run(steps)
        full, less = sides[:: -1 if turned else 1]
        wall, busy = (less.median(which) / full.median(which) for which in (0, 1))
        alike = _are_alike(full.told["results"], less.told["results"])
        return wall, busy, 1e3 * full.median(0), alike


def _are_alike(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(abs(a - b) <= _TOLERANCE * abs(a) for a, b in zip(ours, theirs, strict=True))


def ratio(row: Mapping[str, Any], name: str) -> float | None:
    """The time without a kind over that with all; None if it is not there, or results differ."""
    return None if name in row["differ"] else row["ratio"].get(name)


def tables(found: Mapping[str, Any]) -> list[Grid]:
    """Ratios of each kind in each row, by the number of threads."""
    made = []
    for threads in each(found["rows"], "threads"):
        rows = [r for r in found["rows"] if r["threads"] == threads]
        lines = [["all, ms", *(f"{statistics.median(r['ms'].values()):.4g}" for r in rows)]]
        for name in (NONE, *KINDS):
            ratios = [ratio(r, name) for r in rows]
            if any(r is not None for r in ratios):
                lines.append([name, *("" if r is None else f"{r:.2f}" for r in ratios)])
        title = f"{threads} thread{'s' * (threads > 1)}: time without / with all"
        made.append(Grid(title, ["", *(r["workload"] for r in rows)], lines))
    return made


def draw(found: Mapping[str, Any], path: Path) -> None:
    """A line for each kind, on which every row is a point, labelled where it gains most."""
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 5), layout="constrained")
    kinds = [k for k in KINDS if any(ratio(r, k) for r in found["rows"])]
    for i, kind in enumerate(kinds):
        ratios = [(ratio(r, kind), r["workload"]) for r in found["rows"]]
        points = [(value, name) for value, name in ratios if value is not None]
        axis.plot([p for p, _ in points], [i] * len(points), "o", markersize=4, color="#2a7f62")
        most, name = max(points)
        axis.annotate(f" {name} {most:.2f}", (most, i), va="center", fontsize="small")
    axis.set_yticks(range(len(kinds)), kinds)
    axis.invert_yaxis()
    axis.set_xscale("log")
    axis.axvline(1, color="gray", linewidth=0.8)
    ticks = (0.9, 1, 1.1, 1.25, 1.5, 2, 3, 5)
    axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
    axis.minorticks_off()
    axis.set_xlabel("time of a step without it / with all: right of 1 it pays")
    axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(found["title"])
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _rows_of_file(path: Path, title: str) -> list[Row]:
    """The rows of a file of this machine and title, with the versions of what they ran on."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if (found["machine"], found["title"]) != (machine(), title):
        sys.exit(f"{path} is of another machine or title: leave out --add, or name another --out")
    (versions,) = found["versions"].values()
    return [row | {"versions": versions} for row in found["rows"]]


def _document(rows: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
    names = dict.fromkeys(r["workload"] for r in rows)
    return {
        "machine": machine(),
        "versions": {"flow2onnx, native": rows[0]["versions"]},
        "title": title,
        "workloads": {name: ROWS[name][0] for name in names},
        "notes": NOTES,
        "rows": [{k: v for k, v in row.items() if k != "versions"} for row in rows],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--threads", default="1", help="1,2 for both")
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--add", action="store_true",
                        help="to the rows that the file there has, of this machine")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(args.rows, args.child.split(","), int(args.threads))
        return
    unknown = [row for row in args.rows.split(",") if row not in ROWS]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(ROWS)}")
    blocks, block_s = (2, 0.02) if args.quick else (5, 0.25)
    title = "What each native operator brings" + ", a rehearsal of few short blocks" * args.quick
    rows = _rows_of_file(args.out / "native.json", title) if args.add else []
    for threads in map(int, args.threads.split(",")):
        for row in args.rows.split(","):
            rows = [r for r in rows if (r["workload"], r["threads"]) != (row, threads)]
            try:
                rows.append(measure(row, threads, blocks, block_s))
            except PeerError as error:
                sys.exit(str(error))
            told = ", ".join(f"{n} {value:.2f}" for n, value in rows[-1]["ratio"].items())
            print(f"{row}, {threads} thread(s), time without / with all: {told}", flush=True)
            found = _document(rows, title)
            save(found, args.out / "native.json", tables(found), draw)
    for grid in tables(found):
        grid.show()


if __name__ == "__main__":
    main()
