"""Steps of 1, 2 and 4 ranks beside torch's DistributedDataParallel, on gloo both.

    python -m benchmarks.scaling_out [--rows mlp,…] [--ranks 1,2,4] [--no-link] [--quick]

writes scaling_out.json, scaling_out.md and scaling_out.svg. Ranks of one machine have a processor
each, as far as there are some. On the link two ranks are in network namespaces, which
`benchmarks.links` joins at --mbit and --delay-ms; it needs the right to make them.

A group of ranks runs blocks of steps, blocks without communication, and blocks of communication
alone, the peers in turn. What of the communication is hidden is (compute + communication - step) /
communication.
"""

import argparse
import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contest import Contest, Pace, disagreement, machine
from benchmarks.driver import RESULTS
from benchmarks.links import Link, LinkRefusedError, shaped_link
from benchmarks.rank_group import MODES, RankedPeer, RankGroup
from benchmarks.report import Grid, document, save
from benchmarks.worker_process import PeerError
from benchmarks.workloads import workload

WORKLOADS = {
    "mlp": ("MLP 784-512-10, batch 100, SGD", "mlp"),
    "deep": ("MLP of four layers of 1024, batch 256, SGD", "mlp:batch=256,hidden=1024,depth=4"),
    "encoder": ("encoder 4 × 256, 8 × 128 tokens, Adam", "encoder"),
}
BUCKET = 4  # MiB, for all peers; DistributedDataParallel's first bucket is of at most 1 MiB
OURS = RankedPeer("flow2onnx", f"data_parallel:bucket={BUCKET}")
IN_ONE_PIECE = RankedPeer("flow2onnx, no overlap", f"data_parallel:bucket={BUCKET},together")
IN_PARTS = RankedPeer("flow2onnx, state in parts", f"data_parallel:bucket={BUCKET},zero")
DDP = RankedPeer("torch DDP", f"ddp:bucket={BUCKET}")
NOTES = (
    "Milliseconds a step of the whole batch, which the ranks share: medians over blocks that the "
    "peers ran in turn, with the quartiles. *busy* is what a step takes of a rank's processor, "
    "*compute* the same step with nothing sent, *communication* what a step sends and nothing "
    "else, *hidden* the share of it that the step does not take longer for, (compute + "
    "communication - step) / communication. *ratio* is the step of the peer divided by ours: above "
    "1 we are faster.",
    "Ours gives the mean loss of the whole batch on every rank, torch DDP that of the rank's own "
    "rows. With more ranks than processors, ranks wait for each other's turn, and communication on "
    "one machine is work of its processors: little of it can be hidden.",
)


@dataclass
class RankedRow:
    """The result of one peer; times are in milliseconds a step."""

    workload: str
    ranks: int
    link: str
    peer: str
    note: str = ""
    ms: float | None = None
    quartiles: tuple[float, float] | None = None
    busy_ms: float | None = None  # of processors, for each rank
    compute_ms: float | None = None
    communication_ms: float | None = None
    hidden: float | None = None
    ratio: float | None = None
    collectives: list[int] = field(default_factory=list)  # bytes of each
    state_mb: list[float] = field(default_factory=list)  # slots of the optimizer, by rank
    peak_mb: list[float] = field(default_factory=list)
    blocks: int = 0


def hidden_share(step: float, compute: float, communication: float) -> float:
    """The share of the communication for which a step does not take longer; may be below 0."""
    return (compute + communication - step) / communication


