"""The model itself beside the imported one, on the same random numbers."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flow2onnx_runtime import BundleError, Options, open_session, view
from flow2onnx_runtime.dtypes import Array

from flow2onnx.compile import CompiledJob
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Node, Value
from flow2onnx.graph.model import model_bytes
from flow2onnx.graph.nodes import RANDOM_OPERATORS, attribute
from flow2onnx.imported.feeds import Feed, Feeds
from flow2onnx.imported.initial_state import ModelState
from flow2onnx.onnx_io.foreign import ForeignModel, Source, source_content

__all__ = ["CHECKED_BYTES", "NOT_CHECKED", "ImportCheck", "compare_import"]

CHECKED_BYTES = 1 << 28  # of weights: both models hold them while they are compared
_MOST_ELEMENTS = 1 << 22  # of the feeds
_LARGEST_VALUE, _MOST_VALUES = 1 << 25, 1 << 29  # numbers in one value of the model, and in all
_BATCH = 2
_SIZES = (8, 32, 3)  # of other free axes: texts may be short, images large, or neither
# More is another function, by bytes of an element; rounding makes a hundredth of it.
_TOLERANCE = {2: 5e-2, 4: 1e-3, 8: 1e-3}
_OPTIONS = Options(
    optimization="disable",
    intra_op_threads=1,
    session_entries={"session.disable_prepacking": "1"},  # which copies the weights
)


@dataclass(frozen=True)
class ImportCheck:
    """The worst difference of any output, relative to the largest number in it.

    It is None where the models were not compared; `reason` says why.
    """

    difference: float | None
    reason: str = ""

    def _repr_html_(self) -> str:
        """The verdict for a notebook."""
        return view.html_block("import", view.facts_table({"model": self}))

    def __str__(self) -> str:
        if self.difference is None:
            return f"not compared with the model itself: {self.reason}"
        return f"differs from the model itself by {self.difference:.1e} on random numbers"


NOT_CHECKED = ImportCheck(None, "it was not asked for")


def compare_import(
    source: Source,
    foreign: ForeignModel,
    feeds: Feeds,
    predict: CompiledJob,
    state: ModelState,
    *,
    is_asked: bool | None,
) -> ImportCheck:
    """Run the model and what was made of it; raises UnsupportedError where they differ.

    Without being asked, models of more than `CHECKED_BYTES` of weights are left out.
    """
    sizes = _SIZES if feeds.has_free_axes else _SIZES[:1]
    tried = [[feeds.example(f, _BATCH, size) for f in feeds.model] for size in sizes]
    reason = _reason_against(foreign, tried[0], predict, is_asked)
    if reason:
        return ImportCheck(None, reason)
    try:
        arrays, wanted = _run_source(source, foreign, feeds.model, tried)
    except BundleError as error:
        return ImportCheck(None, error.message)
    found = _run_imported(predict, state, arrays)
    pairs = zip(foreign.outputs, found, wanted, strict=True)
    differences = {name: _difference(x, y) for name, x, y in pairs}
    name, worst = max(differences.items(), key=lambda item: item[1])
    narrowest = min((y.dtype.itemsize for y in wanted if y.dtype.kind == "f"), default=4)
    if worst > _TOLERANCE.get(2 if foreign.was_bfloat16 else narrowest, 1e-3):
        raise UnsupportedError(
            f"the imported model computes something else: its output {name} differs by {worst:.2g} "
            "of its size on random numbers",
            hint="export the model at opset 18 or later, or take it as it is with "
            "check_import=False",
        )
    return ImportCheck(worst)


def _reason_against(
    foreign: ForeignModel,
    shapes: Sequence[tuple[int, ...]],
    predict: CompiledJob,
    is_asked: bool | None,
) -> str:
    if is_asked is False:
        return "check_import=False"
    drawn = next((n for n in foreign.graph.all_nodes() if _is_drawn(n)), None)
    if drawn is not None:
        return f"{drawn.op_type} {drawn.name} draws random numbers, or is in training form"
    size = sum(int(t.nbytes) for t in foreign.tensors.values())
    count = sum(math.prod(s) for s in shapes)
    if is_asked is None and (size > CHECKED_BYTES or count > _MOST_ELEMENTS):
        return f"{size} bytes of weights, {count} numbers as input: check_import=True does it still"
    values = [_count(v) for node in predict.model.graph.all_nodes() for v in node.outputs]
    if is_asked is None and (max(values, default=0) > _LARGEST_VALUE or sum(values) > _MOST_VALUES):
        return f"its values have {sum(values)} numbers: check_import=True does it still"
    return ""


def _count(value: Value) -> int:
    """The numbers in a value, as far as its sizes are known."""
    return math.prod(d if isinstance(d, int) else _BATCH for d in value.shape or ())


def _is_drawn(node: Node) -> bool:
    if node.op_type == "Dropout":
        return len(node.inputs) > 2 and node.inputs[2] is not None
    is_training = node.op_type == "BatchNormalization" and attribute(node, "training_mode", 0)
    return bool(is_training) or node.op_type in RANDOM_OPERATORS


def _run_source(
    source: Source,
    foreign: ForeignModel,
    feeds: Sequence[Feed],
    tried: Sequence[Sequence[tuple[int, ...]]],
) -> tuple[list[Array], list[Array]]:
    """Random feeds that the model itself takes, of the first shapes of those `tried` that it does,
    and its outputs; raises BundleError.
    """
    session = open_session(source_content(source), _OPTIONS)
    error = "nothing was tried"
    # whole numbers are numbers of rows and the like: 0 is the safest
    for shapes, limit in itertools.product(tried, (2, 1)):
        arrays = [_draw(f, s, limit) for f, s in zip(feeds, shapes, strict=True)]
        try:
            given = {f.name: a for f, a in zip(feeds, arrays, strict=True)}
            return arrays, session.run(list(foreign.outputs), given)
        except Exception as failed:  # the runtime's exceptions have no common base
            error = str(failed).splitlines()[0]
    raise BundleError(f"it does not run on random numbers: {error}")


def _draw(feed: Feed, shape: tuple[int, ...], limit: int) -> Array:
    rng = np.random.default_rng(0)
    if feed.dtype.is_floating_point:
        return rng.standard_normal(shape).astype(feed.dtype.numpy)
    return rng.integers(0, limit, shape).astype(feed.dtype.numpy)


def _run_imported(job: CompiledJob, state: ModelState, arrays: Sequence[Array]) -> list[Array]:
    session = open_session(model_bytes(job.model), _OPTIONS)
    feeds = dict(zip(job.feeds, arrays, strict=True))
    # the weights are given as they are: in the model they would be there three times over
    found: list[Array] = session.run(list(job.results), feeds | state.values(job.variables))
    return found


def _difference(found: Array, wanted: Array) -> float:
    """The largest difference by the largest number; of whole numbers, the share that differs."""
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return float("inf")
    if wanted.dtype.kind != "f":
        return float(np.mean(found != wanted)) if wanted.size else 0.0
    x, y = found.astype(np.float64), wanted.astype(np.float64)
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    gaps = np.abs(np.where(same, 0.0, x) - np.where(same, 0.0, y))
    size = np.abs(y[np.isfinite(y)]).max(initial=0.0)
    worst = float(np.nan_to_num(gaps, nan=np.inf).max(initial=0.0))
    return worst / float(size) if size else worst
