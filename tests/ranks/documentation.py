"""Programs of OneFlow's documentation, unedited, on two devices beside one.

Usage: python -m tests.ranks.documentation [--engine torch|mpi|mpich] FOLDER [PROGRAM…]

FOLDER holds them: ``en/docs/code`` of oneflow-documentation at v0.4.0. Each runs in one process and
under `flow2onnx launch -n 2`, that for two machines on two, on the same images; the command prints
the largest difference of the losses that they print and of the checkpoint that they leave, if they
do, and fails above a limit. One with dropout runs as it is, and is compared without.
"""

import argparse
import re
import sys
import tempfile
from pathlib import Path

import numpy as np

import flow2onnx as flow
from tests.ranks.ranks import ROOT, ends, free_port, start

PROGRAMS = (
    "extended_topics/hybrid_parallelism_mlp.py", "extended_topics/hybrid_parallelism_lenet.py",
    "extended_topics/mixed_parallel_mlp.py", "extended_topics/mixed_parallel_lenet.py",
    "extended_topics/consistent_strategy.py", "extended_topics/mirrored_strategy.py",
    "basics_topics/distributed_train.py",
)  # fmt: skip
TWO_MACHINES = "basics_topics/distributed_train.py"  # which one process refuses to be
WITHOUT_DROPOUT = str(ROOT / "tests/ranks/without_dropout.py")
IMAGES, _SECONDS = 100, 1800
LIMIT = 1e-3  # of the recorded runs of real OneFlow; losses of LeNet grow before they fall
_NUMBER = re.compile(r"^-?\d+\.\d+(?:e-?\d+)?$", re.MULTILINE)


def make_images(folder):
    """Write images and labels as mnist.npz, which programs find in their folder."""
    rng = np.random.default_rng(1)
    kinds = rng.uniform(size=(10, 28, 28))
    labels = rng.integers(0, 10, IMAGES)
    images = (kinds[labels] * 200 + rng.uniform(size=(IMAGES, 28, 28)) * 55).astype(np.uint8)
    np.savez(folder / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)


def run(program, folder, engine, *options, drops=True):
    """The numbers that a program prints, and the variables it saves, by `flow2onnx COMMAND`."""
    folder.mkdir()
    make_images(folder)
    script = [str(program)] if drops else [WITHOUT_DROPOUT, str(program)]
    copies = [["--machine", str(i)] for i in range(2)] if "--machines" in options else [[]]
    processes = [
        start(engine, ["-m", "flow2onnx", *options, *more, *script], folder=folder)
        for more in copies
    ]
    results = ends(processes, _SECONDS)
    assert all(status == 0 for status, _, _ in results), results
    numbers = [float(text) for text in _NUMBER.findall(results[0][1])]
    saved = [path.parent for path in sorted(folder.rglob("snapshot_done"))]
    values = {n: v.numpy() for path in saved for n, v in flow.checkpoint.get(path).items()}
    return np.array(numbers), values


def difference(program, engine, place):
    """How many numbers a program prints, and the largest differences of them and of variables."""
    face = "torch" if engine == "torch" else "mpi"
    launch = ["launch", "-n", "2", "--engine", face]
    if str(program).endswith(TWO_MACHINES):
        address = f"127.0.0.1:{free_port()}"
        launch = ["launch", "-n", "1", "--machines", "2", "--address", address]
    numbers, values = run(program, place / "two", engine, *launch)
    assert len(numbers), "it prints its losses"
    assert np.isfinite(numbers).all()
    if str(program).endswith(TWO_MACHINES):
        return len(numbers), float("nan"), float("nan")
    drops = "dropout" not in program.read_text()
    if not drops:
        numbers, values = run(program, place / "without", engine, *launch, drops=False)
    alone, expected = run(program, place / "one", engine, "run", drops=drops)
    assert values.keys() == expected.keys()
    apart = [np.abs(v - expected[n]).max() for n, v in values.items()]
    return len(numbers), float(np.abs(numbers - alone).max()), float(max(apart, default=0.0))


def main():
    """Print the table; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("programs", nargs="*", metavar="PROGRAM")
    parser.add_argument("--engine", choices=["torch", "mpi", "mpich"], default="torch")
    args, wrong = parser.parse_args(), 0
    print("| program | losses printed | their difference | of saved variables |")
    print("|---|---|---|---|")
    for name in args.programs or PROGRAMS:
        if name == TWO_MACHINES and args.engine != "torch":
            continue  # mpirun starts the ranks of all machines itself
        with tempfile.TemporaryDirectory() as place:
            count, *apart = difference(args.folder.resolve() / name, args.engine, Path(place))
        wrong += any(d > LIMIT for d in apart)
        cells = ["no other" if np.isnan(d) else f"{d:.1e}" for d in apart]
        print(f"| `{name}` | {count} | {' | '.join(cells)} |", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