def measure(
    contest: Contest,
    name: str,
    count: int,
    link: Link | None,
    who: Sequence[RankedPeer],
    place: str,
) -> None:
    """Add the rows of one workload and number of ranks; the first peer is ours."""
    rows = {one.label: RankedRow(name, count, place, one.label) for one in who}
    with ExitStack() as stack:
        groups: list[RankGroup] = []
        for one in who:
            group = _start_group(contest, rows[one.label], one, groups, link)
            if group is not None:
                groups.append(stack.enter_context(closing(group)))
        _take_turns(contest.pace, groups)
        for group in groups:
            _fill(rows[group.who.label], group)
            group.end()
            rows[group.who.label].peak_mb = group.peak_mb
    ours = rows[who[0].label].ms
    for row in rows.values():
        if ours is not None and row.ms is not None:
            row.ratio = row.ms / ours
    contest.rows += rows.values()  # type: ignore[arg-type]  # rows of another kind, told alike
    for row in rows.values():
        shown = f"{row.peer} {_shown(row.ms)} ms {row.note}"
        print(f"{name}, {count} ranks, {place}: {shown}", flush=True)


def _start_group(
    contest: Contest, row: RankedRow, one: RankedPeer, groups: Sequence[RankGroup],
    link: Link | None,
) -> RankGroup | None:  # fmt: skip
    """The ranks of a peer that computes what ours does; None, with a note, if there are none."""
    if one.python() is None:
        row.note = "not installed: python -m benchmarks.environments ranks"
        return None
    try:
        group = RankGroup(one, WORKLOADS[row.workload][1], row.ranks, link)
    except PeerError as error:
        row.note = str(error)
        return None
    tolerance = workload(WORKLOADS[row.workload][1]).tolerance
    row.note = disagreement(group.results, groups[0].results, tolerance) if groups else ""
    if row.note:
        group.close()
        return None
    contest.versions[one.peer.partition(":")[0]] = group.facts[0]["versions"]
    return group


def _take_turns(pace: Pace, groups: Sequence[RankGroup]) -> None:
    """Blocks of each mode and group by turns."""
    plans = [(group, mode) for mode in MODES for group in groups
             if group.count > 1 or mode == "step"]  # fmt: skip
    steps = {}
    for group, mode in plans:
        group.run(mode, 1)
        seconds = group.run(mode, 2) / 2
        steps[group.who.label, mode] = max(1, math.ceil(pace.block_s / max(seconds, 1e-6)))
    for _ in range(pace.most):
        for group, mode in plans:
            count = steps[group.who.label, mode]
            group.times[mode].append(group.run(mode, count) / count)


def _fill(row: RankedRow, group: RankGroup) -> None:
    found = {mode: [1000 * t for t in times] for mode, times in group.times.items() if times}
    low, row.ms, high = statistics.quantiles(found["step"], n=4, method="inclusive")
    row.quartiles, row.blocks = (low, high), len(found["step"])
    row.busy_ms = 1000 * statistics.median(group.busy)
    row.collectives = group.facts[0]["sizes"]
    row.state_mb = [facts["state_bytes"] / 2**20 for facts in group.facts]
    if group.count > 1:
        row.compute_ms = statistics.median(found["compute"])
        row.communication_ms = statistics.median(found["communicate"])
        row.hidden = hidden_share(row.ms, row.compute_ms, row.communication_ms)


# --- tables and chart -----------------------------------------------------------------------------


def tables(found: dict[str, Any]) -> list[Grid]:
    """A table for each place where the ranks were."""
    header = ["workload", "ranks", "peer", "ms a step", "quartiles", "busy", "compute",
              "communication", "hidden", "ratio", "sent, MB", "slots by rank, MB", "peak MB",
              ""]  # fmt: skip
    places = dict.fromkeys(row["link"] for row in found["rows"])
    return [Grid(place, header, [_line(r) for r in found["rows"] if r["link"] == place])
            for place in places]  # fmt: skip


def _line(row: dict[str, Any]) -> list[str]:
    low, high = row["quartiles"] or (None, None)
    sent = sum(row["collectives"]) / 2**20
    return [
        row["workload"], str(row["ranks"]), row["peer"], _shown(row["ms"]),
        "-" if low is None else f"{low:.4g} … {high:.4g}", _shown(row["busy_ms"]),
        _shown(row["compute_ms"]),
        _shown(row["communication_ms"]),
        "-" if row["hidden"] is None else f"{100 * row['hidden']:.0f} %",
        _shown(row["ratio"], "{:.2f}"), f"{sent:.2f}" if row["ranks"] > 1 else "-",
        ", ".join(f"{mb:.1f}" for mb in row["state_mb"]) or "-",
        ", ".join(f"{mb:.0f}" for mb in row["peak_mb"]) or "-", row["note"],
    ]  # fmt: skip


