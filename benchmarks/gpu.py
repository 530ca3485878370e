"""Training steps on one NVIDIA GPU beside torch, torch.compile and JAX, and the share of its best.

    python -m benchmarks.gpu [--rows resnet50,bert] [--precisions tf32,float16] [--seconds 500]
    python -m benchmarks.gpu --rehearse --out FOLDER     # small networks: does it run at all?

writes gpu.json, after every row anew, gpu.md and gpu.svg. It needs onnxruntime-gpu, and
flow2onnx-native (`pip install ./runtime/native`) for the operators for CUDA; of the peers those
take part that this Python or an environment of `benchmarks.environments` has with a GPU. No result
lies in `benchmarks/results/`: this program has run over a stand-in for CUDA and on no GPU.

The arithmetic of a step is three times that of the forward pass. Its traffic is the least there can
be: each result of the forward pass is written once and read twice, its gradient written and read,
and an update reads gradient, variable and moments and writes them; so the true share is higher.
The roofline of a step is the longer of both at the ceilings that `benchmarks.ceilings` measures
first; that of our graph is the sum over its nodes (`benchmarks.roofline`).
"""

import argparse
import contextlib
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from flow2onnx_runtime.files import replace_file
from flow2onnx_runtime.progress_bar import ProgressBar

from benchmarks.ceilings import best_of
from benchmarks.contest import QUICK, Contest, Contestant, Pace, Row, Setting, machine
from benchmarks.driver import RESULTS
from benchmarks.environments import ROOT
from benchmarks.report import Grid, document, draw, ratios, save
from benchmarks.roofline import Ceilings, Cost, by_operator, least_ms
from benchmarks.workloads import Workload, workload

# by name: what it is called, the workload, and a small one for a rehearsal
ROWS = {
    "mlp": ("MLP, batch 100, SGD", "mlp", "mlp:batch=4,hidden=8"),
    "lenet": ("LeNet, batch 100, SGD", "lenet", "lenet:batch=2"),
    "resnet50": ("ResNet-50, 224 px, batch 64, momentum", "resnet50:batch=64",
                 "resnet50:batch=2,side=64,width=8,classes=5"),
    "bert": ("BERT base's encoder, 32 × 128 tokens, Adam",
             "encoder:batch=32,layers=12,units=768,vocabulary=30522",
             "encoder:batch=2,length=4,layers=1,units=8,heads=2,vocabulary=7"),
    "gpt2": ("GPT-2 small, 8 × 512 tokens, Adam", "decoder",
             "decoder:batch=2,length=4,layers=1,units=8,heads=2,vocabulary=7"),
    "wide": ("embedding of 200 000 rows, batch 512, SGD", "wide",
             "wide:batch=4,rows=50,width=2,fields=3,hidden=5"),
}  # fmt: skip
CONVOLUTIONS = ("lenet", "resnet50")
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
NOTES = (
    "Ratios are the time of the peer divided by ours. Every step copies its batch to the GPU and "
    "reads its loss. float16 and bfloat16 are mixed precision, weights in float32.",
    "Shares are of what was measured on the device just before, and of its maker's word for dense "
    "matrices, without sparsity (float32 is that of the ordinary units). *of roofline*: the least "
    "time of the workload by arithmetic or traffic, divided by the time. *of graph*: the least "
    "time of our graph, node by node, divided by ours.",
)
REHEARSAL = "a rehearsal on small networks: the numbers mean nothing"

# by a part of the device's name: TFLOP/s in float32, tf32, float16 and bfloat16, and GB/s, as in
# the maker's data sheets for dense matrices; the T4 has no tf32 and computes in float32
PEAKS = {
    "H200": (67.0, 494.7, 989.4, 4800.0),
    "H100 PCIe": (51.2, 378.0, 756.0, 2000.0),
    "H100": (66.9, 494.7, 989.4, 3350.0),
    "A100-SXM4-80GB": (19.5, 156.0, 312.0, 2039.0),
    "A100 80GB PCIe": (19.5, 156.0, 312.0, 1935.0),
    "A100": (19.5, 156.0, 312.0, 1555.0),
    "L40S": (91.6, 183.0, 362.0, 864.0),
    "L4": (30.3, 60.0, 121.0, 300.0),
    "A10": (31.2, 62.5, 125.0, 600.0),
    "T4": (8.1, 8.1, 65.0, 320.0),
}


def peaks(device: str, precision: str) -> tuple[float, float] | None:
    """FLOP/s and bytes/s that a device has by its maker's word; None if it is not in the table."""
    for name, (single, tf32, half, bandwidth) in PEAKS.items():
        if f" {name} " in f" {device} ".replace("-", " ") or f" {name} " in f" {device} ":
            rate = {"float32": single, "tf32": tf32}.get(precision, half)
            return rate * 1e12, bandwidth * 1e9
    return None


def flops(work: Workload) -> float:
    """The arithmetic of a step: forward, and two products of the same size backward for each."""
    return 3.0 * work.sizes.flops


