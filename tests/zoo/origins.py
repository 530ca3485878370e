"""A network where it was made: the exported model, a batch, ten steps of training."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

__all__ = ["RATES", "STEPS", "Architecture", "ExportError", "Origin", "Run", "read", "write"]

STEPS = 10
RATES = {"sgd": 1e-2, "adam": 1e-3}
MODEL, ARRAYS = "model.onnx", "arrays.npz"


class ExportError(Exception):
    """Why an exporter made no model."""


@dataclass(frozen=True)
class Architecture:
    """A network by name: `make()` gives it with the arrays of a batch.

    `loss` is `mse` against random numbers, or `cross_entropy` against random classes.
    """

    name: str
    make: object
    loss: str = "mse"
    exporters: tuple = ()


@dataclass(frozen=True)
class Run:
    """The losses of the steps and the last weights by name."""

    losses: tuple
    weights: Mapping


@dataclass(frozen=True)
class Origin:
    """A network as exported: the runs are by optimizer, `first` are the weights at the start.

    `scale` is the loss of the origin by that of ours, which is called `loss`. `output` is the name
    of the output that it reads, where that ends in a softmax of its own. `is_named` says that the
    exporter keeps the names of weights, so that these can be compared.
    """

    model: object
    feeds: tuple
    labels: np.ndarray
    loss: str
    first: Mapping
    runs: Mapping
    scale: float = 1.0
    output: str | None = None
    is_named: bool = True

    @property
    def parameters(self):
        """The number of numbers that are trained."""
        return sum(int(w.size) for w in self.first.values())


def write(origin, folder):
    """Write an origin to a folder, for another process to read."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL).write_bytes(origin.model.SerializeToString())
    arrays = {f"feed/{i}": a for i, a in enumerate(origin.feeds)}
    arrays |= {"labels": origin.labels, "loss": np.array(origin.loss)}
    arrays["is_named"] = np.array(origin.is_named)
    arrays |= {f"first/{n}": w for n, w in origin.first.items()}
    for rule, run in origin.runs.items():
        arrays[f"losses/{rule}"] = np.array(run.losses)
        arrays |= {f"weights/{rule}/{n}": w for n, w in run.weights.items()}
    np.savez(folder / ARRAYS, **arrays)


def read(folder):
    """The origin that a folder holds."""
    folder = Path(folder)
    with np.load(folder / ARRAYS) as file:
        arrays = dict(file)
    feeds = tuple(_under(arrays, "feed/").values())
    runs = {
        rule: Run(tuple(losses), _under(arrays, f"weights/{rule}/"))
        for rule, losses in _under(arrays, "losses/").items()
    }
    labels, loss = arrays["labels"], str(arrays["loss"])
    return Origin(
        str(folder / MODEL), feeds, labels, loss, _under(arrays, "first/"), runs,
        is_named=bool(arrays["is_named"]),
    )  # fmt: skip


def _under(arrays, prefix):
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
