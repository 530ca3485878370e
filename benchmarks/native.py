"""What each native operator brings: train steps with all of them, and with all but one.

    python -m benchmarks.native [--rows lenet,gpt] [--threads 1] [--quick] [--out DIR]

writes native.json, native.md and native.svg. Each side of a row is a process of its own: one with
all operators of flow2onnx-native, one with none, and one without each kind that the steps use. They
run blocks of steps in turn, and are timed if their losses of three steps agree. A ratio above 1 is
the time that steps without a kind take over that with all: what it brings beside the others.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.contest import machine
from benchmarks.driver import RESULTS
from benchmarks.environments import interpreter
from benchmarks.report import Grid, each, save
from benchmarks.workloads import TRAINING, workload

# What stands and falls together. Winograd is no operator, but how convolutions may compute.
KINDS = {
    "Fused": ("Fused",),
    "FusedChannels": ("FusedChannels",),
    "Rows, AddRows, PutRows": ("Rows", "AddRows", "PutRows"),
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
ALL, NONE = "all", "none"
NOTES = (
    'A ratio is the median time of steps without a kind of operator over that with all; "none" is '
    "that of standard operators alone. What a kind brings depends on the others: elements that no "
    "other operator takes up are fused, and products take in what is around them.",
    "Where a row has no such operator the cell is empty.",
)
_TOLERANCE = 3e-2  # of losses of three steps; networks with normalisations over a batch amplify
# Threads of the side that ran before spin for a while, on processors that the next one needs.
_REST_SECONDS = 0.2
_CONVOLUTIONS = ("Conv", "ConvInputGradient", "ConvWeightGradient")


class Side:
    """A process that runs steps with some of the operators."""

    def __init__(self, row: str, kinds: Iterable[str], threads: int) -> None:
        python = interpreter("flow2onnx:native")
        if python is None:
            sys.exit("flow2onnx-native is missing: python -m benchmarks.environments native")
        operators = ",".join(operator for kind in kinds for operator in KINDS[kind])
        self.process = subprocess.Popen(
            [python, "-m", "benchmarks.native", "--child", operators or "-", "--rows", row,
             "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.told = json.loads(self._line())
        self.blocks: list[tuple[float, float]] = []

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *raised: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def run(self, steps: int) -> None:
        """A block of steps."""
        assert self.process.stdin is not None
        time.sleep(_REST_SECONDS)
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        wall, busy = json.loads(self._line())
        self.blocks.append((wall / steps, busy / steps))

    def median(self, which: int) -> float:
        """Seconds of a step, by the clock (0) or of processors (1), without the first block."""
        return statistics.median(block[which] for block in self.blocks[1:])

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("a side ended early; its message is above")
        return line


def child(row: str, operators: Sequence[str], threads: int) -> None:
    """Run steps as told on stdin, with these operators or none."""
    from flow2onnx_native import accelerator
    from flow2onnx_native.library import NativeLibrary, open_library

    from benchmarks import worker
    from benchmarks.peers import Options
    from benchmarks.peers import flow2onnx as peer

    worker.confine(threads, 0)
    whole, rewrite = open_library(), accelerator.rewrite_training
    wanted = tuple(o for o in whole.operators if o in operators)
    kept = NativeLibrary(whole.path, wanted, whole.instruction_set)
    used: dict[str, int] = {}

    def rewrite_with_some(*given: Any, winograd: bool, avx512: bool) -> Any:
        may_transform = winograd and "Winograd" in operators
        model, counts = rewrite(*given, winograd=may_transform, avx512=avx512)
        used.update(counts)
        return model, counts

    accelerator.open_library = lambda: kept  # type: ignore[assignment]
    accelerator.rewrite_training = rewrite_with_some  # type: ignore[assignment]
    work = workload(TRAINING[row][1])
    variant = frozenset(["native"] if kept.operators else [])
    step = peer.training(work, work.variables(), work.data(), Options(variant, threads))
    losses = [float(step(0)) for _ in range(3)]
    versions = worker.versions_of(("onnxruntime", "onnx", "numpy"))
    told = {"losses": losses, "used": used, "versions": versions}
    print(json.dumps(told), flush=True)
    for line in sys.stdin:
        wall, busy = time.perf_counter(), time.process_time()
        for i in range(int(line)):
            step(i)
        print(json.dumps((time.perf_counter() - wall, time.process_time() - busy)), flush=True)


def kinds_in(used: Mapping[str, int]) -> list[str]:
    """The kinds that steps use, by how many nodes they have of each operator."""
    operators = {operator for operator, nodes in used.items() if nodes}
    if operators.intersection(_CONVOLUTIONS):
        operators.add("Winograd")
    return [kind for kind, own in KINDS.items() if operators.intersection(own)]


def measure(row: str, threads: int, blocks: int, block_s: float) -> dict[str, Any]:
    """What a row's sides take, and the versions of what they run on."""
    with ExitStack() as stack:
        sides = {ALL: stack.enter_context(Side(row, KINDS, threads))}
        sides[NONE] = stack.enter_context(Side(row, (), threads))
        for kind in kinds_in(sides[ALL].told["used"]):
            others = [k for k in KINDS if k != kind]
            sides[kind] = stack.enter_context(Side(row, others, threads))
        for side in sides.values():
            side.run(1)
        steps = max(1, round(block_s / sides[ALL].blocks[0][0]))
        for block in range(blocks):
            for side in list(sides.values())[:: -1 if block % 2 else 1]:
                side.run(steps)
        losses = sides[ALL].told["losses"]
        return {
            "workload": row, "threads": threads,
            "ms": {name: 1e3 * side.median(0) for name, side in sides.items()},
            "busy_ms": {name: 1e3 * side.median(1) for name, side in sides.items()},
            "differ": [n for n, s in sides.items() if not _are_alike(losses, s.told["losses"])],
            "versions": sides[ALL].told["versions"],
        }  # fmt: skip


