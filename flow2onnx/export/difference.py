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

__all__ = ["Change", "GraphDifference", "compare_models"]

_BATCH = 2  # what free sizes are
_INTEGERS = (0, 2)  # whole numbers may be indices
_SEED = 1


@dataclass(frozen=True)
class Change:
    """One difference under a name; `distance` is the largest difference of its numbers.

    `kind` is one of "node", "input", "output", "weight" and "result".
    """

    kind: str
    name: str
    change: str
    distance: float | None = None


@dataclass(frozen=True)
class GraphDifference:
    """The differences of two models; `notes` say what could not be compared, and why."""

    first: str
    second: str
    changes: tuple[Change, ...]
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
    """The differences of two models or bundles.

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
def _unique_names(names: Iterable[str]) -> list[str]:
    """The names, with a number where they stood before."""
    seen = Counter[str]()
    found = []
    for name in names:
        found.append(f"{name} #{seen[name] + 1}" if seen[name] else name)
        seen[name] += 1
    return found


def _nodes(first: Graph, second: Graph) -> list[Change]:
    a, b = (
        dict(zip(_unique_names(n.name for n in g.nodes), g.nodes, strict=True))
        for g in (first, second)
    )
    operators = ({name: node.operator for name, node in nodes.items()} for nodes in (a, b))
    changes = _removals_and_additions("node", *operators)
    for name in (n for n in a if n in b):
        was, now = a[name], b[name]
        lines = _property_change("operator", was.operator, now.operator)
        lines += _property_change("inputs", was.inputs, now.inputs)
        for key in dict.fromkeys((*was.attributes, *now.attributes)):
            lines += _property_change(key, was.attributes.get(key), now.attributes.get(key))
        shapes = [[str(g.value(o)) for o in n.outputs] for g, n in ((first, was), (second, now))]
        lines += _property_change("makes", *shapes)
        if lines:
            changes.append(Change("node", name, "; ".join(lines)))
    return changes


def _property_change(what: str, was: Any, now: Any) -> list[str]:
    """A line with the two values of a property; none where they are equal."""
    if was == now:
        return []
    texts = (", ".join(map(str, v)) if isinstance(v, list | tuple) else v for v in (was, now))
    return ["{} {} → {}".format(what, *("nothing" if t in (None, "") else t for t in texts))]


def _ends(kind: str, first: Graph, second: Graph) -> list[Change]:
    a, b = (
        {n: str(g.value(n)) for n in (g.inputs if kind == "input" else g.outputs)}
        for g in (first, second)
    )
    changes = _removals_and_additions(kind, a, b)
    return changes + [Change(kind, n, f"{a[n]} → {b[n]}") for n in a if n in b and a[n] != b[n]]


def _removals_and_additions(
    kind: str, first: Mapping[str, str], second: Mapping[str, str]
) -> list[Change]:
    """The changes of the names that one model alone has; each name comes with its description."""
    removals = [Change(kind, n, f"removed: {first[n]}") for n in first if n not in second]
    return removals + [Change(kind, n, f"added: {second[n]}") for n in second if n not in first]


# --- the numbers ---------------------------------------------------------------------------------
def _arrays(
    read: Any, paths: Sequence[Path], notes: list[str], what: str
) -> tuple[dict[str, Array], dict[str, Array]] | None:
    """Arrays that a function reads of both, or None with a note of why it could not."""
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
) -> list[Change]:  # fmt: skip
    kinds = ({name: _kind(array) for name, array in arrays.items()} for arrays in (first, second))
    changes = _removals_and_additions(kind, *kinds)
    for name in (n for n in first if n in second):
        a, b = first[name], second[name]
        if _kind(a) != _kind(b):
            changes.append(Change(kind, name, f"{_kind(a)} → {_kind(b)}"))
            continue
        far, largest = _distance(a, b)
        if far > tolerance * largest:
            share = f", {far / largest:.1e} of the largest" if 0 < largest < math.inf else ""
            changes.append(Change(kind, name, f"differs by up to {far:.4g}{share}", far))
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
        return Bundle(path).first_state(Options()).to_dict()
    stored: ModelFile = open_model(path)
    base = str(path.parent)
    return {t.name: onnx.numpy_helper.to_array(t, base) for t in stored.proto.graph.initializer}


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
