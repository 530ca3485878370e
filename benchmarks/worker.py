"""One peer in a process of its own: it sets a workload up, then runs as many steps as it is told.

    python -m benchmarks.worker training flow2onnx encoder --threads 1 [--profile PREFIX]
    python -m benchmarks.worker training torch:compile,channels_last resnet18 --steps 10

The drivers speak with it by lines. It first writes a line of JSON: the seconds that the imports
took, those from there to the end of the first step, the losses of three steps from the common
start, versions, and what the peer tells of itself. Then it reads lines "run N" and answers each
with the seconds that N steps took, by the clock and of processors; at "end" it writes its peak
memory in MB. With `--steps` it runs blocks on its own.
"""

import argparse
import importlib
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

MODULES = ("flow2onnx", "predictor", "torch", "jax", "onnxruntime", "ort_training", "oneflow")


def peak_mb() -> float:
    """The most memory that this process had, without that of the one that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    unit = 1024**2 if platform.system() == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("task", choices=("training", "prediction"))
    parser.add_argument("peer", help=f"one of {', '.join(MODULES)}, with variants after a colon")
    parser.add_argument("workload")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--offset", type=int, default=os.getpid(),
                        help="which processors: the same for peers side by side")  # fmt: skip
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", default="float32",
                        choices=("float32", "tf32", "float16", "bfloat16"))  # fmt: skip
    parser.add_argument("--model", default="", help="the file that a prediction runs")
    parser.add_argument("--profile", default="", help="write flow2onnx's profiles, named so")
    parser.add_argument("--steps", type=int, help="run five blocks of so many and tell the median")
    args = parser.parse_args()
    confine(args.threads, args.offset)
    step = prepare(args)
    if args.steps:
        alone(step, args.steps)
    else:
        serve(step)


def confine(threads: int, offset: int = 0) -> None:
    """Leave this process as many processors as threads, which every library then respects.

    Which ones depends on `offset`, so that several measurements need not meet on the first.
    """
    if hasattr(os, "sched_setaffinity"):
        all_of_them = sorted(os.sched_getaffinity(0))
        chosen = {all_of_them[(offset + i) % len(all_of_them)] for i in range(threads)}
        os.sched_setaffinity(0, chosen)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)


def prepare(args: argparse.Namespace):
    """The step of the peer, run three times; tells how that went."""
    clock = time.perf_counter
    name, _, variant = args.peer.partition(":")
    begun = clock()
    module = importlib.import_module(f"benchmarks.peers.{name}")
    imported = clock()
    from benchmarks.peers import Options
    from benchmarks.workloads import workload

    work = workload(args.workload)
    data = work.data()
    values = {}
    if not args.model:  # whose file has them
        values = work.variables()
        if args.task == "prediction":
            values |= work.state()
    options = Options(
        frozenset(filter(None, variant.split(","))), args.threads, args.device, args.precision,
        args.model, args.profile,
    )  # fmt: skip
    started = clock()
    step = getattr(module, args.task)(work, values, data, options)
    values.clear()
    results = sample(step(0))
    first = clock() - started
    for _ in range(2):  # of one batch, so that updates show
        results += sample(step(0))
    differs = getattr(module, "differs", lambda work: None)(work)
    about = getattr(module, "about", lambda options: {})(options)
    tell(json.dumps({
        "import_s": imported - begun, "first_step_s": first, "results": [float(r) for r in results],
        "differs": differs, "about": about,
        "versions": versions_of(module.VERSIONS),
    }))  # fmt: skip
    return step


def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """Python's version and those of packages."""
    return {"python": platform.python_version(), **{p: version_of(p) for p in packages}}


def version_of(package: str) -> str:
    """The version of what was imported, whichever distribution it came from: its own word."""
    module = sys.modules.get(package.replace("-", "_"))
    return str(getattr(module, "__version__", None) or version(package))


def sample(result: object) -> list[float]:
    """A loss; of logits the first three and the mean of their sizes."""
    import numpy as np

    values = np.asarray(result).ravel()
    if values.size == 1:
        return [float(values[0])]
    parts = np.array_split(values, 1 + values.size // 2**20)  # of which a copy is soon gone
    total = sum(float(np.abs(part, dtype=np.float64).sum()) for part in parts)
    return [*map(float, values[:3]), total / values.size]


def serve(step) -> None:
    done = 3
    for line in sys.stdin:
        if line.startswith("end"):
            break
        count = int(line.split()[1])
        tell("{} {}".format(*timed(step, done, count)))
        done += count
    tell(str(peak_mb()))


def alone(step, count: int) -> None:
    times = [timed(step, 3 + i * count, count) for i in range(5)]
    wall, busy = ([1000 * t / count for t in column] for column in zip(*times))  # noqa: B905
    tell(f"{statistics.median(wall):.3f} ms a step, {min(wall):.3f} … {max(wall):.3f}; "
         f"{statistics.median(busy):.3f} ms of processors; {peak_mb():.0f} MB")  # fmt: skip


def timed(step, start: int, count: int) -> tuple[float, float]:
    """The seconds of `count` steps, by the clock and of processors, after a tenth of so many."""
    for i in range(count // 10):
        step(start + i)
    begun, busy = time.perf_counter(), time.process_time()
    for i in range(start, start + count):
        step(i)
    return time.perf_counter() - begun, time.process_time() - busy


def tell(text: str) -> None:
    """Write a line to the driver, whatever has become of `sys.stdout`."""
    print(text, file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    main()
