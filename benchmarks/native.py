"""Train steps with and without the operators of flow2onnx-native, side by side.

    python -m benchmarks.native [--rows "lenet|encoder"] [--only Fused,Conv] [--threads 1]

Each of the two is a process of its own; they run blocks of steps in turn. Ratios are the time
without by the time with: above 1 the operators pay. Wall time is what counts on a quiet machine;
processor time is what is left to look at on one that others use. `--each` measures every operator
by itself too. Winograd is no operator, but how those of convolutions may compute; what it brings is
told by `--against Fused,Conv,ConvInputGradient,ConvWeightGradient`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from benchmarks.workloads import workload

ROWS = {
    "mlp": 60, "lenet": 6, "resnet18": 1, "resnet50": 1, "encoder": 2,
    "encoder:layers=2,units=768": 1, "wide": 20,
}  # fmt: skip
# Threads of the side that ran before spin for a while, on processors that the next one needs.
REST_SECONDS = 0.3
OPERATORS = (
    "Fused", "FusedChannels", "Rows", "AddRows", "PutRows", "CrossEntropy", "MaxPool",
    "MaxPoolGradient", "Pack", "PackedProduct", "Recurrence", "RecurrenceGradient", "Attention",
    "AttentionGradient", "Conv", "ConvInputGradient", "ConvWeightGradient", "Winograd", "Product",
)  # fmt: skip


class Side:
    """A process that runs steps with some of the operators."""

    def __init__(self, row: str, operators: Sequence[str], threads: int) -> None:
        command = [sys.executable, "-m", "benchmarks.native", "--child", ",".join(operators) or "-"]
        self.process = subprocess.Popen(
            [*command, "--rows", row.replace(",", ";"), "--threads", str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.told = json.loads(self._line())
        self.blocks: list[tuple[float, float]] = []

    def run(self, steps: int, *, counts: bool = True) -> None:
        assert self.process.stdin is not None
        time.sleep(REST_SECONDS)
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        wall, busy = json.loads(self._line())
        if counts:
            self.blocks.append((wall / steps, busy / steps))

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()

    def median(self, which: int) -> float:
        return statistics.median(block[which] for block in self.blocks)

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
    accelerator.open_library = lambda: kept  # type: ignore[assignment]  # one operator at a time
    if "Winograd" not in operators:
        accelerator.rewrite_training = lambda *given, winograd, avx512: rewrite(
            *given, winograd=False, avx512=avx512
        )
    work, variant = workload(row), frozenset(["native"] if kept.operators else [])
    step = peer.training(work, work.variables(), work.data(), Options(variant, threads))
    losses = [float(step(0)) for _ in range(3)]
    print(json.dumps(losses), flush=True)
    for line in sys.stdin:
        wall, busy = time.perf_counter(), time.process_time()
        for i in range(int(line)):
            step(i)
        print(json.dumps((time.perf_counter() - wall, time.process_time() - busy)), flush=True)


def measure(
    row: str, operators: Sequence[str], others: Sequence[str], threads: int, blocks: int
) -> str:
    """One line of the table."""
    sides = [Side(row, others, threads), Side(row, operators, threads)]
    steps = ROWS[row]
    for block in range(blocks + 1):
        for side in sides if block % 2 else sides[::-1]:
            side.run(steps, counts=block > 0)
    for side in sides:
        side.end()
    without, native = sides
    shown = "all" if len(operators) == len(OPERATORS) else ", ".join(operators)
    walls, busy = ([side.median(which) for side in sides] for which in (0, 1))
    difference = max(
        abs(a - b) / max(abs(a), 1e-9) for a, b in zip(without.told, native.told, strict=True)
    )
    return (
        f"| {row} | {threads} | {shown} "
        f"| {1000 * walls[0]:.2f} | {1000 * walls[1]:.2f} | {walls[0] / walls[1]:.3f} "
        f"| {busy[0] / busy[1]:.3f} | {difference:.1e} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", default="|".join(ROWS), help="workloads, with | between them")
    parser.add_argument("--only", default=",".join(OPERATORS))
    parser.add_argument("--against", default="", help="what the other side has; usually nothing")
    parser.add_argument("--each", action="store_true", help="each operator by itself too")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        child(args.rows.replace(";", ","), args.child.split(","), args.threads)
        return
    only, others = args.only.split(","), [o for o in args.against.split(",") if o]
    sets = [only, *([o] for o in only if args.each and o != "Winograd")]
    print("| workload | threads | operators | without ms | with ms | ratio | by processor time "
          "| losses differ |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for row in args.rows.split("|"):
        for operators in sets:
            print(measure(row, operators, others, args.threads, args.blocks), flush=True)


if __name__ == "__main__":
    main()
