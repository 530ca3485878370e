"""Training steps on 1 to 64 threads, on a machine of any number of cores.

    python -m benchmarks.threads [--rows mlp] [--threads 1,2,4] [--quick] [--add] [--out DIR]

writes threads.json, threads.md and threads.svg. The times of 1 and 2 threads give the share of a
step that is serial, and so a bound for more cores. Times of more threads than there are cores tell
what threads cost that have no core: waiting in a loop, changes of thread, lines of the cache that
two of them write to.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import QUICK, Contest, Contestant, Pace, Row, Setting
from benchmarks.driver import RESULTS
from benchmarks.record import Record
from benchmarks.report import Grid, each, save

THREADS = (1, 2, 4, 8, 16, 32, 64)
JOBS = {
    "mlp": ("MLP 2 x 2048, batch 256, SGD", "mlp:batch=256,hidden=2048,depth=2"),
    "gpt": ("GPT 2 x 256, 4 x 128 tokens of 4 000, Adam",
            "decoder:length=128,layers=2,units=256,vocabulary=4000,batch=4"),
    "resnet18": ("ResNet-18, 32 px, batch 8, momentum", "resnet18:batch=8"),
}  # fmt: skip
PEERS = (
    Contestant("flow2onnx, native", "flow2onnx:native,awake"),
    Contestant("flow2onnx, native, idle threads sleep", "flow2onnx:native,asleep"),
    Contestant("flow2onnx", "flow2onnx:awake"),
    Contestant("torch", "torch"),
)
NOTES = (
    "Times are those of the fastest of many short blocks of steps, which the peers ran in turn: "
    "with two threads a block shows what two cores do only if nothing else had one of them. A "
    "process has as many processors as threads, and all of the machine where it has more "
    'threads. "busy" is the median time of all processors for a step.',
    "Idle threads of ours wait in a loop, as ONNX Runtime lets them; where they sleep, the flag "
    "`runtime.allow_spinning` is False.",
    "The serial share is 2 t2 / t1 - 1, of the times on one and two threads: Amdahl's law (1967) "
    "solved for it, which for two processors is the number of Karp and Flatt (1990). It holds all "
    "that does not halve: serial work, waiting at the end of an operator, memory and cache that "
    "two cores share. Below 0 it is given as 0. The bound for n cores is 1 / (s + (1 - s) / n): no "
    "measurement, and too high where cores come to share more.",
    '"lost" is the time of so many threads over that of as many threads as cores: 1.5 is half as '
    "long again.",
)


def serial_share(one: float, two: float) -> float:
    """The share of a step that a second thread did not shorten, from the times of 1 and 2."""
    return min(1.0, max(0.0, 2 * two / one - 1))


def bound(share: float, cores: int) -> float:
    """How many times as fast as one thread so many cores are at most, by Amdahl's law."""
    return 1 / (share + (1 - share) / cores)


def measure(contest: Contest, job: str, threads: Sequence[int], who: Sequence[Contestant]) -> None:
    """Add the rows of a job for each number of threads."""
    for count in threads:
        setting = Setting("training", JOBS[job][1], count)
        for row in contest.measure(job, setting, who):
            print(f"{job}, {count} thread(s): {row.peer} {_row_text(row)}", flush=True)


def _row_text(row: Row) -> str:
    if row.ms is None:
        return row.note
    return f"{row.fastest_ms:.4g} ms ({row.ms:.4g} median), {row.busy_ms:.4g} busy"


def times(found: dict[str, Any], job: str, peer: str, what: str = "fastest_ms") -> dict[int, float]:
    """The times of a peer by the number of threads, where they were measured."""
    return {
        r["threads"]: r[what]
        for r in found["rows"]
        if (r["workload"], r["peer"]) == (job, peer) and r[what] is not None
    }


def tables(found: dict[str, Any]) -> list[Grid]:
    """Times and processor times by the number of threads, and what follows from them."""
    made = []
    for job in each(found["rows"], "workload"):
        made.append(_by_threads(found, job, "fastest_ms", f"{job}: ms a step"))
        made.append(_by_threads(found, job, "busy_ms", f"{job}: busy ms a step"))
    return [*made, _conclusions(found)]