def traffic(work: Workload, precision: str) -> float:
    """The least bytes that a step moves, by the count of this module's docstring."""
    width = 2 if precision in ("float16", "bfloat16") else 4
    weights = sum(math.prod(shape) for shape in work.sizes.variables.values())
    moved = 3 + 2 * work.update.slots  # the gradient is read; the rest is read and written
    return 5.0 * width * work.sizes.elements + 4.0 * weights * (moved + 1)


def shares(
    work: Workload, precision: str, ms: float, device: str, ceilings: Ceilings | None = None
) -> dict[str, float]:
    """The achieved rates of a step, and their share of what the device does at best.

    That is its maker's word where the table has it, and what was measured, if it was.
    """
    rate, bytes_rate = flops(work) / ms * 1e3, traffic(work, precision) / ms * 1e3
    found = {"TFLOP/s": rate / 1e12, "GB/s": bytes_rate / 1e9}
    known = peaks(device, precision)
    if known is not None:
        found |= {"arithmetic": rate / known[0], "bandwidth": bytes_rate / known[1]}
    if ceilings is not None:
        of_products = rate / ceilings.products[precision]
        of_memory = bytes_rate / ceilings.bandwidth
        found |= {"of products": of_products, "of memory": of_memory}
        found["of roofline"] = max(of_products, of_memory)
    return found


def graph_shares(about: dict[str, Any], ms: float, ceilings: Ceilings) -> dict[str, float]:
    """Our least time node by node, and its share of the time taken; empty for peers."""
    found = [Cost(*cost) for cost in about.get("costs", ())]
    if not found:
        return {}
    least = least_ms(found, ceilings)
    return {"nodes": about["nodes"], "captured": about["captured"], "least ms": least,
            "of graph": least / ms}  # fmt: skip


