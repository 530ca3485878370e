"""The cost of a step in each language that is bound to the C runtime, beside the step in C.

    python -m benchmarks.bindings [--rounds 10] [--json FILE]

Two perceptrons on one thread: that of OneFlow's documentation (784-512-10, batch 100), and one of
which a step takes so little (20-16-10, batch 8) that a microsecond shows. Each language is a
process on one processor. They make runs of blocks of steps in turn, so that whatever else the
machine does hits all of them; before each run stands a block that does not count, as the process
before it has left the caches full of its own data. What counts is the time on the processor of the
thread that makes the steps, as the kernel counts it (where it does not say: the time that passes),
and of that the least of all blocks. Beside it stands the time of all other threads, such as the one
by which Go's scheduler watches calls of C.
"""

import argparse
import json
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from flow2onnx_runtime import save_safetensors
from rich.console import Console
from rich.table import Table

from models import mlp
from runtime.bindings import release as archives
from tests.runtimes.c_driver import CONFORMANCE, ROOT, Command, Driver
from tests.runtimes.languages import go, java
from tests.runtimes.languages.language import onnxruntime, run

SMALL = CONFORMANCE / "mlp"
RUN = 20  # blocks of one language after each other


@dataclass(frozen=True)
class Case:
    """A bundle with the data of its first batch, and how many steps a block has."""

    name: str
    bundle: Path
    feeds: Path
    steps: int


def large(folder: Path) -> Case:
    """The seeds' perceptron and one batch of noise."""
    mlp.train_job.export(folder / "mlp", on_device=True).raise_if_failed()
    rng = np.random.default_rng(0)
    images = rng.random((1, mlp.BATCH, 1, 28, 28), np.float32)
    labels = rng.integers(0, 10, (1, mlp.BATCH)).astype(np.int32)
    save_safetensors(folder / "feeds.safetensors", {"images": images, "labels": labels})
    return Case("784-512-10, batch 100", folder / "mlp", folder / "feeds.safetensors", 20)


def commands(release: Path, folder: Path) -> dict[str, Command]:
    """The drivers, compiled for speed; without those whose tools are missing."""
    environment = {"FLOW2ONNX_ORT_LIBRARY": str(onnxruntime())}
    found = {"C": Command((_c(release, folder / "c"),), environment)}
    found["C++"] = Command((_cpp(release, folder / "cpp"),), environment)
    if shutil.which("cargo"):
        found["Rust"] = Command((_rust(release, folder / "rust"),), environment)
    if not go.LANGUAGE.missing:
        (folder / "go").mkdir()
        assert go.LANGUAGE.build is not None
        found["Go"] = Command(go.LANGUAGE.build(release, folder / "go").words, environment)
    if not java.LANGUAGE.missing:
        (folder / "java").mkdir()
        run("make", "-C", release / "java", f"OUT={folder / 'java'}", "BUILD_TYPE=Release")
        java.compile_tests(folder / "java", java.JAVA / "tests" / "Driver.java")
        found["Java"] = Command(tuple(
            word for word in java.java(folder / "java", "Driver") if word not in java.CHECKED
        ), environment)  # fmt: skip
    return found


def _c(release: Path, folder: Path) -> Path:
    folder.mkdir()
    run("cc", "-std=c11", "-O2", "-DFLOW2ONNX_LOAD_ORT", f"-I{release / 'c'}",
        ROOT / "runtime" / "c" / "tests" / "driver.c", release / "c" / "flow2onnx_runtime.c",
        "-o", folder / "driver", "-lm", "-ldl")  # fmt: skip
    return folder / "driver"


def _cpp(release: Path, folder: Path) -> Path:
    folder.mkdir()
    includes = (f"-I{release / 'c'}", f"-I{release / 'cpp' / 'include'}")
    run("cc", "-std=c11", "-O2", "-DFLOW2ONNX_LOAD_ORT", *includes, "-c",
        release / "c" / "flow2onnx_runtime.c", "-o", folder / "runtime.o")  # fmt: skip
    run("c++", "-std=c++17", "-O2", *includes, ROOT / "runtime" / "cpp" / "tests" / "driver.cpp",
        folder / "runtime.o", "-o", folder / "driver", "-lm", "-ldl")  # fmt: skip
    return folder / "driver"


