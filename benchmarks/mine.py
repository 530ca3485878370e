"""A user's own job: how long a step takes, beside its twin and the machine's limits, and why.

    python -m benchmarks.training --mine train.py:train_job [--data FILE.npz] [--threads 1]
    python -m benchmarks.training --mine train.py:train_job --twin twins.py:torch_step

The job is that of a script or module, as for `flow2onnx explain`. Its inputs are drawn by the
shapes of its placeholders, labels and rows of tables within their limits, unless `--data` names a
file of numpy.savez with an array for each input, of one batch or of several along a first axis.

The twin is a function that gets the first values of the job's variables, a dict of arrays by name,
and returns a function: that takes the arrays of a batch, makes one training step, and returns the
loss. It is timed if the losses of three steps on one batch are those of the job, its first result.
"""

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.contest import (
    QUICK,
    Contestant,
    Pace,
    Peer,
    Row,
    disagreement,
    fill,
    machine,
    take_turns,
)
from benchmarks.environments import ROOT
from benchmarks.report import Grid
from benchmarks.roofline import Ceilings, Cost
from benchmarks.worker_process import PeerError, WorkerProcess

_TRACED = 20  # steps whose operators are timed
_WARM = 3  # that a worker makes before
_TOP = 12  # nodes of the table
_PRODUCTS = frozenset({
    "MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Product", "PackedProduct", "Attention",
    "AttentionGradient",
})  # fmt: skip
_CONVOLUTIONS = frozenset({
    "Conv", "ConvTranspose", "FusedConv", "ConvInputGradient", "ConvWeightGradient",
})  # fmt: skip
_MOVES = frozenset({
    "Cast", "Concat", "Expand", "Gather", "GatherElements", "GatherND", "Pad", "Slice", "Split",
    "Tile", "Transpose",
})  # fmt: skip
_SHARE = 0.25  # of a step, worth a word
_NEAR, _FAR = 0.7, 0.35  # of the machine's products


