"""Linear operators of ai.onnx.ml, as scikit-learn is exported with, in operators of the standard.

Their numbers become initializers, named after the node and the attribute.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from flow2onnx.errors import BundleError, UnsupportedError

__all__ = ["expand_linear_models"]

_DOMAIN = "ai.onnx.ml"


def expand_linear_models(graph: onnx.GraphProto) -> frozenset[str]:
    """Replace the linear operators in a graph, in place; returns what they were fitted with.

    Those are the offsets and scales of a Scaler, which nobody means to train. A classifier whose
    classes are texts stays.
    """
    made: list[onnx.NodeProto] = []
    work = _Expansion(graph)
    for node in graph.node:
        expand = _EXPANSIONS.get(node.op_type) if node.domain == _DOMAIN else None
        is_textual = any(a.name == "classlabels_strings" for a in node.attribute)
        if expand is None or is_textual:
            made.append(node)
        else:
            expand(work, node)
            made += work.take()
    del graph.node[:]
    graph.node.extend(made)
    return frozenset(work.fitted)


class _Expansion:
    """Nodes and initializers in the place of one node after the other."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.fitted: set[str] = set()
        self.taken = {t.name for t in graph.initializer} | {v.name for v in graph.input}
        self.taken |= {name for node in graph.node for name in node.output}

    def take(self) -> list[onnx.NodeProto]:
        made, self.nodes = self.nodes, []
        return made

    def tensor(self, node: onnx.NodeProto, stem: str, content: Any) -> str:
        """A new initializer named after the node."""
        name = self._unique(f"{node.name or node.op_type}.{stem}")
        self.graph.initializer.append(numpy_helper.from_array(content, name))
        return name

    def emit(self, op_type: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        """The output of a new node, called `result` if that is given."""
        name = result or self._unique(f"{op_type}_ml")
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attributes))
        return name

    def numbers(self, node: onnx.NodeProto) -> str:
        """The node's input in single precision."""
        return self.emit("Cast", node.input[0], to=TensorProto.FLOAT)

    def _unique(self, stem: str) -> str:
        name, count = stem, 0
        while name in self.taken:
            count += 1
            name = f"{stem}_{count}"
        self.taken.add(name)
        return name


def _scaler(work: _Expansion, node: onnx.NodeProto) -> None:
    """(x - offset) * scale, column by column."""
    offset, scale = (
        work.tensor(node, name, np.asarray(_value(node, name, [default]), np.float32))
        for name, default in (("offset", 0.0), ("scale", 1.0))
    )
    work.fitted |= {offset, scale}
    work.emit("Mul", work.emit("Sub", work.numbers(node), offset), scale, result=node.output[0])


def _scores(work: _Expansion, node: onnx.NodeProto, rows: int) -> str:
    """x times the transposed coefficients, plus the intercepts."""
    coefficients = np.asarray(_value(node, "coefficients", []), np.float32)
    if rows < 1 or not coefficients.size or coefficients.size % rows:
        raise BundleError(
            f"{node.op_type} {node.name}: {coefficients.size} coefficients for {rows} rows",
            hint="export it again",
        )
    intercepts = np.asarray(_value(node, "intercepts", None) or np.zeros(rows), np.float32)
    return work.emit(
        "Gemm",
        work.numbers(node),
        work.tensor(node, "coefficients", coefficients.reshape(rows, -1)),
        work.tensor(node, "intercepts", intercepts),
        transB=1,
    )


def _regressor(work: _Expansion, node: onnx.NodeProto) -> None:
    targets, post = _value(node, "targets", 1), _text(node, "post_transform", "NONE")
    if targets == 1 and post != "NONE":
        raise UnsupportedError(
            f"LinearRegressor {node.name}: post_transform={post} of one target, which ONNX Runtime "
            "leaves out",
            hint="export it with NONE",
        )
    scores = _scores(work, node, targets)
    _transform(work, node, scores, node.output[0])


