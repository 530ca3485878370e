"""Training steps in nothing but standard operators, as in exported files, beside torch eager.

    python -m benchmarks.standard_operators [--rows lstm] [--threads 1] [--quick] [--out DIR]

writes standard_operators.json, .md and .svg. The rows are those of `benchmarks.training`, and
so are the peers: without the native operators on our side, without torch.compile on the other.
"""

from collections.abc import Iterator

from benchmarks import training
from benchmarks.contest import Contestant
from benchmarks.driver import COMMON_NOTES, Program, main
from benchmarks.workloads import TRAINING

ROWS = ("resnet18", "resnet50", "depthwise", "unet", "lstm", "cells")


def contestants(row: str, folder: str, *, takes_all: bool) -> Iterator[Contestant]:
    """Ours in standard operators, and torch as it runs without compiling."""
    for one in training.contestants(row, folder, takes_all=takes_all):
        is_eager = one.module == "torch" and "compile" not in one.peer
        if one.peer == "flow2onnx" or is_eager:
            yield one


PROGRAM = Program(
    "standard_operators",
    "Training steps in standard operators",
    {row: TRAINING[row] for row in ROWS},
    (*training.NOTES[1:], *COMMON_NOTES),
    contestants,
    task="training",
)

if __name__ == "__main__":
    main(PROGRAM, __doc__ or "")