@dataclass(frozen=True)
class Timed:
    """A node of the opened graph, and its milliseconds in a step."""

    name: str
    operator: str
    ms: float


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure a job as the command line says, and print what takes the time."""
    args = _arguments(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            rows, about = _measure(args, folder)
            nodes = trace_of(_write_trace(args, folder))
            ceilings = _ceilings(args)
        except PeerError as error:
            sys.exit(f"{args.mine}: {error}")
    found = findings(args.mine, rows, about, nodes, ceilings, os.cpu_count() or 1)
    _print(found)
    if args.json:
        args.json.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.training", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--mine", metavar="MODULE:job", required=True)
    parser.add_argument("--twin", metavar="MODULE:function")
    parser.add_argument("--python", default=sys.executable,
                        help="the interpreter that has the twin's library")  # fmt: skip
    parser.add_argument("--data", type=Path, metavar="FILE.npz")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tolerance", type=float, default=1e-4,
                        help="how far losses may differ, relatively")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--json", type=Path, help="write the findings there too")
    args = parser.parse_args(arguments)
    if args.threads < 1:
        parser.error(f"--threads {args.threads}: give 1 or more")
    return args


def _measure(args: argparse.Namespace, folder: Path) -> tuple[list[Row], dict[str, Any]]:
    """The rows of the job and of its twin, blocks in turn, and what the job tells of itself."""
    ours = Contestant("flow2onnx", args.mine)
    rows = {ours.label: Row(args.mine, args.threads, ours.label)}
    peers = [_peer(ours, _command(args, "job", args.mine, folder))]
    try:
        if args.twin is not None:
            twin = Contestant("twin", args.twin)
            row = rows[twin.label] = Row(args.mine, args.threads, twin.label)
            command = _command(args, "twin", args.twin, folder)
            peer = _peer(twin, [args.python, *command[1:]])
            row.note = disagreement(
                peer.facts["results"], peers[0].facts["results"], args.tolerance
            )
            if row.note:
                peer.close()
            else:
                peers.append(peer)
        take_turns(peers, rows, QUICK if args.quick else Pace())
        if rows[ours.label].note:
            raise PeerError(rows[ours.label].note)
        for peer in peers:
            peer.end()
            fill(rows[peer.who.label], peer, peers[0])
    finally:
        for peer in peers:
            peer.close()
    return list(rows.values()), peers[0].facts["about"]


def _peer(who: Contestant, command: Sequence[str]) -> Peer:
    peer = Peer(who, command, _environment())
    if "fault" in peer.facts:
        peer.close()
        raise PeerError(peer.facts["fault"])
    return peer


def _environment() -> dict[str, str]:
    """The environment of a worker: the project goes first, then what this process finds."""
    own = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    paths = [str(ROOT), str(ROOT / "runtime" / "python"), *own]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "FLOW2ONNX_CACHE": "0",  # the first step is as the first time
    }


def _command(args: argparse.Namespace, role: str, target: str, folder: Path) -> list[str]:
    data = ["--data", str(args.data.absolute())] if args.data and role == "job" else []
    return [
        sys.executable, "-m", "benchmarks.mine_worker", role, target, str(folder), "--home",
        str(Path.cwd()), "--threads", str(args.threads), "--offset", str(os.getpid()), *data,
    ]  # fmt: skip


def _write_trace(args: argparse.Namespace, folder: Path) -> Path:
    """The trace that the runtime writes of some steps of the job."""
    worker = WorkerProcess([*_command(args, "job", args.mine, folder), "--profile"], _environment())
    try:
        facts = worker.record()
        if "fault" in facts:
            raise PeerError(facts["fault"])
        worker.tell(f"run {_TRACED}")
        worker.numbers(2)
        worker.tell("end")
        worker.numbers(1)
        worker.wait()
    finally:
        worker.close()
    traces = sorted(folder.glob("flow2onnx*.json"), key=lambda p: p.stat().st_size)
    if not traces:
        raise PeerError("the runtime wrote no trace of its operators")
    return traces[-1]


def trace_of(path: Path) -> list[Timed]:
    """The nodes of a trace of onnxruntime with the milliseconds of one step, the longest first."""
    events = json.loads(path.read_text(encoding="utf-8"))
    runs = [e for e in events if e.get("name") == "model_run"]
    after = runs[_WARM - 1]["ts"] + runs[_WARM - 1]["dur"] if len(runs) > _WARM else 0
    count = sum(e["ts"] >= after for e in runs) or 1
    sums, operators = Counter[str](), dict[str, str]()
    for event in events:
        name = str(event.get("name", ""))
        if name.endswith("_kernel_time") and event["ts"] >= after:
            node = name.removesuffix("_kernel_time")
            sums[node] += event["dur"]
            operators[node] = event.get("args", {}).get("op_name", "")
    return [Timed(n, operators[n], us / 1000 / count) for n, us in sums.most_common()]


def _ceilings(args: argparse.Namespace) -> Ceilings:
    """The ceilings of the processors, measured in a process with as many as the job had."""
    command = [sys.executable, "-m", "benchmarks.ceilings", "--threads", str(args.threads)]
    worker = WorkerProcess([*command, *(["--quick"] if args.quick else [])], _environment())
    try:
        return Ceilings(**worker.record())
    finally:
        worker.close()


def findings(
    name: str, rows: Sequence[Row], about: Mapping[str, Any], nodes: Sequence[Timed],
    ceilings: Ceilings, cores: int,
) -> dict[str, Any]:  # fmt: skip
    """All that the measurement tells: numbers, and sentences with what to try."""
    ours, *others = rows
    assert ours.ms is not None, "what was not timed ended with an error"
    # processors multiply halves in float32
    costs, opened = ({n: replace(Cost(*cost), precision="float32") for n, cost in found.items()}
                     for found in (about["costs"], about["opened_costs"]))  # fmt: skip
    known = costs | opened
    flops = sum(cost.flops for cost in costs.values())
    arithmetic = 1e3 * flops / ceilings.products["float32"]
    return {
        "job": name,
        "machine": machine(),
        "versions": about["versions"],
        "threads": ours.threads,
        "ms": ours.ms,
        "quartiles": ours.quartiles,
        "first_step_s": ours.first_step_s,
        "peak_mb": ours.peak_mb,
        "nodes": about["nodes"],
        "native": about["native"],
        "twin": [{"ms": r.ms, "ratio": r.ratio, "note": r.note} for r in others],
        "gflops": ceilings.products["float32"] / 1e9,
        "gb_per_s": ceilings.bandwidth / 1e9,
        "arithmetic_ms": arithmetic,
        "node_by_node_ms": sum(1e3 * cost.seconds(ceilings) for cost in costs.values()),
        "top": [
            _line(t, ours.ms, known.get(t.name.removeprefix("fused ")), ceilings)
            for t in nodes[:_TOP]
        ],
        "try": list(_advice(ours, about, nodes, arithmetic, cores)),
    }


def _line(timed: Timed, step: float, cost: Cost | None, ceilings: Ceilings) -> dict[str, Any]:
    least = None if cost is None else 1e3 * cost.seconds(ceilings)
    return {
        "node": timed.name, "operator": timed.operator, "ms": timed.ms,
        "share": timed.ms / step, "least_ms": least,
    }  # fmt: skip


def _advice(
    ours: Row, about: Mapping[str, Any], nodes: Sequence[Timed], arithmetic: float, cores: int
) -> Iterator[str]:
    """Sentences on what takes the time, each with what to try."""
    step = ours.ms or 0.0
    total = sum(t.ms for t in nodes)
    shares = {kind: sum(t.ms for t in nodes if t.operator in kind) / step
              for kind in (_PRODUCTS | _CONVOLUTIONS, _MOVES)}  # fmt: skip
    products, moves = shares.values()
    updates = set(about["updates"])
    updating = sum(t.ms for t in nodes if t.name in updates) / step
    if about["kind"] == "train" and not about["native"] and not about["has_native"]:
        yield (
            "The step runs on the runtime's own operators: install flow2onnx-native, whose "
            "operators take the place of most of a training step; exported files stay standard."
        )
    if step - total > _SHARE * step:
        yield (
            f"{_percent(1 - total / step)} of the step is not in its nodes but in the call: a "
            "step this short gains from larger batches more than from anything else."
        )
    if products > _SHARE:
        reached = arithmetic / (products * step)
        said = f"{_percent(products)} of the step are products and convolutions, at "
        said += f"{_percent(reached)} of what the machine reaches"
        if reached > _NEAR:
            yield f"{said}: only less arithmetic, or more threads, makes it faster."
        elif reached < _FAR:
            yield (
                f"{said}: small or narrow ones are slow. Larger batches, channels and units that "
                "are multiples of 16, and one wide product in place of several, come nearer."
            )
        else:
            yield f"{said}."
    if moves > _SHARE / 2:
        yield (
            f"{_percent(moves)} of the step copies numbers from place to place "
            f"({_names(nodes, _MOVES)}): look at slices, transpositions and concatenations "
            "in loops, which one operation over the whole tensor replaces."
        )
    if updating > _SHARE:
        yield (
            f"{_percent(updating)} of the step updates variables: more examples in a batch share "
            "one update, and config.train.num_gradient_accumulation_steps several batches."
        )
    if ours.threads < cores and step > 1:
        yield f"There are {cores} cores, and {ours.threads} took part: compare --threads {cores}."


def _names(nodes: Sequence[Timed], operators: frozenset[str]) -> str:
    sums = Counter[str]()
    for timed in nodes:
        if timed.operator in operators:
            sums[timed.operator] += timed.ms  # type: ignore[assignment]  # floats
    return ", ".join(name for name, _ in sums.most_common(3))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _print(found: Mapping[str, Any]) -> None:
    low, high = found["quartiles"]
    native = sum(found["native"].values())
    threads = f"{found['threads']} thread{'s' * (found['threads'] > 1)}"
    print(
        f"{found['job']}: {found['ms']:.4g} ms a step ({low:.4g} … {high:.4g}) on {threads} of "
        f"{found['machine']['processor']}; {found['nodes']} nodes"
        f"{f', {native} native operators opened' if native else ''}; first step "
        f"{found['first_step_s']:.2f} s; {found['peak_mb']:.0f} MB at most"
    )
    for twin in found["twin"]:
        if twin["note"]:
            print(f"The twin was {twin['note']}.")
        else:
            print(
                f"The twin takes {twin['ms']:.4g} ms, {twin['ratio']:.2f} times as long; the "
                "losses of three steps are the same."
            )
    print(
        f"Here products reach {found['gflops']:.4g} GFLOP/s and memory {found['gb_per_s']:.4g} "
        f"GB/s. The arithmetic of the step alone takes {found['arithmetic_ms']:.4g} ms at that, "
        f"and node by node, each at its limit, {found['node_by_node_ms']:.4g} ms."
    )
    lines = [
        [t["node"], t["operator"], f"{t['ms']:.4g}", _percent(t["share"]),
         "-" if t["least_ms"] is None else f"{t['least_ms']:.3g}"]
        for t in found["top"]
    ]  # fmt: skip
    Grid(
        "what takes the time", ["node", "operator", "ms a step", "share", "at least"], lines
    ).show()
    for sentence in found["try"]:
        print(f"- {sentence}")
