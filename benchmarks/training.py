"""The training step of the documentation's MLP and LeNet beside the same step in torch.

    python benchmarks/training.py [--workload mlp] [--threads 1] [--blocks 25] [--json FILE]

Every peer is a process of its own; they are asked for blocks of steps in turn, so that whatever
else the machine does hits all of them. Ratios are peer time / ours: above 1 we are faster. MKL
takes its slow path on processors that are not Intel's; "mkl-fast" answers its vendor question yes.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

HERE = Path(__file__).parent
STEPS = {"mlp": 50, "lenet": 4}
PEERS = {
    "mlp": [("flow2onnx", False), ("torch", False), ("torch", True)],
    "lenet": [("flow2onnx", False), ("torch", False), ("torch", True),
              ("torch-channels-last", True)],
}  # fmt: skip


class Peer:
    def __init__(self, name: str, workload: str, threads: int, preload: str | None) -> None:
        self.label = f"{name}{' mkl-fast' if preload else ''}"
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        if preload:
            environment["LD_PRELOAD"] = preload
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "peers.py"), name, workload],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, env=environment,
        )  # fmt: skip
        facts = json.loads(self._line())
        self.first_step_s, self.losses = facts["first_step_s"], facts["losses"]
        self.times: list[float] = []
        self.peak_mb = 0.0

    def run(self, steps: int) -> None:
        self._tell(f"run {steps}")
        self.times.append(float(self._line()) / steps)

    def end(self) -> None:
        self._tell("end")
        self.peak_mb = float(self._line())
        self.process.wait()

    def _tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{self.label} ended early: run benchmarks/peers.py by hand to see why")
        return line


def mkl_fast(folder: str) -> str | None:
    """A library that tells MKL the processor is Intel's, where there is a C compiler to make it."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = Path(folder, "fast.c"), Path(folder, "fast.so")
    source.write_text("int mkl_serv_intel_cpu_true(void) { return 1; }\n")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return str(library)


def measure(
    workload: str, threads: int, blocks: int, preload: str | None
) -> list[dict[str, object]]:
    peers = [
        Peer(name, workload, threads, preload if fast else None)
        for name, fast in PEERS[workload]
        if not fast or preload
    ]
    ours = peers[0]
    for peer in peers[1:]:
        differences = [abs(a - b) / b for a, b in zip(ours.losses, peer.losses, strict=True)]
        assert max(differences) < 1e-4, f"{peer.label} computes something else: {differences}"
    for peer in peers:
        peer.run(STEPS[workload])
        peer.times.clear()
    for _ in track(range(blocks), f"{workload}, {threads} thread(s)"):
        for peer in peers:
            peer.run(STEPS[workload])
    for peer in peers:
        peer.end()
    base = statistics.median(ours.times)
    return [
        {
            "workload": workload, "threads": threads, "peer": p.label,
            "ms": round(1000 * statistics.median(p.times), 4),
            "spread": round(statistics.quantiles(p.times, n=4)[2] / statistics.median(p.times), 3),
            "ratio": round(statistics.median(p.times) / base, 3),
            "first_step_s": round(p.first_step_s, 3), "peak_mb": round(p.peak_mb),
        }
        for p in peers
    ]  # fmt: skip


def processor() -> str:
    """The name of the processor, where the system tells it."""
    facts = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.+)", facts.read_text()) if facts.exists() else []
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workload", choices=list(STEPS), action="append")
    parser.add_argument("--threads", type=int, action="append")
    parser.add_argument("--blocks", type=int, default=25)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        preload = mkl_fast(folder)
        for threads in options.threads or [1]:
            for workload in options.workload or list(STEPS):
                rows += measure(workload, threads, options.blocks, preload)
    table = Table(title="training step; ratio = peer time / flow2onnx time")
    for column in rows[0]:
        table.add_column(column, justify="right" if column not in ("workload", "peer") else "left")
    for row in rows:
        table.add_row(*map(str, row.values()))
    Console().print(table)
    if options.json:
        packages = ("onnxruntime", "torch", "numpy")
        machine = {"processor": processor(), "cores": os.cpu_count()}
        versions = {"python": platform.python_version(), **{p: version(p) for p in packages}}
        document = {"machine": machine, "versions": versions, "rows": rows}
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