def _by_threads(found: dict[str, Any], job: str, what: str, title: str) -> Grid:
    counts = sorted(each(found["rows"], "threads"))
    lines = []
    for peer in each(found["rows"], "peer"):
        known = times(found, job, peer, what)
        lines.append([peer, *(f"{known[n]:.4g}" if n in known else "-" for n in counts)])
    return Grid(title, ["threads", *map(str, counts)], lines)


def _conclusions(found: dict[str, Any]) -> Grid:
    cores, most = found["machine"]["cores"], max(each(found["rows"], "threads"))
    lines = []
    for job in each(found["rows"], "workload"):
        for peer in each(found["rows"], "peer"):
            known = times(found, job, peer)
            lines.append([f"{job}, {peer}", *_bounds(known), _lost(known, cores, most)])
    header = ["", "serial share", *(f"bound, {n} cores" for n in THREADS[2:]),
              f"lost, {most} threads on {cores} cores"]  # fmt: skip
    return Grid("what follows", header, lines)


def _bounds(known: dict[int, float]) -> list[str]:
    if 1 not in known or 2 not in known:
        return ["-"] * (1 + len(THREADS[2:]))
    share = serial_share(known[1], known[2])
    return [f"{share:.3f}", *(f"{bound(share, n):.1f}" for n in THREADS[2:])]


def _lost(known: dict[int, float], cores: int, most: int) -> str:
    return f"{known[most] / known[cores]:.2f}" if most in known and cores in known else "-"


def draw(found: dict[str, Any], path: Path) -> None:
    """A panel for each job: times over threads; dotted is the bound for as many cores."""
    import matplotlib.pyplot as plt

    jobs, cores = each(found["rows"], "workload"), found["machine"]["cores"]
    figure, axes = plt.subplots(
        1, len(jobs), figsize=(4.6 * len(jobs), 4.2), squeeze=False, layout="constrained"
    )
    for axis, job in zip(axes[0], jobs, strict=True):
        _panel(axis, found, job)
        axis.axvline(cores, color="gray", linewidth=0.8)
        axis.set_title(job, loc="left", fontsize="medium")
    axes[0, 0].set_ylabel("ms a step")
    axes[0, 0].legend(fontsize="small", frameon=False)
    figure.suptitle(f"{found['title']}: the line is at {cores} cores, dotted is Amdahl's bound")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(axis: Any, found: dict[str, Any], job: str) -> None:
    for peer in each(found["rows"], "peer"):
        known = times(found, job, peer)
        if not known:
            continue
        (drawn,) = axis.plot(*zip(*sorted(known.items()), strict=True), marker="o", markersize=3,
                             label=peer)  # fmt: skip
        if 1 in known and 2 in known:
            share = serial_share(known[1], known[2])
            best = [known[1] / bound(share, n) for n in sorted(known)]
            axis.plot(sorted(known), best, ":", color=drawn.get_color(), linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.xaxis.set_major_formatter("{x:g}")
    axis.set_xlabel("threads")
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(JOBS), help=f"of {', '.join(JOBS)}")
    parser.add_argument("--threads", default=",".join(map(str, THREADS)))
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--add", action="store_true",
                        help="to the rows that the file there has, of this machine")  # fmt: skip
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    unknown = [job for job in args.rows.split(",") if job not in JOBS]
    if unknown:
        parser.error(f"there is no row {unknown[0]}; there are {', '.join(JOBS)}")
    contest = Contest(QUICK if args.quick else Pace(block_s=0.1, peer_s=2.5, fewest=7, most=20))
    title = "Training steps by threads" + (", a rehearsal of few short blocks" * args.quick)
    path = args.out / "threads.json"
    record = Record(path, title, JOBS, NOTES, adds=args.add)
    for job in args.rows.split(","):
        measure(contest, job, [int(n) for n in args.threads.split(",")], PEERS)
        found = record.merged_document(contest)
        save(found, path, tables(found), draw)
    for grid in tables(found):
        grid.show()


if __name__ == "__main__":
    main()