def _rust(release: Path, folder: Path) -> Path:
    shutil.copytree(ROOT / "runtime" / "rust" / "tests" / "driver", folder)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "driver"\nversion = "0.0.0"\nedition = "2021"\n'
        f'[dependencies]\nflow2onnx-runtime = {{ path = "{release / "rust"}" }}\n'
    )
    run("cargo", "build", "--release", "--quiet", "--offline", cwd=folder,
        CARGO_TARGET_DIR=str(folder / "t"))  # fmt: skip
    return folder / "t" / "release" / "driver"


Times = dict[str, list[tuple[float, float]]]  # of a language: its thread and all others, by round


def measure(case: Case, commands: dict[str, Command], rounds: int) -> Times:
    """Microseconds of a step, for each language those of each round."""
    times: Times = {name: [] for name in commands}
    with ExitStack() as stack:
        drivers = {}
        for name, command in commands.items():
            pinned = ("taskset", "-c", "0") if shutil.which("taskset") else ()
            driver = Driver(Command((*pinned, *command.words), command.variables))
            stack.callback(driver.close)
            drivers[name] = driver
            driver.ok("open", case.bundle)
            driver.ok("feeds", case.feeds)
            driver.ok("time", 50 * case.steps)  # warm, and compiled where a machine does that late
        for _ in range(rounds):
            for name, driver in drivers.items():
                driver.ok("time", case.steps)
                times[name] += [block(driver, case.steps) for _ in range(RUN)]
    return times


def block(driver: Driver, steps: int) -> tuple[float, float]:
    """Microseconds of a step, of the thread that makes it and of all others."""
    before = processor_times(driver)
    passed = int(driver.ok("time", steps)[0])
    after = processor_times(driver)
    spent = sorted(after[task] - before.get(task, 0) for task in after)
    own = spent[-1] / steps if spent and spent[-1] else passed
    return own / 1000, sum(spent[:-1]) / steps / 1000


def processor_times(driver: Driver) -> dict[str, int]:
    """Nanoseconds that each thread of a process has run; 0 where the kernel does not count."""
    tasks = Path(f"/proc/{driver.process.pid}/task").glob("*/schedstat")
    return {str(task): int(task.read_text().split()[0]) for task in tasks}


def rows(times: Times) -> list[dict[str, Any]]:
    """For each language the least and the median of its times, and what it takes more than C."""
    model = min(own for own, _ in times["C"])
    return [
        {
            "language": name,
            "microseconds": min(own for own, _ in blocks),
            "median": statistics.median(own for own, _ in blocks),
            "added": min(own for own, _ in blocks) - model,
            "others": statistics.median(others for _, others in blocks),
        }
        for name, blocks in times.items()
    ]


def show(case: Case, found: Sequence[dict[str, Any]]) -> None:
    """Print a table."""
    columns = ("language", "µs a step", "more than C", "median", "other threads")
    table = Table(*columns, title=case.name)
    for row in found:
        table.add_row(str(row["language"]), f"{row['microseconds']:.1f}", f"{row['added']:+.2f}",
                      f"{row['median']:.1f}", f"{row['others']:.1f}")  # fmt: skip
    Console().print(table)


def main() -> None:
    """Build the drivers, measure both perceptrons, print and write what was found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bindings", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the numbers to this file too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        archives.write(folder / "release.tar.gz")
        built = commands(archives.unpack(folder / "release.tar.gz", folder), folder)
        cases = [large(folder), Case("20-16-10, batch 8", SMALL / "bundle",
                                     SMALL / "feeds.safetensors", 200)]  # fmt: skip
        results = {}
        for case in cases:
            found = rows(measure(case, built, given.rounds))
            show(case, found)
            results[case.name] = found
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