def device_name() -> str:
    """The name of the first GPU, as its driver tells it; ends the program if there is none."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise SystemExit(
            "nvidia-smi was not found: these benchmarks need an NVIDIA GPU and its driver; "
            "`python -m benchmarks.training` measures the processor"
        ) from None
    names = done.stdout.splitlines()
    if done.returncode or not names:
        raise SystemExit(f"nvidia-smi lists no GPU: {(done.stdout + done.stderr).strip()}")
    return names[0].strip()


def measured_ceilings(*, rehearses: bool) -> tuple[Ceilings, dict[str, Any]]:
    """The ceilings of the device by each library; ends the program without a number."""
    command = [sys.executable, "-m", "benchmarks.ceilings", *(["--quick"] if rehearses else [])]
    paths = [str(ROOT), str(ROOT / "runtime" / "python"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )  # fmt: skip
    try:
        told = json.loads(done.stdout)
        return best_of(told), told
    except ValueError as error:
        raise SystemExit(
            f"no ceiling of the GPU was measured: {error} {done.stderr[-500:]}"
        ) from None


def contestants(row: str, peers: list[str]) -> list[Contestant]:
    """Who takes part: ours first, then those with one of `peers` in their names, or all."""
    layout = ":channels_last" if row in CONVOLUTIONS else ""
    others = [
        Contestant("flow2onnx, native", "flow2onnx:native"),
        Contestant("torch", f"torch{layout}"),
        Contestant("torch.compile", f"torch:compile{layout.replace(':', ',')}"),
        Contestant("JAX", "jax"),
    ]
    chosen = [who for who in others if not peers or any(part in who.label for part in peers)]
    return [Contestant("flow2onnx", "flow2onnx"), *chosen]


class Measurement:
    """The rows asked for, one after another, and the document of those that are done."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.begun = args, time.monotonic()
        self.device = "a rehearsal" if args.rehearse else device_name()
        self.ceilings, told = measured_ceilings(rehearses=args.rehearse)
        self.contest = Contest(QUICK if args.rehearse or args.quick else Pace())
        self.threads = max(1, min(8, (os.cpu_count() or 2) // 2))  # compilers take them all
        self.facts = machine() | {"GPU": self.device, "ceilings": told}
        self.operators: dict[str, dict[str, float]] = {}

    def run(self) -> None:
        """Measure every row, and write the document after each."""
        pairs = [(row, precision) for row in self.args.rows for precision in self.args.precisions]
        with _bar(self.contest, len(pairs) * len(contestants("mlp", self.args.peers))):
            for row, precision in pairs:
                rows = self._measure(row, precision)
                self.args.out.mkdir(parents=True, exist_ok=True)
                replace_file(self.args.out / "gpu.json", _writer(self.document()))
                for found in rows:
                    words = [found.workload, found.peer, _cell(found.ms, "{:.4g} ms"), found.note]
                    print(*words, file=sys.stderr, flush=True)

    def _measure(self, row: str, precision: str) -> list[Row]:
        """The rows of one workload in one precision, with their shares."""
        name, who = f"{row} {precision}", contestants(row, self.args.peers)
        if self.args.seconds and time.monotonic() - self.begun > self.args.seconds:
            late = f"not run: {self.args.seconds:.0f} seconds were over"
            rows = [Row(name, self.threads, w.label, late, precision=precision) for w in who]
            self.contest.rows += rows
            return rows
        work = ROWS[row][2 if self.args.rehearse else 1]
        setting = Setting("training", work, self.threads, device="cuda", precision=precision)
        rows = self.contest.measure(name, setting, who)
        for found in rows:
            self._add_shares(found, workload(work))
        return rows

    def _add_shares(self, row: Row, work: Workload) -> None:
        about, row.about = row.about, {}
        if row.ms is None:
            return
        row.extra = shares(work, row.precision, row.ms, self.device, self.ceilings)
        row.extra |= graph_shares(about, row.ms, self.ceilings)
        if "costs" in about:
            found = [Cost(*cost) for cost in about["costs"]]
            name = row.workload + ("" if row.peer == "flow2onnx" else ", native")
            self.operators[name] = by_operator(found, self.ceilings)

    def document(self) -> dict[str, Any]:
        """All that is known so far."""
        title = "Training steps on a GPU" + (f", {REHEARSAL}" if self.args.rehearse else "")
        return document(
            self.contest, self.facts, title=title, notes=NOTES, least_ms=self.operators,
            workloads={row: ROWS[row][0] for row in self.args.rows},
        )  # fmt: skip


@contextlib.contextmanager
def _bar(contest: Contest, total: int) -> Iterator[None]:
    """A bar on the terminal that a contest moves by each peer that starts."""
    bar, started = ProgressBar(), count()
    bar.begin("GPU", 0, total)
    contest.tell = lambda text: bar.show(next(started), text)
    try:
        yield
    finally:
        bar.close()


def _writer(found: dict[str, Any]) -> Any:
    content = json.dumps(found, indent=1, ensure_ascii=False)
    return lambda file: file.write(f"{content}\n".encode())


def tables(rows: list[dict[str, Any]]) -> list[Grid]:
    """The ratios of the peers, what each achieves, and who is absent for which reason."""
    ran = [row for row in rows if row["ms"] is not None]
    rates = {"TFLOP/s": ".3g", "of products": ".1%", "arithmetic": ".1%", "GB/s": ".3g",
             "of memory": ".1%", "bandwidth": ".1%", "of roofline": ".1%"}  # fmt: skip
    titles = ["TFLOP/s", "of measured", "of peak", "least GB/s", "of measured", "of peak",
              "of roofline"]  # fmt: skip
    ours = [row for row in ran if "of graph" in row["extra"]]
    graphs = {"nodes": "d", "captured": "d", "least ms": ".3g", "of graph": ".1%"}
    absent = [[r["workload"], r["peer"], r["note"]] for r in rows if r["ms"] is None]
    return [
        *ratios(rows),
        _grid("achieved rates", ran, rates, titles),
        _grid("our graphs", ours, graphs, ["nodes", "captured", "least ms", "of graph"]),
        *([Grid("absent", ["", "peer", "why"], absent)] if absent else []),
    ]


def _grid(title: str, rows: list[dict[str, Any]], forms: dict[str, str], titles: list[str]) -> Grid:
    lines = [
        [row["workload"], row["peer"], _cell(row["ms"], "{:.4g}"),
         *(_cell(row["extra"].get(key), f"{{:{form}}}") for key, form in forms.items())]
        for row in rows
    ]  # fmt: skip
    return Grid(title, ["", "peer", "ms", *titles], lines)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=_words, default=list(ROWS), help=f"of {', '.join(ROWS)}")
    parser.add_argument("--precisions", type=_words, default=list(PRECISIONS[1:]),
                        help=f"of {', '.join(PRECISIONS)}")  # fmt: skip
    parser.add_argument("--peers", type=_words, default=[],
                        help="only those with one of these in their names")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="few short blocks")
    parser.add_argument("--rehearse", action="store_true", help=REHEARSAL)
    parser.add_argument("--seconds", type=float, help="begin no row after so many")
    parser.add_argument("--json", action="store_true", help="the document on stdout, not tables")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(given)
    for name, known in (("rows", ROWS), ("precisions", PRECISIONS)):
        wrong = [word for word in getattr(args, name) if word not in known]
        if wrong:
            parser.error(f"--{name}: there is no {wrong[0]!r}; there are {', '.join(known)}")
    if args.rehearse and args.out == RESULTS:
        parser.error("--rehearse needs --out FOLDER: its numbers are no results")
    return args


def _words(text: str) -> list[str]:
    return text.split(",")


def main(given: list[str] | None = None) -> None:
    """Measure, write the files, and show the tables or the document."""
    args = _arguments(given)
    measurement = Measurement(args)
    measurement.run()
    found = measurement.document()
    grids = tables(found["rows"])
    with contextlib.redirect_stdout(sys.stderr):
        save(found, args.out / "gpu.json", grids, draw)
    if args.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
        return
    for grid in grids:
        grid.show()


if __name__ == "__main__":
    main()
