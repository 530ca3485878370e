"""Which `GroupQueryAttention` of a step is a plain one, and which nodes are its gradient.

The gradient is the one that flow2onnx writes in standard operators: no other is matched.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from flow2onnx_native.attention_nodes import CPU_LIMITS, is_within
from flow2onnx_native.graph import (
    dims,
    is_float,
    is_standard,
    is_static,
    is_transpose,
    number,
    scalar,
)
from flow2onnx_native.recomputed import Recomputed

__all__ = [
    "CONTRIB",
    "Grouped",
    "GroupedGradient",
    "gradient_of",
    "grouped_of",
    "only_reader",
    "weights_computed_again",
]

CONTRIB = "com.microsoft"
_EXCHANGED = [0, 1, 3, 2]  # rows and columns of (example, head, row, column)
_TOLERANCE = 1e-6  # of factors, which single precision rounds
# How a gradient reads queries, keys and values, from the operands of the node.
_VIEWS = ("Reshape", "Transpose", "Slice", "Split")


@dataclass(frozen=True)
class Grouped:
    """A `GroupQueryAttention` of known sizes that reads no past; `shared` are heads of keys."""

    node: ir.Node
    examples: int
    rows: int
    heads: int
    shared: int
    width: int
    scale: float

    def operand(self, at: int) -> ir.Value | None:
        """An operand, None for one that is left out."""
        return self.node.inputs[at] if at < len(self.node.inputs) else None

    @property
    def turns(self) -> bool:
        """True if queries and keys are turned by their places."""
        return number(self.node, "do_rotary", 0) == 1

    @property
    def given_weights(self) -> ir.Value | None:
        """The weights of the keys where the node gives them and somebody reads them."""
        outputs = self.node.outputs
        return outputs[3] if len(outputs) > 3 and outputs[3].uses() else None

    @property
    def rows_read(self) -> ir.Value:
        """The rows that queries are made of: of their own, or with keys and values beside them."""
        x = self.operand(0)
        assert x is not None, "it has queries"
        return x


@dataclass(frozen=True)
class GroupedGradient:
    """Gradients of queries, keys and values, and `slope`, that of the result, all by heads."""

    slope: ir.Value
    queries: ir.Value
    keys: ir.Value
    values: ir.Value
    read: tuple[ir.Value | None, ...]  # in the places of the node's first three operands

    @property
    def results(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """The three gradients."""
        return self.queries, self.keys, self.values

    @property
    def last(self) -> ir.Node:
        """A node behind which slopes are there."""
        made = self.values.producer()
        assert made is not None, "a product makes it"
        return made


def grouped_of(node: ir.Node) -> Grouped | None:
    """A node whose result is softmax(scale * Q K^T) V of known sizes; None for another."""
    if not _is_plain(node):
        return None
    heads, shared = (int(number(node, name, 0)) for name in ("num_heads", "kv_num_heads"))
    x, key, value = (*node.inputs, None, None)[:3]
    read = [v for v in (x, key, value) if v is not None]
    tensors = [*read, node.outputs[0]]
    if heads < 1 or shared < 1 or heads % shared or len(read) not in (1, 3):
        return None
    if not all(is_float(v) and is_static(v) and len(dims(v)) == 3 for v in tensors):
        return None
    examples, rows, whole = dims(node.outputs[0])
    width = whole // heads
    widths = [heads * width, shared * width, shared * width]
    wanted = [sum(widths)] if key is None else widths
    if [dims(v) for v in read] != [(examples, rows, n) for n in wanted]:
        return None
    scale = number(node, "scale", 0) or 1 / math.sqrt(width)
    found = Grouped(node, examples, rows, heads, shared, width, scale)
    is_fit = is_within(CPU_LIMITS, (examples, heads), (rows, rows), width)
    return found if is_fit and _takes_bias(found) and _takes_tables(found) else None


def _is_plain(node: ir.Node) -> bool:
    """True without a past, a cap, a sink, or anything else that changes scores."""
    past_key, past_value, lengths = [*node.inputs, *[None] * 6][3:6]
    return (
        past_key is None and past_value is None and lengths is not None
        and not any(v is not None for v in node.inputs[11:])
        and number(node, "softcap", 0) == 0
        and number(node, "smooth_softmax", 0) != 1
        and number(node, "causal", 1) == 1
    )  # fmt: skip


def _takes_bias(grouped: Grouped) -> bool:
    """True if what is added to scores is there for each, or the same for heads or examples."""
    bias = grouped.operand(10)
    if bias is None:
        return True
    if not is_float(bias) or not is_static(bias) or len(dims(bias)) != 4:
        return False
    examples, heads, *pair = dims(bias)
    is_whole = pair == [grouped.rows, grouped.rows]
    return is_whole and examples in (1, grouped.examples) and heads in (1, grouped.heads)


def _takes_tables(grouped: Grouped) -> bool:
    """True if the tables of a rotation have known sizes."""
    tables = [grouped.operand(at) for at in (7, 8)] if grouped.turns else []
    return all(v is not None and is_static(v) and len(dims(v)) == 2 for v in tables)


def weights_computed_again(graph: ir.Graph) -> list[ir.Value]:
    """The results of softmaxes of products, which may be weights of keys."""
    nodes = [n for n in graph if is_standard(n, "Softmax")]
    return [n.outputs[0] for n in nodes if _is_of_product(n.inputs[0])]


def _is_of_product(scores: ir.Value | None) -> bool:
    """True if scores are a product, perhaps reshaped, hidden and raised."""
    node = _producer(scores)
    while node is not None and is_standard(node, "Max", "Add", "Reshape"):
        node = _producer(node.inputs[0])
    return is_standard(node, "MatMul")


@dataclass(frozen=True)
class _Origin:
    """Where a value comes from: what it is a part of, its factor, its rotations."""

    value: ir.Value
    part: int
    factor: float
    turns: tuple[ir.Node, ...]


def _origin(value: ir.Value, is_there: Callable[[ir.Value], bool]) -> _Origin | None:
    """Follow a value back through views, factors and rotations to one that is looked for."""
    part, factor, turns = 0, 1.0, list[ir.Node]()
    while not is_there(value):
        node = value.producer()
        if node is None or not node.inputs:
            return None
        if (node.domain, node.op_type) == (CONTRIB, "RotaryEmbedding"):
            turns.append(node)
        elif is_standard(node, "Mul") and (scale := scalar(node.inputs[1])) is not None:
            factor *= scale
        elif not is_standard(node, *_VIEWS) or (node.op_type == "Slice" and not _is_start(node)):
            return None
        part += node.outputs.index(value)
        before = node.inputs[0]
        if before is None:
            return None
        value = before
    return _Origin(value, part, factor, tuple(turns))


def _is_start(node: ir.Node) -> bool:
    """True if a slice begins at the beginning."""
    start = node.inputs[1]
    content = None if start is None else start.const_value
    return content is not None and not np.any(content.numpy())


class _Reading:
    """Queries, keys and values of a node as a gradient reads them, perhaps computed again."""

    def __init__(self, grouped: Grouped, recomputed: Recomputed) -> None:
        self.grouped, self._recomputed = grouped, recomputed
        self.operands: list[ir.Value | None] = [grouped.operand(at) for at in range(3)]

    def takes(self, value: ir.Value | None, at: int, factor: float) -> bool:
        """True if a value is queries (0), keys (1) or values (2), times a factor."""
        grouped, is_packed = self.grouped, self.grouped.operand(1) is None
        place = 0 if is_packed else at
        own = grouped.operand(place)
        if value is None or own is None:
            return False
        given = grouped.node.outputs[at] if at and len(grouped.node.outputs) > at else None
        found = _origin(value, lambda v: v is given or self._recomputed.is_same(v, own))
        if found is None or not math.isclose(found.factor, factor, rel_tol=_TOLERANCE):
            return False
        if found.value is given:
            return not found.turns
        self.operands[place] = found.value
        return (
            found.part == (at if is_packed else 0)
            and len(found.turns) == (grouped.turns and at < 2)
            and all(_is_turn(turn, grouped) for turn in found.turns)
        )


def _is_turn(turn: ir.Node, grouped: Grouped) -> bool:
    """True for the rotation that a node does itself, forward, from the first place on."""
    tables = [grouped.operand(7), grouped.operand(8)]
    places = turn.inputs[1]
    own = number(turn, "interleaved", 0), number(grouped.node, "rotary_interleaved", 0)
    is_first = places is not None and scalar(places) == 0
    return list(turn.inputs[2:4]) == tables and own[0] == own[1] and is_first


def gradient_of(
    grouped: Grouped, weights: ir.Value, recomputed: Recomputed
) -> GroupedGradient | None:
    """The gradients that are made of the weights of the keys; None where something else is.

    Of weights w and slopes g of the result y: dV = w^T g, s = w (g V^T - g . y), dQ = s K and
    dK = s^T Q, with the scale in K and in Q.
    """
    of_weights = _readers(weights)
    flat = next((n for n in of_weights if is_standard(n, "Reshape")), None)
    scaled = next((n for n in of_weights if is_standard(n, "Mul")), None)
    if len(of_weights) != 2 or flat is None or scaled is None or weights.is_graph_output():
        return None
    of_values = _transposed_product(flat.outputs[0])
    inner = only_reader(scaled.outputs[0], "Reshape")
    pull = next((v for v in scaled.inputs if v is not weights), None)
    if of_values is None or inner is None or pull is None:
        return None
    both = _readers(inner.outputs[0])
    of_queries = next((n for n in both if is_standard(n, "MatMul")), None)
    turned = next((n for n in both if is_standard(n, "Transpose")), None)
    of_keys = None if turned is None else _product_of(turned)
    apart = None if of_queries is None else only_reader(of_queries.outputs[0], "Reshape")
    slope = of_values.inputs[1]
    if len(both) != 2 or of_queries is None or of_keys is None or slope is None or apart is None:
        return None
    slope, reading = _before_reshapes(slope), _Reading(grouped, recomputed)
    is_sound = (
        of_queries.inputs[0] is inner.outputs[0]
        and reading.takes(of_queries.inputs[1], 1, grouped.scale)
        and reading.takes(of_keys.inputs[1], 0, grouped.scale)
        and _is_pull(reading, pull, slope)
        and _is_by_heads(grouped, slope)
    )
    if not is_sound:
        return None
    return GroupedGradient(
        slope, apart.outputs[0], of_keys.outputs[0], of_values.outputs[0], tuple(reading.operands)
    )


def _is_by_heads(grouped: Grouped, slope: ir.Value) -> bool:
    """True if a gradient of the result has the heads of queries side by side."""
    sizes = grouped.examples, grouped.heads, grouped.rows, grouped.width
    return is_static(slope) and dims(slope) == sizes


def _transposed_product(value: ir.Value) -> ir.Node | None:
    """The product of a value, rows and columns exchanged, with another, if nothing else reads."""
    turned = only_reader(value, "Transpose")
    return None if turned is None else _product_of(turned)


def _product_of(turned: ir.Node) -> ir.Node | None:
    """The product of an exchanged matrix with another, if nothing else reads it."""
    value = turned.outputs[0]
    product = only_reader(value, "MatMul") if is_transpose(turned, _EXCHANGED) else None
    return product if product is not None and product.inputs[0] is value else None


def _is_pull(reading: _Reading, pull: ir.Value, slope: ir.Value) -> bool:
    """True for g V^T - g . y, a product of slopes and values with a column more each."""
    product = _before_reshapes(pull).producer()
    if product is None or not is_standard(product, "MatMul"):
        return False
    turned = _producer(product.inputs[1])
    if turned is None or not is_transpose(turned, _EXCHANGED):
        return False
    rows, keys = _columns(product.inputs[0]), _columns(turned.inputs[0])
    if rows is None or keys is None:
        return False
    (g, level), (v, ones) = rows, keys
    one = ones.producer()
    return (
        one is not None
        and is_standard(one, "Expand")
        and scalar(one.inputs[0]) == 1
        and reading.takes(v, 2, 1.0)
        and slope is _before_reshapes(g)
        and _is_level(reading.grouped, level, g)
    )


def _columns(value: ir.Value | None) -> tuple[ir.Value, ir.Value] | None:
    """The two values that stand side by side in the rows of another."""
    made = None if value is None else _before_reshapes(value).producer()
    if made is None or not is_standard(made, "Concat") or len(made.inputs) != 2:
        return None
    a, b = made.inputs
    return (a, b) if number(made, "axis", 0) == 3 and a is not None and b is not None else None


def _is_level(grouped: Grouped, level: ir.Value, g: ir.Value) -> bool:
    """True for minus the sums of slopes times results, of each row."""
    negated = level.producer()
    if negated is None or not is_standard(negated, "Neg"):
        return False
    total = _producer(negated.inputs[0])
    product = _producer(total.inputs[0]) if total is not None else None
    if product is None or not (is_standard(total, "ReduceSum") and is_standard(product, "Mul")):
        return False
    result = next((v for v in product.inputs if v is not g), None)
    sums = negated.outputs[0]
    if result is None or g not in product.inputs or not is_static(sums) or dims(sums)[-1] != 1:
        return False
    found = _origin(result, lambda v: v is grouped.node.outputs[0])
    return found is not None and found.factor == 1 and not found.turns


def _producer(value: ir.Value | None) -> ir.Node | None:
    return None if value is None else value.producer()


def _before_reshapes(value: ir.Value) -> ir.Value:
    """The value that a reshape, or several, is of."""
    while (node := value.producer()) is not None and is_standard(node, "Reshape"):
        before = node.inputs[0]
        if before is None:
            break
        value = before
    return value


def _readers(value: ir.Value) -> list[ir.Node]:
    """The nodes that read the numbers of a value, not its sizes alone."""
    return [use.node for use in value.uses() if not is_standard(use.node, "Shape")]


def only_reader(value: ir.Value, operator: str, domain: str = "") -> ir.Node | None:
    """The one node that reads a value, if it is this operator."""
    found = _readers(value)
    is_one = len(found) == 1 and not value.is_graph_output()
    return (
        found[0] if is_one and (found[0].domain, found[0].op_type) == (domain, operator) else None
    )
