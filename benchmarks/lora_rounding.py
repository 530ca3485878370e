"""Where adapters that AdamW trained in single precision differ from those of double precision.

    python -m benchmarks.environments peft           # once: .venv/bench-peft
    python -m benchmarks.lora_rounding               # the shape of SmolLM2-135M, 256 tokens
    python -m benchmarks.lora_rounding --layers 2    # a minute

This project, torch in float32 and torch in float64 take ten steps from the same adapters on the
same tokens. AdamW divides a gradient by its own size, so that a small one moves a number as far as
a large one does. Each number of the adapters stands in a row by the size of its gradients, as
float64 has them: the root of AdamW's second moment after all steps, by the median of its matrix.
"""

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.contest import machine
from benchmarks.driver import RESULTS
from benchmarks.lora import Side, add_shape_arguments, measure, prepare, shape_of
from benchmarks.lora_worker import MOMENT, SHAPE

EXACT, OURS, TORCH = "exact", "int4", "torch"
BAR = 2e-6
# gradients by the median of their matrix, from one number up to the one before
SIZES = (1.0, 0.1, 0.01, 0.0)
Arrays = Mapping[str, np.ndarray[Any, Any]]


def sizes_of_gradients(exact: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """The size of each number's gradients by the median of its matrix."""
    found = {}
    for name, moment in exact.items():
        if name.startswith(MOMENT):
            size = np.sqrt(moment)
            found[name.removeprefix(MOMENT)] = size / np.median(size)
    return found


def rows(sides: Mapping[str, Side]) -> list[dict[str, Any]]:
    """For gradients of each size how many there are, and how far both float32 sides are off."""
    exact = sides[EXACT].adapters
    sizes = sizes_of_gradients(exact)
    size = np.concatenate([sizes[n].ravel() for n in sizes])
    apart = {
        side: np.concatenate([np.abs(sides[side].adapters[n] - exact[n]).ravel() for n in sizes])
        for side in (OURS, TORCH)
    }
    between = np.concatenate(
        [np.abs(sides[OURS].adapters[n] - sides[TORCH].adapters[n]).ravel() for n in sizes]
    )
    found, above = [], np.inf
    for least in (*SIZES, None):
        own = np.ones(size.shape, bool) if least is None else (size >= least) & (size < above)
        above = above if least is None else least
        row: dict[str, Any] = {"least": least, "numbers": int(own.sum())}
        for name, far in ((OURS, apart[OURS]), (TORCH, apart[TORCH]), ("between", between)):
            row[name] = {
                "most": float(far[own].max(initial=0)),
                "median": float(np.median(far[own])) if own.any() else 0.0,
                "beyond": int((far[own] > BAR).sum()),
            }
        found.append(row)
    return found


def show(title: str, found: Sequence[Mapping[str, Any]]) -> None:
    """Print a table."""
    columns = ("gradient by the median", "numbers", "here: most", "beyond 2e-6",
               "torch float32: most", "beyond 2e-6", "these two: most")  # fmt: skip
    table = Table(*columns, title=title)
    for row in found:
        label = "all" if row["least"] is None else f"from {row['least']:g}"
        here, torch = row[OURS], row[TORCH]
        table.add_row(
            label, f"{row['numbers']:,}", f"{here['most']:.1e}", f"{here['beyond']:,}",
            f"{torch['most']:.1e}", f"{torch['beyond']:,}", f"{row['between']['most']:.1e}",
        )  # fmt: skip
    Console(width=120).print(table)


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
        sides = {s.name: s for s in measure(folder, [OURS, TORCH, EXACT], given.threads, 0)}
    found = rows(sides)
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
