"""Two models beside each other: their graphs, their weights, their outputs on the same numbers."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from flow2onnx_runtime import BundleError, Options, Predictor, Trainer
from flow2onnx_runtime.bundle import Bundle
from flow2onnx_runtime.dtypes import Array
from flow2onnx_runtime.synthetic import random_array
from flow2onnx_runtime.view import Graph

from flow2onnx.errors import FlowError
from flow2onnx.export.graph_view import graph_of_path
from flow2onnx.onnx_io.read import ModelFile, open_model

__all__ = ["Changed", "GraphDifference", "compare_models"]

_BATCH = 2  # what free sizes are
_INTEGERS = (0, 2)  # whole numbers may be indices
_SEED = 1


@dataclass(frozen=True)
class Changed:
    """What is different under one name, and how; `distance` is the largest difference of numbers.

    `kind` is one of "node", "input", "output", "weight" and "result".
    """

    kind: str
    name: str
    change: str
    distance: float | None = None


@dataclass(frozen=True)
class GraphDifference:
    """What differs between two models; `notes` say what could not be compared, and why."""

    first: str
    second: str
    changes: tuple[Changed, ...]
    notes: tuple[str, ...]
    same: Mapping[str, int]

    @property
    def is_empty(self) -> bool:
        """True if nothing differs."""
        return not self.changes

    def as_dict(self) -> dict[str, Any]:
        """Everything in plain data."""
        return {"same_models": self.is_empty, **asdict(self)}


def compare_models(first: Path, second: Path, tolerance: float = 0.0) -> GraphDifference:
    """What differs between two models or bundles.

    Nodes go by their names. Numbers differ if the largest difference is above `tolerance` times
    the largest number. Raises BundleError for what is neither a model nor a bundle.
    """
    graphs = graph_of_path(first), graph_of_path(second)
    changes = [*_nodes(*graphs), *_ends("input", *graphs), *_ends("output", *graphs)]
    notes: list[str] = []
    same = Counter[str]()
    weights = _arrays(_weights, (first, second), notes, "weights")
    if weights is not None:
        changes += _numbers("weight", *weights, tolerance, same)
    if [graphs[0].inputs, _types(graphs[0])] != [graphs[1].inputs, _types(graphs[1])]:
        notes.append("inputs differ: results are not compared")
    else:
        results = _arrays(_results, (first, second), notes, "results")
        if results is not None:
            changes += _numbers("result", *results, tolerance, same)
    gone = sum(c.kind == "node" and not c.change.startswith("added") for c in changes)
    same["node"] = len(graphs[0].nodes) - gone
    return GraphDifference(str(first), str(second), tuple(changes), tuple(notes), dict(same))


def _types(graph: Graph) -> list[str]:
    return [str(graph.value(name)) for name in graph.inputs]


# --- the graph -----------------------------------------------------------------------------------
def _named(names: Iterable[str]) -> list[str]:
    """Names that several have are numbered."""
    seen = Counter[str]()
    found = []
    for name in names:
        found.append(f"{name} #{seen[name] + 1}" if seen[name] else name)
        seen[name] += 1
    return found


def _nodes(first: Graph, second: Graph) -> list[Changed]:
    a, b = (
        dict(zip(_named(n.name for n in g.nodes), g.nodes, strict=True)) for g in (first, second)
    )
    changes = [Changed("node", n, f"removed: {a[n].operator}") for n in a if n not in b]
    changes += [Changed("node", n, f"added: {b[n].operator}") for n in b if n not in a]
    for name in (n for n in a if n in b):
        was, now = a[name], b[name]
        told = _told("operator", was.operator, now.operator)
        told += _told("inputs", was.inputs, now.inputs)
        for key in dict.fromkeys((*was.attributes, *now.attributes)):
            told += _told(key, was.attributes.get(key), now.attributes.get(key))
        shapes = [[str(g.value(o)) for o in n.outputs] for g, n in ((first, was), (second, now))]
        told += _told("makes", *shapes)
        if told:
            changes.append(Changed("node", name, "; ".join(told)))
    return changes


def _told(what: str, was: Any, now: Any) -> list[str]:
    """What a property was and is, if that is not the same."""
    if was == now:
        return []
    texts = (", ".join(map(str, v)) if isinstance(v, list | tuple) else v for v in (was, now))
    return ["{} {} → {}".format(what, *("nothing" if t in (None, "") else t for t in texts))]


def _ends(kind: str, first: Graph, second: Graph) -> list[Changed]:
    a, b = (
        {n: str(g.value(n)) for n in (g.inputs if kind == "input" else g.outputs)}
        for g in (first, second)
    )
    changes = [Changed(kind, n, f"removed: {a[n]}") for n in a if n not in b]
    changes += [Changed(kind, n, f"added: {b[n]}") for n in b if n not in a]
    return changes + [Changed(kind, n, f"{a[n]} → {b[n]}") for n in a if n in b and a[n] != b[n]]


# --- the numbers ---------------------------------------------------------------------------------
def _arrays(
    read: Any, paths: Sequence[Path], notes: list[str], what: str
) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """What a function reads of both, or None with a note of why it could not."""
    found = []
    for path in paths:
        try:
            found.append(read(path))
        except (FlowError, OSError, ValueError) as error:
            text = error.message if isinstance(error, FlowError) else str(error)
            notes.append(f"{what} of {path} are not compared: {text.splitlines()[0]}")
            return None
    return found[0], found[1]


def _numbers(
    kind: str, first: Mapping[str, Array], second: Mapping[str, Array], tolerance: float,
    same: Counter[str],
) -> list[Changed]:  # fmt: skip
    changes = [Changed(kind, n, f"removed: {_kind(first[n])}") for n in first if n not in second]
    changes += [Changed(kind, n, f"added: {_kind(second[n])}") for n in second if n not in first]
    for name in (n for n in first if n in second):
        a, b = first[name], second[name]
        if _kind(a) != _kind(b):
            changes.append(Changed(kind, name, f"{_kind(a)} → {_kind(b)}"))
            continue
        far, largest = _distance(a, b)
        if far > tolerance * largest:
            share = f", {far / largest:.1e} of the largest" if 0 < largest < math.inf else ""
            changes.append(Changed(kind, name, f"differs by up to {far:.4g}{share}", far))
        else:
            same[kind] += 1
    return changes


def _kind(array: Array) -> str:
    return f"{array.dtype.name} {array.shape}"


def _distance(a: Array, b: Array) -> tuple[float, float]:
    """The largest difference of two arrays, and the largest number in them.

    Infinities of one sign, and two numbers that are none, are no difference.
    """
    if a.dtype.kind not in "fiubc" and a.dtype.name != "bfloat16":
        return (0.0 if np.array_equal(a, b) else math.inf), 1.0
    kind = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(kind), b.astype(kind)
    equal = (a == b) | ((x != x) & (y != y))
    with np.errstate(invalid="ignore"):
        far = np.where(equal, 0.0, np.abs(x - y))
    far = np.where(np.isnan(far), math.inf, far)
    finite = np.abs(np.concatenate([x.ravel(), y.ravel()]))
    finite = finite[np.isfinite(finite)]
    return float(far.max(initial=0.0)), float(finite.max(initial=0.0))


def _weights(path: Path) -> dict[str, Array]:
    """The initializers of a model, or the first state of a bundle."""
    if path.is_dir():
        return _as_reals(dict(Bundle(path).first_state(Options()).to_dict()))
    stored: ModelFile = open_model(path)
    base = str(path.parent)
    return {t.name: onnx.numpy_helper.to_array(t, base) for t in stored.proto.graph.initializer}


def _as_reals(state: dict[str, Array]) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in state.items()}


def _results(path: Path) -> dict[str, Array]:
    """The results of a model, or of one step of a bundle, on numbers drawn from one seed."""
    draws = np.random.default_rng(_SEED)
    model = Trainer(path) if path.is_dir() else Predictor(path)
    feeds = []
    for feed in model.feeds:
        if feed.dtype.kind not in "fiub":
            raise BundleError(f"input {feed.name} is {feed.element}, of which none are drawn")
        shape = [d if isinstance(d, int) else _BATCH for d in feed.shape]
        feeds.append(random_array(draws, shape, feed.dtype, integers=_INTEGERS))
    results = model.step(*feeds) if isinstance(model, Trainer) else model(*feeds)
    return {name: np.asarray(value) for name, value in results.items()}
