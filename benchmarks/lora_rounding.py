"""Where adapters that AdamW trained in single precision differ from those of double precision.

    python -m benchmarks.environments peft           # once: .venv/bench-peft
    python -m benchmarks.lora_rounding               # the shape of SmolLM2-135M, 256 tokens
    python -m benchmarks.lora_rounding --layers 2    # a minute

This project, torch in float32 and torch in float64 take ten steps from the same adapters on the
same tokens. AdamW's first step moves each number of B by the rate with the sign of its gradient,
however small that is: where rounding is as large as the gradient it decides about the sign. A
starts to move in the second step, and the gradient of one of its columns is a sum over the row of
B of the same rank: one number of B that went the other way changes all of the column. So ranks, a
column of A and a row of B, are sorted here by the smallest first gradient in their row of B, as
float64 has it, by the median of its matrix.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.contest import machine
from benchmarks.driver import RESULTS
from benchmarks.lora import CHECKED, Side, add_shape_arguments, prepare, shape_of, start
from benchmarks.lora_worker import MOMENT, SHAPE

EXACT, OURS, TORCH = "exact", "int4", "torch"
BAR = 2e-6
# first gradients by the median of their matrix, from one number up to the one before
SIZES = (1e-3, 1e-4, 1e-5, 0.0)
A, B = ".lora_A.weight", ".lora_B.weight"
Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


def run_sides(folder: Path, threads: int) -> tuple[dict[str, Side], Arrays]:
    """The sides after all steps, and what float64 has after the first."""
    with ExitStack() as stack:
        sides = {}
        for name in (OURS, TORCH, EXACT):
            side = Side(name, stack.enter_context(closing(start(folder, name, threads))))
            side.about = side.worker.record()
            side.run(1, is_timed=False)
            first = side.saved(folder)
            side.run(CHECKED - 1, is_timed=False)
            side.adapters = side.saved(folder)
            sides[name] = side
            Console().print(f"{name}: {CHECKED} steps")
        return sides, first


def smallest_gradients(first: Arrays) -> dict[str, Array]:
    """For each pair of matrices the smallest first gradient in each row of B, by the median."""
    found = {}
    for name in first:
        if name.startswith(MOMENT) and name.endswith(B):
            size = np.sqrt(first[name])
            found[name.removeprefix(MOMENT).removesuffix(B)] = size.min(1) / np.median(size)
    return found


def differences(one: Arrays, other: Arrays, module: str) -> Array:
    """How far the numbers of each rank are apart, those of A before those of B: (rank, number)."""
    a, b = (np.abs(one[module + end] - other[module + end]) for end in (A, B))
    return np.concatenate([a.T, b], 1)


def rows(sides: Mapping[str, Side], first: Arrays) -> list[dict[str, Any]]:
    """For ranks of each size how many there are, and how far both float32 sides are off."""
    exact, sizes = sides[EXACT].adapters, smallest_gradients(first)
    found, above = [], np.inf
    for least in (*SIZES, None):
        chosen = {
            m: np.ones(s.shape, bool) if least is None else (s >= least) & (s < above)
            for m, s in sizes.items()
        }
        above = above if least is None else least
        row: dict[str, Any] = {"least": least, "ranks": int(sum(c.sum() for c in chosen.values()))}
        for name in (OURS, TORCH):
            apart = [differences(sides[name].adapters, exact, m)[c] for m, c in chosen.items()]
            row[name] = _summary(apart)
        found.append(row)
    return found


def _summary(apart: Sequence[Array]) -> dict[str, Any]:
    """Of ranks whose differences are rows of these arrays, the numbers that a table shows."""
    flat = np.concatenate([v.ravel() for v in apart])
    beyond = int((flat > BAR).sum())
    ranks = sum(int((v > BAR).any(1).sum()) for v in apart)
    median = float(np.median(flat)) if flat.size else 0.0
    return {"most": float(flat.max(initial=0)), "median": median, "beyond": beyond, "ranks": ranks}


def show(title: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Print a table."""
    columns = ["smallest first gradient", "ranks"]
    for name in ("here", "torch"):
        columns += [f"{name}: median", "most", "beyond 2e-6", "in ranks"]
    table = Table(*columns, title=title)
    for row in found:
        cells = [_label(row["least"]), f"{row['ranks']:,}"]
        for side in (row[OURS], row[TORCH]):
            cells += [f"{side['median']:.1e}", f"{side['most']:.1e}"]
            cells += [f"{side['beyond']:,}", f"{side['ranks']:,}"]
        table.add_row(*cells)
    Console(width=130).print(table)


def _label(least: float | None) -> str:
    if least is None:
        return "all"
    return f"from {least:g}" if least else "less"


def main() -> None:
    """Write the model, take the steps, print and write what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.lora_rounding", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add_shape_arguments(parser)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, default=RESULTS / "lora_rounding.json")
    given = parser.parse_args()
    shape = shape_of(given)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        prepare(folder, shape, given.length, [OURS], has_peers=True)
        said = {**asdict(shape), "is_packed": shape.is_packed, "has_bias": shape.has_bias}
        (folder / SHAPE).write_text(json.dumps(said))
        sides, first = run_sides(folder, given.threads)
        found = rows(sides, first)
    show(f"{given.shape}, {shape.layers} layers, {given.length} tokens, ten steps", found)
    losses = {n: np.asarray(s.losses) for n, s in sides.items()}
    apart = {n: float(np.abs(losses[n] / losses[EXACT] - 1).max()) for n in (OURS, TORCH)}
    Console().print(f"losses from float64's: here {apart[OURS]:.1e}, torch {apart[TORCH]:.1e}")
    results = {"machine": machine(), "shape": given.shape, "layers": shape.layers,
               "length": given.length, "losses_apart": apart, "rows": found}  # fmt: skip
    given.json.parent.mkdir(parents=True, exist_ok=True)
    given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
