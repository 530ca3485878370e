"""Relations of a value that one process computes of its rows to that of the whole batch.

Each operator has a rule that says so of its outputs from what holds for its inputs. An operator
without one, and one that mixes rows, makes a "mixed" value, which no result may depend on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import numpy as np
import onnx_ir as ir

from flow2onnx.graph.nodes import attribute, subgraphs_of
from flow2onnx.graph.own_statistics import are_own_statistics
from flow2onnx.graph.types import constant_of, dims, is_static, rank_of

__all__ = ["BROADCASTING", "Share", "Shares", "row_shares", "share_of", "uniform"]


@dataclass(frozen=True)
class Share:
    """The relation of a process's value to the whole; a value without a share is the same on all.

    "rows": it is a part of the whole along `axis`. "mean", "sum": the whole is the mean or the sum
    over the processes. "own": a statistic of its own rows that nobody puts together. "piece": what
    one device of a mirrored job has. "at": process `axis` has the whole, the others nothing.
    "mixed": none of these, because of `node`.
    """

    kind: Literal["rows", "mean", "sum", "own", "piece", "at", "mixed"]
    axis: int = 0
    node: ir.Node | None = None


Array = np.ndarray[Any, Any]
Shares = Sequence[Share | None]
Rule = Callable[[ir.Node, Shares], Share]

_OWN = Share("own")


class _MixedError(Exception):
    """A node that combines rows of a batch."""


def row_shares(nodes: Iterable[ir.Node], split: Mapping[ir.Value, int]) -> dict[ir.Value, Share]:
    """The share of each value that differs between processes; `split` has inputs with their axis.

    Shapes are those of the whole batch.
    """
    found = {value: Share("rows", axis) for value, axis in split.items()}
    for node in nodes:
        given = [found.get(v) if v is not None else None for v in node.inputs]
        if not any(given) and not _captures(node, found):
            continue
        share = share_of(node, given)
        if share is not None:
            found.update(dict.fromkeys(node.outputs, share))
    return found


def _captures(node: ir.Node, found: Mapping[ir.Value, Share]) -> bool:
    return any(v in found for g in subgraphs_of(node) for n in g for v in n.inputs if v)


def share_of(node: ir.Node, given: Shares) -> Share | None:
    """The share of the outputs of a node whose inputs have shares, or are the same everywhere."""
    mixed = next((s for s in given if s is not None and s.kind == "mixed"), None)
    if mixed is not None:
        return mixed
    try:
        values = [*node.inputs, *node.outputs]
        if subgraphs_of(node) or not all(v is None or is_static(v) for v in values):
            raise _MixedError
        if are_own_statistics(node):
            return _OWN
        kinds = {s.kind for s in given if s is not None}
        if kinds <= {"own"}:
            return _OWN
        if kinds <= {"mean"} or kinds <= {"sum"}:
            return _linear(node, given)
        if not kinds <= {"rows", "own"} or node.op_type not in _RULES:
            raise _MixedError
        return _RULES[node.op_type](node, given)
    except _MixedError:
        return Share("mixed", node=node)


# --- values that are means or sums over the processes ---------------------------------------------

_KEEPING = frozenset(
    {"Identity", "Neg", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Expand", "Slice",
     "ReduceSum", "ReduceMean", "Flatten", "Tile"}
)  # fmt: skip
_FLOATS = frozenset({"FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"})


def _linear(node: ir.Node, given: Shares) -> Share:
    """A mean or sum stays one under what is linear; a mean also when a constant is added."""
    share = next(s for s in given if s is not None)
    places = [i for i, s in enumerate(given) if s is not None]
    kind = node.op_type
    is_linear = (
        (kind in _KEEPING and places == [0])
        or (kind == "Cast" and _element(node.outputs[0]) in _FLOATS)
        or (kind == "Mul" and len(places) == 1)
        or (kind == "Div" and places == [0])
        or (kind in ("Add", "Sub", "Sum", "Concat") and len(places) == len(node.inputs))
        or (kind in ("Add", "Sub", "Sum") and share.kind == "mean")
    )
    if not is_linear:
        raise _MixedError
    return share


def _element(value: ir.Value) -> str:
    return value.dtype.name if value.dtype is not None else ""


# --- values that have rows ------------------------------------------------------------------------


def _elementwise(node: ir.Node, given: Shares) -> Share:
    """Rows of the operands stand side by side, from the last axis on."""
    rank = rank_of(node.outputs[0])
    behind = {s.axis - rank_of(v) for v, s in _rows(node, given)}
    if len(behind) != 1:
        raise _MixedError
    (axis,) = behind
    size = dims(node.outputs[0])[axis]
    for value, share in zip(node.inputs, given, strict=True):
        if value is None or (share is not None and share.kind == "rows"):
            continue
        known = dims(value)
        is_spread = len(known) < -axis or known[axis] == 1
        if size > 1 and not is_spread and uniform(value) is None:
            raise _MixedError
    return Share("rows", rank + axis)


def uniform(value: ir.Value) -> Array | None:
    """The one number that a constant holds everywhere, as an array without dimensions."""
    content = constant_of(value)
    if content is None or not content.size or not (content == content.flat[0]).all():
        return None
    return np.asarray(content.flat[0])


def _rows(node: ir.Node, given: Shares) -> list[tuple[ir.Value, Share]]:
    return [
        (v, s)
        for v, s in zip(node.inputs, given, strict=True)
        if v is not None and s is not None and s.kind == "rows"
    ]


def _first(node: ir.Node, given: Shares) -> tuple[ir.Value, int]:
    """The first operand and the axis of its rows; all others are the same everywhere."""
    if not given[0] or given[0].kind != "rows" or any(given[1:]) or node.inputs[0] is None:
        raise _MixedError
    return node.inputs[0], given[0].axis


def _axes(node: ir.Node, default: Sequence[int] | None = None) -> list[int]:
    """The axes that a node names by attribute or second operand, counted from the front."""
    rank, named = rank_of(_operand(node)), attribute(node, "axes")
    if named is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        content = constant_of(node.inputs[1])
        if content is None:
            raise _MixedError
        named = content.ravel().tolist()
    if named is None:
        named = range(rank) if default is None else default
    return [int(a) % max(rank, 1) for a in named]


def _operand(node: ir.Node) -> ir.Value:
    assert node.inputs[0] is not None, f"{node.op_type} has an operand"
    return node.inputs[0]


_TOTALS = {"ReduceSum": "sum", "ReduceL1": "sum", "ReduceSumSquare": "sum", "ReduceMean": "mean"}


def _reduce(node: ir.Node, given: Shares) -> Share:
    _, axis = _first(node, given)
    if attribute(node, "noop_with_empty_axes", 0):
        raise _MixedError
    axes = _axes(node)
    if axis in axes:
        if node.op_type not in _TOTALS:
            raise _MixedError
        return Share(_TOTALS[node.op_type])  # type: ignore[arg-type]  # one of the literals
    dropped = 0 if attribute(node, "keepdims", 1) else sum(a < axis for a in axes)
    return Share("rows", axis - dropped)


def _along_axis(node: ir.Node, given: Shares) -> Share:
    """The rule of operators along one axis, -1 or their own, which they keep or drop."""
    value, axis = _first(node, given)
    default = 0 if node.op_type.startswith("Arg") else -1
    own = attribute(node, "axis", default)
    if node.op_type == "CumSum":
        own = int(_content(node.inputs[1]))
    own %= rank_of(value)
    if own == axis:
        raise _MixedError
    keeps = attribute(node, "keepdims", 1)
    return Share("rows", axis - (not keeps and own < axis))


def _content(value: ir.Value | None) -> Array:
    content = constant_of(value) if value is not None else None
    if content is None:
        raise _MixedError
    return content


def _normalize(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    if axis >= attribute(node, "axis", -1) % rank_of(value):
        raise _MixedError
    return Share("rows", axis)


def _by_sample(node: ir.Node, given: Shares) -> Share:
    """Convolutions, pools and normalisations, whose samples are apart on axis 0."""
    _, axis = _first(node, given)
    if axis:
        raise _MixedError
    return Share("rows", 0)


def _matmul(node: ir.Node, given: Shares) -> Share:
    (x, y), (of_x, of_y) = node.inputs, given
    assert x is not None, "a product has two factors"
    assert y is not None, "a product has two factors"
    rank = rank_of(node.outputs[0])
    if min(rank_of(x), rank_of(y)) < 2 or "own" in {s.kind for s in given if s}:
        raise _MixedError
    ends = [None if s is None else s.axis - rank_of(v) for v, s in ((x, of_x), (y, of_y))]
    if ends == [-1, -2]:
        return Share("sum")
    if ends[1] is None and ends[0] not in (None, -1):
        _check_spread(y, ends[0])
        return Share("rows", rank + (ends[0] or 0))
    if ends[0] is None and ends[1] not in (None, -2):
        _check_spread(x, ends[1])
        return Share("rows", rank + (ends[1] or 0))
    if ends[0] == ends[1] and ends[0] is not None and ends[0] < -2:
        return Share("rows", rank + ends[0])
    raise _MixedError


def _check_spread(value: ir.Value, axis: int | None) -> None:
    """Raise where the factor that all have differs along the rows of the other."""
    if axis is not None and axis < -2 and len(dims(value)) >= -axis and dims(value)[axis] != 1:
        raise _MixedError


def _gemm(node: ir.Node, given: Shares) -> Share:
    turned = [bool(attribute(node, name, 0)) for name in ("transA", "transB")]
    kept = (int(turned[0]), 1 - int(turned[1]))  # the axis of each factor that the product keeps
    axes = [None if s is None else s.axis if s.kind == "rows" else -1 for s in given[:2]]
    if -1 in axes or axes == [None, None]:
        raise _MixedError
    added = node.inputs[2] if len(node.inputs) > 2 else None
    if None not in axes:
        if added is not None or axes != [1 - kept[0], 1 - kept[1]]:
            raise _MixedError
        return Share("sum")
    axis = 0 if axes[0] is not None else 1
    if axes[axis] != kept[axis] or (added is not None and not _goes_along(added, given[2], axis)):
        raise _MixedError
    return Share("rows", axis)


def _goes_along(added: ir.Value, share: Share | None, axis: int) -> bool:
    """True if what a product of matrices adds has the rows that the product has along an axis."""
    behind = axis - 2
    if share is None:
        return rank_of(added) < -behind or dims(added)[behind] == 1
    return share.kind == "rows" and share.axis - rank_of(added) == behind


def _reshape(node: ir.Node, given: Shares) -> Share:
    """The rows stay where as many elements lie before them as did."""
    value, axis = _first(node, given)
    old, new = dims(value), dims(node.outputs[0])
    before, size = prod(old[:axis]), old[axis]
    places = [k for k in range(len(new)) if prod(new[:k]) == before]
    exact = [k for k in places if new[k] == size]
    larger = [k for k in places if new[k] % size == 0 or (size % new[k] == 0 and new[k] > 1)]
    if not before or not size or not exact + larger:
        raise _MixedError
    return Share("rows", (exact + larger)[0])


def _squeeze(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    axes = _axes(node, [i for i, d in enumerate(dims(value)) if d == 1])
    if axis in axes:
        raise _MixedError
    return Share("rows", axis - sum(a < axis for a in axes))


def _unsqueeze(node: ir.Node, given: Shares) -> Share:
    _, axis = _first(node, given)
    rank = rank_of(node.outputs[0])
    added = {int(a) % rank for a in _content(node.inputs[1]).ravel()}
    return Share("rows", [i for i in range(rank) if i not in added][axis])


def _transpose(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    order = attribute(node, "perm") or range(rank_of(value))[::-1]
    return Share("rows", list(order).index(axis))


def _expand(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    rank, behind = rank_of(node.outputs[0]), axis - rank_of(value)
    if dims(node.outputs[0])[behind] != dims(value)[axis]:
        raise _MixedError
    return Share("rows", rank + behind)


def _slice(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    if dims(node.outputs[0])[axis] != dims(value)[axis]:
        raise _MixedError
    rank = rank_of(value)
    named = node.inputs[3] if len(node.inputs) > 3 else None
    starts = _content(node.inputs[1]).ravel()
    axes = list(range(len(starts))) if named is None else _content(named).ravel().tolist()
    if any(int(a) % rank == axis and start != 0 for a, start in zip(axes, starts, strict=True)):
        raise _MixedError  # such as rows in reverse
    return Share("rows", axis)


def _pad(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    if len(node.inputs) > 3 and node.inputs[3] is not None:
        raise _MixedError
    pads, rank = _content(node.inputs[1]).ravel(), rank_of(value)
    if pads[axis] or pads[axis + rank]:
        raise _MixedError
    return Share("rows", axis)


def _concat(node: ir.Node, given: Shares) -> Share:
    rank = rank_of(node.outputs[0])
    axes = {s.axis for _, s in _rows(node, given)}
    if len(axes) != 1 or attribute(node, "axis") % rank in axes:
        raise _MixedError
    for value, share in zip(node.inputs, given, strict=True):
        if value is not None and share is None and uniform(value) is None:
            raise _MixedError
    return Share("rows", axes.pop())


def _gather(node: ir.Node, given: Shares) -> Share:
    data, index = node.inputs
    assert data is not None, "a gather has data"
    assert index is not None, "a gather has indices"
    own = attribute(node, "axis", 0) % rank_of(data)
    if given[1] is not None and given[0] is None and given[1].kind == "rows":
        return Share("rows", own + given[1].axis)
    _, axis = _first(node, given)
    if axis == own:
        raise _MixedError
    return Share("rows", axis if axis < own else axis + rank_of(index) - 1)


def _gather_elements(node: ir.Node, given: Shares) -> Share:
    """Operands of one shape, all of them rows."""
    axes = {s.axis for s in given if s is not None and s.kind == "rows"}
    own = attribute(node, "axis", 0) % rank_of(_operand(node))
    is_whole = len(_rows(node, given)) == len(node.inputs)
    if not is_whole or len(axes) != 1 or own in axes:
        raise _MixedError
    return Share("rows", axes.pop())


def _gather_nd(node: ir.Node, given: Shares) -> Share:
    depth = attribute(node, "batch_dims", 0)
    index = node.inputs[1]
    assert index is not None, "a gather has indices"
    if given[1] is None or given[1].kind != "rows" or given[1].axis == rank_of(index) - 1:
        raise _MixedError
    if given[0] is None and given[1].axis >= depth:
        return Share("rows", given[1].axis)
    if given[0] is not None and given[0] == given[1] and given[1].axis < depth:
        return Share("rows", given[1].axis)
    raise _MixedError


def _one_hot(node: ir.Node, given: Shares) -> Share:
    _, axis = _first(node, given)
    own = attribute(node, "axis", -1) % rank_of(node.outputs[0])
    return Share("rows", axis + (own <= axis))


def _tile(node: ir.Node, given: Shares) -> Share:
    _, axis = _first(node, given)
    if _content(node.inputs[1]).ravel()[axis] != 1:
        raise _MixedError
    return Share("rows", axis)


def _split(node: ir.Node, given: Shares) -> Share:
    value, axis = _first(node, given)
    if attribute(node, "axis", 0) % rank_of(value) == axis:
        raise _MixedError
    return Share("rows", axis)


_ELEMENTWISE = (
    "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitShift",
    "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "Ceil", "Celu", "Clip",
    "Cos", "Cosh", "DequantizeLinear", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu",
    "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN",
    "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul",
    "Neg", "Not", "Or", "PRelu", "Pow", "QuantizeLinear", "RandomNormalLike",
    "RandomUniformLike", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh",
    "ThresholdedRelu", "Where", "Xor", "Bernoulli", "Dropout",
)  # fmt: skip
# Operators that repeat an operand along the rows of another, or set it beside them.
BROADCASTING = frozenset({*_ELEMENTWISE, "Concat"})
_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
)  # fmt: skip
_SAMPLES = (
    "AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace",
    "GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN",
    "MaxPool", "Resize", "SpaceToDepth",
)  # fmt: skip
_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(_SAMPLES, _by_sample),
    **dict.fromkeys(("ArgMax", "ArgMin", "CumSum", "Hardmax", "LogSoftmax", "Softmax", "TopK"),
                    _along_axis),
    **dict.fromkeys(("GatherElements", "ScatterElements"), _gather_elements),
    "Concat": _concat, "Expand": _expand, "Flatten": _reshape, "Gather": _gather,
    "GatherND": _gather_nd, "Gemm": _gemm, "LayerNormalization": _normalize, "MatMul": _matmul,
    "OneHot": _one_hot, "Pad": _pad, "Reshape": _reshape, "Slice": _slice, "Split": _split,
    "Squeeze": _squeeze, "Tile": _tile, "Transpose": _transpose, "Unsqueeze": _unsqueeze,
}  # fmt: skip