def _classifier(work: _Expansion, node: onnx.NodeProto) -> None:
    labels = _value(node, "classlabels_ints", [])
    intercepts = _value(node, "intercepts", [])
    rows = len(intercepts) or len(labels)
    if not labels or rows not in (1, len(labels)) or (rows == 1 and len(labels) != 2):
        raise UnsupportedError(
            f"LinearClassifier {node.name}: {rows} rows of coefficients for {len(labels)} classes",
            hint="export it with a row for each class, or one for two classes",
        )
    scores = _scores(work, node, rows)
    if rows == 1:
        is_second = work.emit("Greater", scores, work.tensor(node, "zero", np.zeros(1, np.float32)))
        place = work.emit("Cast", is_second, to=TensorProto.INT64)
        place = work.emit("Squeeze", place, work.tensor(node, "axis", np.array([1])))
        scores = _two_scores(work, node, scores)
        post = "NONE"
    else:
        place = work.emit("ArgMax", scores, axis=1, keepdims=0)
        post = ""
    if node.output[0]:
        table = work.tensor(node, "labels", np.asarray(labels, np.int64))
        work.emit("Gather", table, place, result=node.output[0])
    if len(node.output) > 1 and node.output[1]:
        _transform(work, node, scores, node.output[1], post)


def _two_scores(work: _Expansion, node: onnx.NodeProto, score: str) -> str:
    """Of two classes with one score: what ONNX Runtime gives."""
    if _text(node, "post_transform", "NONE") == "LOGISTIC":
        both = work.emit("Concat", work.emit("Neg", score), score, axis=1)
        return work.emit("Sigmoid", both)
    one = work.tensor(node, "one", np.ones(1, np.float32))
    return work.emit("Concat", work.emit("Sub", one, score), score, axis=1)


def _transform(
    work: _Expansion, node: onnx.NodeProto, scores: str, result: str, known: str = ""
) -> None:
    """The scores of an operator after its last transform."""
    how = known or _text(node, "post_transform", "NONE")
    kinds: Mapping[str, tuple[str, Mapping[str, Any]]] = {
        "NONE": ("Identity", {}),
        "LOGISTIC": ("Sigmoid", {}),
        "SOFTMAX": ("Softmax", {"axis": 1}),
    }
    if how not in kinds:
        raise UnsupportedError(
            f"{node.op_type} {node.name}: post_transform={how}",
            hint=f"export it with one of {', '.join(kinds)}",
        )
    op_type, attributes = kinds[how]
    work.emit(op_type, scores, result=result, **attributes)


def _normalizer(work: _Expansion, node: onnx.NodeProto) -> None:
    """Rows divided by their norm; rows of zeros stay."""
    norm = _text(node, "norm", "MAX")
    if norm not in ("L1", "L2"):
        raise UnsupportedError(
            f"Normalizer {node.name}: norm={norm}", hint="export it with L1 or L2"
        )
    x, axis = work.numbers(node), work.tensor(node, "axis", np.array([1]))
    size = work.emit(f"Reduce{norm}", x, axis)
    zero = work.tensor(node, "zero", np.zeros(1, np.float32))
    one = work.tensor(node, "one", np.ones(1, np.float32))
    safe = work.emit("Where", work.emit("Equal", size, zero), one, size)
    work.emit("Div", x, safe, result=node.output[0])


def _value(node: onnx.NodeProto, name: str, default: Any) -> Any:  # what attributes hold
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else helper.get_attribute_value(found)


def _text(node: onnx.NodeProto, name: str, default: str) -> str:
    given = _value(node, name, default.encode())
    return given.decode(errors="replace") if isinstance(given, bytes) else str(given)


_EXPANSIONS: dict[str, Callable[[_Expansion, onnx.NodeProto], None]] = {
    "LinearClassifier": _classifier,
    "LinearRegressor": _regressor,
    "Normalizer": _normalizer,
    "Scaler": _scaler,
}
