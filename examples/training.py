"""The training loop of the examples: a progress bar, the loss curve, the table."""

import argparse
import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

import flow2onnx as flow

Job = Callable[..., NDArray[np.float32]]


@dataclass
class Run:
    """The losses of a training run, the accuracy on the test images, and the time it took."""

    name: str
    losses: list[float] = field(default_factory=list)
    accuracy: float = 0.0
    seconds: float = 0.0


@functools.cache
def digits(batch: int) -> Any:
    """Training and test batches, as `flow.data.load_mnist` gives them."""
    return flow.data.load_mnist(batch)


def train(name: str, train_job: Job, predict_job: Job, batch: int, epochs: int) -> Run:
    """Train on the digits and test on those held back."""
    (images, labels), (test_images, test_labels) = digits(batch)
    run, started = Run(name), time.perf_counter()
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as progress:
        bar = progress.add_task(name, total=epochs * len(images))
        order = np.random.default_rng(0)
        for _ in range(epochs):
            for i in order.permutation(len(images)):
                run.losses.append(float(train_job(images[i], labels[i]).mean()))
                progress.update(bar, advance=1, description=f"{name}  loss {run.losses[-1]:.4f}")
    run.seconds = time.perf_counter() - started
    answers = [predict_job(x).argmax(1) for x in test_images]
    run.accuracy = float(np.mean(np.stack(answers) == test_labels))
    return run


def curve(run: Run, path: Path) -> None:
    """Draw the loss of every step, and its mean over twenty."""
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(7, 4), layout="constrained")).add_subplot()
    axes.plot(run.losses, color="0.75", linewidth=1, label="each step")
    smooth = np.convolve(run.losses, np.ones(20) / 20, "valid")
    axes.plot(np.arange(19, len(run.losses)), smooth, color="C0", label="mean of 20 steps")
    axes.set(xlabel="step", ylabel="loss", yscale="log", title=f"{run.name}: training loss")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def report(run: Run, **files: Path) -> None:
    """The final table."""
    table = Table(title=run.name)
    table.add_column("what")
    table.add_column("value", justify="right")
    rows = {
        "steps": f"{len(run.losses)}",
        "first loss": f"{run.losses[0]:.4f}",
        "last loss (mean of 20)": f"{np.mean(run.losses[-20:]):.4f}",
        "test accuracy": f"{run.accuracy:.2%}",
        "seconds": f"{run.seconds:.1f}",
        "milliseconds a step": f"{1000 * run.seconds / len(run.losses):.2f}",
        **{name: str(path) for name, path in files.items()},
    }
    for row in rows.items():
        table.add_row(*row)
    Console().print(table)


def arguments(epochs: int) -> argparse.Namespace:
    """``--epochs`` and ``--out``."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--out", type=Path, default=Path("demo"), help="folder for what is written")
    return parser.parse_args()
