"""Our server beside the real Triton and a bare ONNX Runtime: the same models, requests, machine.

    make triton
    python -m benchmarks.serving.compare [--seconds 2] [--rounds 3] [--json FILE] [--chart FILE]

One repository, written by `export_triton`, is served by both servers as it is, with batches as its
config.pbtxt says; Triton runs it by its Python backend. All sessions have the same number of
threads. The servers have half of the cores, the clients the others. The sides are measured in
turn, so that whatever else the machine does hits all of them; the medians of the rounds count.
The bare runtime runs one row at a time on as many threads as there are clients. Before anything is
timed, the answers of all sides are seen to be equal: bit for bit where there is one client, as
batches of several clients' rows may differ in the last bits.
"""

import argparse
import contextlib
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.contest import machine
from benchmarks.serving.jobs import NETWORKS, export_all
from benchmarks.serving.load import Load, figures, load_of, measure, tensor_of
from tests.serving.triton_server import Triton, installation

ROOT = Path(__file__).parents[2]
PROTOCOLS = ("http", "grpc")
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORES = CORES[: max(1, len(CORES) // 2)]
CLIENT_CORES = CORES[len(SERVER_CORES) :] or CORES
FIGURES = {
    "requests_per_s": "requests/s",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
    "cpu_ms_per_request": "CPU ms/request",
}


@dataclass
class Server:
    """A server that runs, and where."""

    name: str
    pid: int
    http: str
    grpc: str

    def version(self) -> str:
        """Its description of itself."""
        with urllib.request.urlopen(f"http://{self.http}/v2", timeout=60) as answer:
            return str(json.load(answer)["version"])

    def loads(self, model: str, count: int, protocols: Sequence[str]) -> Iterator["Side"]:
        tensor = tensor_of(self.http, model)
        for protocol in protocols:
            grpc = self.grpc if protocol == "grpc" else None
            load = load_of(self.http, grpc, tensor, count)
            yield Side(self.name, protocol, load, self.pid)


@dataclass
class Side:
    """One of what is compared; its figures, one for each round."""

    name: str
    protocol: str
    load: Load
    pid: int
    rounds: list[dict[str, float]] = field(default_factory=list)

    def warm_up(self, seconds: float) -> None:
        self.load.run(seconds)

    def run(self, seconds: float) -> None:
        self.rounds.append(measure(self.load, seconds, self.pid))

    def close(self) -> None:
        self.load.close()


class Bare:
    """The runtime without a server, in a process of its own."""

    name, protocol = "bare runtime", "none"

    def __init__(self, model: Path, threads: int, count: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "benchmarks" / "serving" / "bare.py", model, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._count = count
        self.rounds: list[dict[str, float]] = []
        self.results = [bytes.fromhex(text) for text in json.loads(self._line())]

    def warm_up(self, seconds: float) -> None:
        self._ask(seconds)

    def run(self, seconds: float) -> None:
        found = self._ask(seconds)
        self.rounds.append(figures(found["seconds"], found["elapsed"], found["processor"]))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()

    def _ask(self, seconds: float) -> dict:
        self._process.stdin.write(f"{self._count} {seconds}\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        line = self._process.stdout.readline()
        if not line:
            sys.exit("the bare runtime ended early: run benchmarks/serving/bare.py to see why")
        return line


@contextlib.contextmanager
def ours(repository: Path, threads: int) -> Iterator[Server]:
    """`flow2onnx-serve` on free ports."""
    command = [repository, "--port", 0, "--grpc-port", 0, "--threads", threads,
               "--linger", 0, "--poll", 0]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-m", "flow2onnx_serve", *map(str, command)],
        stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        for line in process.stderr:
            found = json.loads(line) if line.startswith("{") else {}
            if found.get("message") == "listening":
                break
        else:
            sys.exit("flow2onnx-serve ended early")
        yield Server("flow2onnx", process.pid, found["http"], found["grpc"])
    finally:
        process.terminate()
        process.communicate(timeout=60)


@contextlib.contextmanager
def theirs(repository: Path, threads: int) -> Iterator[Server]:
    """The real Triton with its Python backend."""
    with Triton(repository, threads=threads) as triton:
        yield Server("Triton", triton.process.pid, triton.http, triton.grpc)


@contextlib.contextmanager
def on_cores(cores: Sequence[int]) -> Iterator[None]:
    """Keep what starts meanwhile on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def check_equal(sides: Sequence[Side], bare: Bare) -> float:
    """The largest difference of an answer from the bare runtime's."""
    wanted = np.frombuffer(b"".join(bare.results), np.float32)
    worst = 0.0
    for side in sides:
        found = np.frombuffer(side.load.outputs(), np.float32)
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4, err_msg=f"{side.name} differs")
        worst = max(worst, float(np.abs(found - wanted).max()))
    return worst


def compared(
    servers: Sequence[Server], repository: Path, model: str, count: int, args: argparse.Namespace
) -> Iterator[dict[str, object]]:
    """The rows of a model at a number of clients: the medians of the rounds."""
    with on_cores(SERVER_CORES):
        bare = Bare(repository / model / "1" / "model.onnx", args.threads, count)
    sides = [side for server in servers for side in server.loads(model, count, args.protocols)]
    for side in sides:
        side.warm_up(0)
    worst = check_equal(sides, bare)
    # of several clients' rows one batch is made, whose last bits may differ
    assert worst == 0 or count > 1, f"the answers for {model} differ by up to {worst}"
    every = [*sides, bare]
    for number in range(args.rounds):
        for side in every if number % 2 == 0 else reversed(every):
            side.warm_up(args.warm_up)
            side.run(args.seconds)
    for side in every:
        side.close()
        yield {
            "model": model, "protocol": side.protocol, "concurrency": count, "side": side.name,
            **{name: statistics.median(r[name] for r in side.rounds) for name in FIGURES},
            "requests": sum(r["requests"] for r in side.rounds), "rounds": side.rounds,
        }  # fmt: skip


def show(rows: Sequence[dict]) -> None:
    table = Table(title="medians of the rounds; server CPU includes all of its processes")
    for column in ("model", "protocol", "clients", "side", *FIGURES.values()):
        is_text = column in ("model", "protocol", "side")
        table.add_column(column, justify="left" if is_text else "right")
    for row in sorted(rows, key=lambda r: (r["model"], r["protocol"], r["concurrency"])):
        numbers = [f"{row[name]:.4g}" for name in FIGURES]
        table.add_row(row["model"], row["protocol"], str(row["concurrency"]), row["side"], *numbers)
    Console(width=110).print(table)


def draw(rows: Sequence[dict], path: Path) -> None:
    """Bars of CPU per request and of requests a second, a column for each model and protocol."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    charts = sorted({(r["model"], r["protocol"]) for r in rows if r["protocol"] != "none"})
    counts = sorted({r["concurrency"] for r in rows})
    figure, grid = pyplot.subplots(
        2, len(charts), figsize=(3.6 * len(charts), 6), squeeze=False, layout="constrained"
    )
    for column, (model, protocol) in enumerate(charts):
        for axes, name in zip(grid[:, column], ("cpu_ms_per_request", "requests_per_s"),
                              strict=True):  # fmt: skip
            for place, side in enumerate(("flow2onnx", "Triton", "bare runtime")):
                found = {
                    r["concurrency"]: r[name] for r in rows
                    if r["model"] == model and r["side"] == side
                    and r["protocol"] in (protocol, "none")
                }  # fmt: skip
                left = np.arange(len(counts)) + 0.27 * (place - 1)
                bars = axes.bar(left, [found[count] for count in counts], 0.25, label=side)
                axes.bar_label(bars, fmt=_short, fontsize=6)
            axes.set_xticks(range(len(counts)), [str(count) for count in counts])
            axes.set_ylabel(FIGURES[name])
            axes.set_xlabel("clients")
            axes.set_title(f"{model}, {protocol}")
            axes.margins(y=0.12)
    figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def document(rows: Sequence[dict], args: argparse.Namespace) -> dict[str, object]:
    packages = ("onnxruntime", "numpy", "uvicorn", "httptools", "uvloop", "grpcio")
    versions = {"python": platform.python_version(), **{p: version(p) for p in packages}}
    return {
        "machine": {**machine(), "server_cores": SERVER_CORES, "client_cores": CLIENT_CORES},
        "versions": versions | {"tritonserver": args.triton_version},
        "settings": {"threads_of_a_session": args.threads, "seconds": args.seconds,
                     "rounds": args.rounds, "max_batch_size": 32, "queue_delay_us": 0},
        "rows": rows,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", nargs="+", choices=list(NETWORKS), default=list(NETWORKS))
    parser.add_argument("--protocols", nargs="+", choices=PROTOCOLS, default=PROTOCOLS)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--threads", type=int, default=1, help="Of each session.")
    parser.add_argument("--seconds", type=float, default=2, help="Of each measurement.")
    parser.add_argument("--warm-up", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--chart", type=Path)
    args = parser.parse_args()
    if installation().lack:
        sys.exit(installation().lack)
    with contextlib.ExitStack() as stack:
        repository = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        export_all(repository, args.models)
        with on_cores(SERVER_CORES):
            starts = (ours, theirs)
            servers = [stack.enter_context(start(repository, args.threads)) for start in starts]
        os.sched_setaffinity(0, CLIENT_CORES)
        args.triton_version = servers[1].version()
        pairs = list(itertools.product(args.models, args.concurrency))
        rows = [row for model, count in track(pairs, "comparing")
                for row in compared(servers, repository, model, count, args)]  # fmt: skip
    show(rows)
    if args.json:
        args.json.write_text(json.dumps(document(rows, args), indent=1) + "\n")
    if args.chart:
        draw(rows, args.chart)


if __name__ == "__main__":
    main()