def _are_alike(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(abs(a - b) <= _TOLERANCE * abs(a) for a, b in zip(ours, theirs, strict=True))


def ratio(row: Mapping[str, Any], name: str) -> float | None:
    """The time of a side over that with all operators; None if it is not there, or not equal."""
    if name not in row["ms"] or name in row["differ"]:
        return None
    return float(row["ms"][name] / row["ms"][ALL])


def tables(found: Mapping[str, Any]) -> list[Grid]:
    """Ratios of each kind in each row, by the number of threads."""
    made = []
    for threads in each(found["rows"], "threads"):
        rows = [r for r in found["rows"] if r["threads"] == threads]
        lines = [["all, ms", *(f"{r['ms'][ALL]:.4g}" for r in rows)]]
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


def _document(rows: Sequence[dict[str, Any]], title: str) -> dict[str, Any]:
    names = dict.fromkeys(r["workload"] for r in rows)
    return {
        "machine": machine(),
        "versions": {"flow2onnx, native": rows[0]["versions"]},
        "title": title,
        "workloads": {name: TRAINING[name][0] for name in names},
        "notes": NOTES,
        "rows": [{k: v for k, v in row.items() if k != "versions"} for row in rows],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(TRAINING), help=f"of {', '.join(TRAINING)}")
    parser.add_argument("--threads", default="1", help="1,2 for both")
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(args.rows, args.child.split(","), int(args.threads))
        return
    unknown = [row for row in args.rows.split(",") if row not in TRAINING]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(TRAINING)}")
    blocks, block_s = (3, 0.02) if args.quick else (9, 0.25)
    title = "What each native operator brings" + ", a rehearsal of few short blocks" * args.quick
    rows = []
    for threads in map(int, args.threads.split(",")):
        for row in args.rows.split(","):
            rows.append(measure(row, threads, blocks, block_s))
            told = ", ".join(f"{n} {ms:.4g}" for n, ms in rows[-1]["ms"].items())
            print(f"{row}, {threads} thread(s), ms a step: {told}", flush=True)
            found = _document(rows, title)
            save(found, args.out / "native.json", tables(found), draw)
    for grid in tables(found):
        grid.show()


if __name__ == "__main__":
    main()
