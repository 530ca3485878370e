"""How the cost of a step grows with batch, depth and the rows of an embedding.

    python -m benchmarks.scaling [--threads 1] [--peers native,torch] [--quick] [--out DIR]

writes scaling.json, scaling.md and scaling.svg: milliseconds a step, and for each series the
exponent of growth, the slope of a straight line through the logarithms. 1 is proportional to the
work, 0 no growth at all. Rows of the embedding grow while a step reads 512 of them.
"""

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.contest import QUICK, Contest, Contestant, Pace, Setting, machine
from benchmarks.driver import RESULTS
from benchmarks.report import Grid, document, save

NOTES = (
    "Milliseconds a step, medians over blocks. The exponent is the slope of a straight line "
    "through the logarithms of size and time, over all sizes and over the upper half of them, "
    "where what a step costs anyhow weighs less.",
    "The embedding is of 16 numbers a row, its batch 512 with one category each, updated by SGD "
    "at the rows that were read: its cost should not grow.",
)
PEERS = {
    "native": Contestant("flow2onnx, native", "flow2onnx:native"),
    "flow2onnx": Contestant("flow2onnx", "flow2onnx"),
    "torch": Contestant("torch", "torch:sparse", is_intel=True),
    "jax": Contestant("JAX", "jax"),
}


@dataclass(frozen=True)
class Series:
    """A workload whose size in one respect is put into its name."""

    name: str
    what: str
    workload: str
    sizes: tuple[int, ...]


SERIES = (
    Series("MLP by batch", "batch", "mlp:batch={}", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)),
    Series("LeNet by batch", "batch", "lenet:batch={}", (1, 4, 16, 64, 256)),
    Series("MLP by depth", "hidden layers", "mlp:depth={}", (1, 2, 4, 8)),
    Series("encoder by depth", "layers", "encoder:batch=2,layers={}", (1, 2, 4, 8)),
    Series("embedding by rows", "rows", "wide:fields=1,rows={}", (10**4, 10**5, 10**6, 10**7)),
)


def exponent(sizes: Sequence[float], times: Sequence[float]) -> float:
    """The slope of time over size on logarithmic scales, by least squares."""
    slope, _ = np.polyfit(np.log(sizes), np.log(times), 1)
    return float(slope)


def exponents(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """The exponent over all sizes, and over the upper half."""
    sizes, times = zip(*points, strict=True)
    half = len(points) // 2 - (len(points) % 2 == 0 and len(points) < 6)
    return exponent(sizes, times), exponent(sizes[half:], times[half:])


def measure(contest: Contest, series: Series, threads: int, who: Sequence[Contestant]) -> None:
    """Add a row for each size and peer."""
    for size in series.sizes:
        work = series.workload.format(size)
        alike = [_fitting(one, work) for one in who]
        for row in contest.measure(series.name, Setting("training", work, threads), alike):
            row.extra["size"] = size
            shown = f"{row.ms:.4g} ms" if row.ms is not None else row.note
            print(f"{series.name}, {size}: {row.peer} {shown}", flush=True)


def _fitting(one: Contestant, work: str) -> Contestant:
    """torch with sparse gradients only where there is a table and SGD."""
    is_table = work.startswith("wide")
    peer = one.peer if is_table else one.peer.removesuffix(":sparse")
    return Contestant(one.label, peer, one.is_intel)


def points_of(found: dict[str, Any], series: str, peer: str) -> list[tuple[float, float]]:
    """The sizes and times of a series, where they were measured."""
    return [
        (r["extra"]["size"], r["ms"])
        for r in found["rows"]
        if (r["workload"], r["peer"]) == (series, peer) and r["ms"] is not None
    ]


def tables(found: dict[str, Any]) -> list[Grid]:
    """A table for each series: milliseconds by size, and the exponents."""
    made = []
    for series in dict.fromkeys(r["workload"] for r in found["rows"]):
        sizes = list(dict.fromkeys(r["extra"]["size"] for r in found["rows"]
                                   if r["workload"] == series))  # fmt: skip
        lines = []
        for peer in dict.fromkeys(r["peer"] for r in found["rows"]):
            points = points_of(found, series, peer)
            times = dict(points)
            cells = [f"{times[s]:.4g}" if s in times else "-" for s in sizes]
            slopes = [f"{e:.2f}" for e in exponents(points)] if len(points) > 2 else ["-", "-"]
            lines.append([peer, *cells, *slopes])
        header = ["", *(f"{s:,}".replace(",", " ") for s in sizes), "exponent", "upper half"]
        made.append(Grid(f"{series}: ms a step", header, lines))
    return made


def draw(found: dict[str, Any], path: Path) -> None:
    """A panel for each series on logarithmic scales; a dotted line is proportional growth."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(r["workload"] for r in found["rows"]))
    columns = min(3, len(names))
    figure, axes = plt.subplots(
        math.ceil(len(names) / columns), columns, figsize=(4.2 * columns, 7),
        squeeze=False, layout="constrained",
    )  # fmt: skip
    for axis in axes.flat[len(names) :]:
        axis.remove()
    for axis, name in zip(axes.flat, names, strict=False):
        _panel(axis, found, name)
    figure.suptitle("Milliseconds a step; in brackets the exponent of growth")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(axis: Any, found: dict[str, Any], name: str) -> None:
    for peer in dict.fromkeys(r["peer"] for r in found["rows"]):
        points = points_of(found, name, peer)
        if len(points) > 2:
            label = f"{peer} ({exponents(points)[0]:.2f})"
            axis.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    first = points_of(found, name, found["rows"][0]["peer"])
    if first:
        (low, ms), (high, _) = first[0], first[-1]
        axis.plot([low, high], [ms, ms * high / low], ":", color="gray", linewidth=0.8)
        axis.set_ylim(top=3 * max(t for _, t in first))
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_title(name, loc="left", fontsize="medium")
    axis.legend(fontsize="small", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peers", default="native,flow2onnx,torch", help=f"of {', '.join(PEERS)}")
    parser.add_argument("--series", default="", help="only those with this in their names")
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    contest = Contest(QUICK if args.quick else Pace(block_s=0.15, peer_s=1.0))
    for series in SERIES:
        if args.series in series.name:
            measure(contest, series, args.threads, [PEERS[p] for p in args.peers.split(",")])
    title = "Growth of a step's cost" + (", a rehearsal of few short blocks" * args.quick)
    found = document(contest, machine(), title=title, notes=NOTES, threads=args.threads,
                     workloads={s.name: f"{s.what}, `{s.workload}`" for s in SERIES})  # fmt: skip
    save(found, args.out / "scaling.json", tables(found), draw)
    for grid in tables(found):
        grid.show()


if __name__ == "__main__":
    main()