def _shown(value: float | None, form: str = "{:.4g}") -> str:
    return "-" if value is None else form.format(value)


def draw(found: dict[str, Any], path: Path) -> None:
    """A panel for each workload: a bar a peer in groups by place and ranks, compute shaded."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row["workload"] for row in found["rows"]))
    peers = list(dict.fromkeys(row["peer"] for row in found["rows"]))
    figure, axes = plt.subplots(1, len(names), figsize=(4.6 * len(names), 4.2), squeeze=False,
                                layout="constrained")  # fmt: skip
    for axis, name in zip(axes.flat, names, strict=True):
        _panel(axis, [r for r in found["rows"] if r["workload"] == name], peers)
        axis.set_title(found["workloads"][name], loc="left", fontsize="small")
    axes[0, 0].legend(fontsize="small", frameon=False)
    axes[0, 0].set_ylabel("ms a step")
    figure.suptitle("A step of the whole batch; what is dark is its computation")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _panel(axis: Any, rows: Sequence[dict[str, Any]], peers: Sequence[str]) -> None:
    settings = list(dict.fromkeys((row["link"], row["ranks"]) for row in rows))
    width = 0.8 / len(peers)
    for i, peer in enumerate(peers):
        own = [row for row in rows if row["peer"] == peer and row["ms"] is not None]
        places = [settings.index((r["link"], r["ranks"])) + (i + 0.5) * width - 0.4 for r in own]
        axis.bar(places, [r["ms"] for r in own], width, color=f"C{i}", alpha=0.5, label=peer)
        axis.bar(places, [r["compute_ms"] or r["ms"] for r in own], width, color=f"C{i}")
    labels = [f"{ranks}\n{place.split(',')[0]}" for place, ranks in settings]
    axis.set_xticks(range(len(settings)), labels, fontsize="small")
    axis.spines[["top", "right"]].set_visible(False)


# --- the command line -----------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(WORKLOADS), help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--mbit", type=int, default=1000, help="of the link, each way")
    parser.add_argument("--delay-ms", type=float, default=1.0, help="of the link, each way")
    parser.add_argument("--no-link", action="store_true", help="on one machine alone")
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    contest = Contest(Pace(0.1, most=3) if args.quick else Pace(0.3, most=9))
    names = args.rows.split(",")
    for name in names:
        for count in map(int, args.ranks.split(",")):
            parts = [IN_PARTS] if count > 1 and workload(WORKLOADS[name][1]).update.slots else []
            measure(contest, name, count, None, [OURS, *parts, DDP], "one machine, loopback")
    notes = list(NOTES)
    if not args.no_link:
        notes += _over_the_link(contest, names, args.mbit, args.delay_ms)
    title = "Scaling out" + ", a rehearsal of few short blocks" * args.quick
    found = document(contest, machine(), title=title, notes=notes,
                     workloads={name: WORKLOADS[name][0] for name in names})  # fmt: skip
    save(found, args.out / "scaling_out.json", tables(found), draw)
    for grid in tables(found):
        grid.show()


def _over_the_link(
    contest: Contest, names: Sequence[str], mbit: int, delay_ms: float
) -> Iterator[str]:
    """Measure two ranks on a link; notes about it."""
    place = f"{mbit:g} Mbit/s, {delay_ms:g} ms each way"
    try:
        with shaped_link(mbit, delay_ms) as link:
            for name in names:
                measure(contest, name, 2, link, [OURS, IN_ONE_PIECE, DDP], place)
            yield f"The link is made of {link.how}."
    except LinkRefusedError as error:
        yield f"No link was measured: {error}."


if __name__ == "__main__":
    main()
