"""Training steps on one NVIDIA GPU beside torch, torch.compile and JAX, and the share of its peak.

    python -m benchmarks.gpu [--rows mlp,lenet,resnet50,bert] [--precisions float32,tf32] [--quick]

writes gpu.json, gpu.md and gpu.svg. It needs onnxruntime-gpu and torch with CUDA where it runs, and
`jax[cuda13]` in .venv/bench-jax. No result lies in `benchmarks/results/`, and this program has not
been run on a GPU yet: only its arithmetic and its tables are tested.

The arithmetic of a step is three times that of the forward pass. Its traffic is the least there can
be: each result of the forward pass is written once and read twice, its gradient written and read,
and an update reads gradient, variable and moments and writes them; so the true share is higher.
"""

import argparse
import math
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.contest import QUICK, Contest, Contestant, Pace, Row, Setting, machine
from benchmarks.driver import RESULTS
from benchmarks.report import Grid, document, draw, ratios, save
from benchmarks.workloads import Workload, workload

ROWS = {
    "mlp": ("MLP, batch 100, SGD", "mlp"),
    "lenet": ("LeNet, batch 100, SGD", "lenet"),
    "resnet50": ("ResNet-50, 224 px, batch 64, momentum", "resnet50:batch=64"),
    "bert": (
        "BERT base's encoder, 32 × 128 tokens, Adam",
        "encoder:batch=32,layers=12,units=768,vocabulary=30522",
    ),
}
PRECISIONS = ("float32", "tf32", "float16", "bfloat16")
NOTES = (
    "Ratios are the time of the peer divided by ours. Every step copies its batch to the GPU and "
    "reads its loss. float16 and bfloat16 are mixed precision, weights in float32.",
    "Shares are of the peaks that the maker states for dense matrices, without sparsity; float32 "
    "is that of the ordinary units.",
)

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


def shares(work: Workload, precision: str, ms: float, device: str) -> dict[str, float]:
    """The achieved rates of a step, and their share of the device's peaks where these are known."""
    rate, bytes_rate = flops(work) / ms * 1e3, traffic(work, precision) / ms * 1e3
    found = {"TFLOP/s": rate / 1e12, "GB/s": bytes_rate / 1e9}
    known = peaks(device, precision)
    if known is not None:
        found |= {"arithmetic": rate / known[0], "bandwidth": bytes_rate / known[1]}
    return found


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


def contestants(row: str) -> list[Contestant]:
    """Who takes part; the first is ours."""
    layout = ":channels_last" if row in ("lenet", "resnet50") else ""
    return [
        Contestant("flow2onnx", "flow2onnx"),
        Contestant("torch", f"torch{layout}"),
        Contestant("torch.compile", f"torch:compile{layout.replace(':', ',')}"),
        Contestant("JAX", "jax"),
    ]


def measure(contest: Contest, row: str, precision: str, device: str) -> list[Row]:
    """The rows of one workload in one precision, with their shares."""
    name = ROWS[row][1]
    setting = Setting("training", name, threads=2, device="cuda", precision=precision)
    rows = contest.measure(f"{row} {precision}", setting, contestants(row))
    for found in rows:
        if found.ms is not None:
            found.extra = shares(workload(name), precision, found.ms, device)
    return rows


def table_of_shares(rows: list[dict[str, Any]]) -> Grid:
    """The rates that each peer achieves."""
    header = ["", "peer", "ms", "TFLOP/s", "of peak", "least GB/s", "of peak", ""]
    lines = []
    for r in rows:
        extra = r["extra"]
        forms = {"TFLOP/s": ".3g", "arithmetic": ".1%", "GB/s": ".3g", "bandwidth": ".1%"}
        numbers = [_cell(extra.get(key), f"{{:{form}}}") for key, form in forms.items()]
        lines.append([r["workload"], r["peer"], _cell(r["ms"], "{:.4g}"), *numbers, r["note"]])
    return Grid("achieved rates", header, lines)


def _cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--quick", action="store_true", help="few short blocks: a rehearsal")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    device = device_name()
    contest = Contest(QUICK if args.quick else Pace())
    for row in args.rows.split(","):
        for precision in args.precisions.split(","):
            for found in measure(contest, row, precision, device):
                print(found.workload, found.peer, found.ms, found.note, flush=True)
    found = document(
        contest, machine() | {"GPU": device}, title="Training steps on a GPU", notes=NOTES,
        workloads={row: ROWS[row][0] for row in args.rows.split(",")},
    )  # fmt: skip
    tables = [*ratios(found["rows"]), table_of_shares(found["rows"])]
    save(found, args.out / "gpu.json", tables, draw)
    for table in tables:
        table.show()


if __name__ == "__main__":
    main()
