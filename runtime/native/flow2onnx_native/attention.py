"""Attention and its gradients, as two operators that never hold all scores: `Attention`."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

import onnx_ir as ir

from flow2onnx_native.abi import AttentionShape, Draw
from flow2onnx_native.attention_nodes import (
    AttentionLimits,
    MaskKind,
    attention_attributes,
    attention_node,
    gradient_node,
    is_within,
    mask_strides,
)
from flow2onnx_native.draws import CountedDraw, counted_draw
from flow2onnx_native.graph import (
    ON_CPU,
    ON_CUDA,
    describe,
    dims,
    is_float,
    is_standard,
    is_static,
    number,
    readers,
    replace_value,
    scalar,
)

__all__ = ["replace_attention"]

_HALVES = frozenset(ON_CUDA) - frozenset(ON_CPU)
_OPSET_BY_AXIS = 13  # from which on a Softmax is over one axis, and its default is the last


@dataclass(frozen=True)
class _Dropout:
    """Shares thinned out: `kept` are those that a draw keeps, times a factor; `mask` says which."""

    draw: CountedDraw
    mask: ir.Value
    factor: float
    kept: ir.Value


@dataclass(frozen=True)
class _Forward:
    """softmax(scale * queries keys^T, masked) values, the softmax perhaps thinned out.

    `transposed` are the keys as the product reads them, `chosen` is what stands for masked scores.
    """

    softmax: ir.Node
    queries: ir.Value
    keys: ir.Value
    transposed: ir.Value
    values: ir.Value
    scores: ir.Value
    result: ir.Value
    mask: ir.Value | None = None
    kind: int = MaskKind.NONE
    scale: float = 1.0
    chosen: float = 0.0
    dropout: _Dropout | None = None

    @property
    def weights(self) -> ir.Value:
        """The shares that values are multiplied by."""
        return self.shares if self.dropout is None else self.dropout.kept

    def readers(self) -> list[ir.Node]:
        """The nodes that read the softmax, thinned out or not, beside what forward is made of."""
        own = [self.result.producer()]
        found = list(readers(self.softmax))
        if self.dropout is not None:
            where = self.dropout.kept.producer()
            assert where is not None, "a choice makes it"
            own += [where.inputs[1].producer() if where.inputs[1] is not None else None]
            found += readers(where)
        return [node for node in found if node not in own]

    @property
    def shares(self) -> ir.Value:
        """The probabilities of the softmax, a number for each query and key."""
        return self.softmax.outputs[0]


@dataclass(frozen=True)
class _Backward:
    """The gradients of queries, transposed keys and values, made of `slope`, that of the result."""

    slope: ir.Value
    queries: ir.Value
    transposed: ir.Value
    values: ir.Value


def replace_attention(
    graph: ir.Graph,
    operators: Collection[str],
    limits: AttentionLimits,
    *,
    is_precise: bool = False,
) -> None:
    """Put `Attention` and `AttentionGradient` in the place of products around a softmax.

    What computed them before stays, unread. Products on CUDA are TF32's, or of single precision.
    """
    if not {"Attention", "AttentionGradient"} <= set(operators):
        return
    nodes = [n for n in graph if is_standard(n, "Softmax")]
    if not nodes:
        return
    if _has_roundings(graph):
        nodes = [n for n in _unrounded(graph) if is_standard(n, "Softmax")]
    matches = [(count, *found) for count, n in enumerate(nodes) if (found := _match(n, limits))]
    own = {str(v.name): v for v in _values(graph)}
    for count, forward, backward in matches:
        found = _original(forward, backward, own)
        if found is not None and found[0].queries.dtype in limits.reals:
            shape = _shape(found[0], is_precise=is_precise)
            made = _replace(graph, *found, f"native/attention/{count}", shape, limits.kept)
            own |= {str(v.name): v for node in made for v in node.outputs}


def _match(softmax: ir.Node, limits: AttentionLimits) -> tuple[_Forward, _Backward | None] | None:
    """The attention around a softmax and its gradients, if the operators compute them."""
    forward = _forward(softmax, limits)
    if forward is None:
        return None
    others = forward.readers()
    backward = _backward(forward, others) if others else None
    return None if others and backward is None else (forward, backward)


def _has_roundings(graph: ir.Graph) -> bool:
    """True if a value is of half precision, or cast to the precision that it has."""
    for node in graph:
        if any(v.dtype in _HALVES for v in node.outputs):
            return True
        if is_standard(node, "Cast") and all(
            v.dtype in ON_CPU for v in (*node.inputs, *node.outputs) if v
        ):
            return True
    others = (*graph.inputs, *graph.initializers.values())
    return any(v.dtype in _HALVES for v in others)


def _unrounded(graph: ir.Graph) -> ir.Graph:
    """A copy for matching, in which halves are of single precision and no cast rounds to them.

    The operators compute in single precision what stands between products.
    """
    copy = graph.clone()
    for value in _values(copy):
        if value.dtype in ON_CUDA:
            value.type = ir.TensorType(ir.DataType.FLOAT)
    for node in [n for n in copy if is_standard(n, "Cast")]:
        x, y = node.inputs[0], node.outputs[0]
        if x is not None and is_float(x) and is_float(y) and not y.is_graph_output():
            y.replace_all_uses_with(x)
            copy.remove(node, safe=True)
    return copy


def _values(graph: ir.Graph) -> Iterator[ir.Value]:
    """The values of a graph; of two of one name the one that took it over comes last."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs


def _original(
    forward: _Forward, backward: _Backward | None, own: Mapping[str, ir.Value]
) -> tuple[_Forward, _Backward | None] | None:
    """A match in a copy, in the values of the graph itself; None where types differ.

    Operands are those of the products, be they rounded for them.
    """

    def of(value: ir.Value) -> ir.Value:
        return own[str(value.name)]

    def operands(product: ir.Value) -> tuple[ir.Value, ir.Value]:
        node = of(product).producer()
        a, b = node.inputs if node is not None else (None, None)
        assert a is not None, "a product makes it"
        assert b is not None, "a product makes it"
        return a, b

    queries, transposed = operands(forward.scores)
    mask, dropout = forward.mask, forward.dropout
    if dropout is not None:
        counters = tuple(map(of, dropout.draw.counters))
        dropout = replace(dropout, draw=replace(dropout.draw, counters=counters))
    found = replace(
        forward, queries=queries, keys=_transpose_of(transposed) or of(forward.keys),
        values=operands(forward.result)[1], result=of(forward.result),
        mask=None if mask is None else of(mask), dropout=dropout,
    )  # fmt: skip
    tensors = [found.queries, found.keys, found.values, found.result]
    if backward is not None:
        made = map(of, (backward.queries, backward.transposed, backward.values))
        backward = _Backward(operands(backward.values)[1], *made)
        tensors += [backward.slope, backward.queries, backward.transposed, backward.values]
    is_alike = len({v.dtype for v in tensors}) == 1
    is_plain = mask is None or _type(of(mask)) == _type(mask)
    return (found, backward) if is_alike and is_plain else None


def _forward(softmax: ir.Node, limits: AttentionLimits) -> _Forward | None:
    """The attention that a softmax is of; None where it is of none that the operator computes."""
    scores, shares = softmax.inputs[0], softmax.outputs[0]
    if scores is None or not _is_matrix(shares) or shares.is_graph_output():
        return None
    if not _is_over_keys(softmax):
        return None
    dropout = _dropout_of(softmax)
    weights = shares if dropout is None else dropout.kept
    reading = [use.node for use in weights.uses()]
    product = next((n for n in reading if _reads_first(n, "MatMul", weights)), None)
    mask, kind, chosen, inner = _unmasked(scores)
    factor, inner = _unscaled(inner)
    matmul = inner.producer()
    if product is None or matmul is None or not is_standard(matmul, "MatMul"):
        return None
    queries, transposed = matmul.inputs
    keys = _transpose_of(transposed)
    values = product.inputs[1]
    if queries is None or transposed is None or keys is None or values is None:
        return None
    found = _Forward(softmax, queries, keys, transposed, values, inner, product.outputs[0],
                     mask, kind, factor, chosen, dropout)  # fmt: skip
    return found if _fits(found, limits) else None


def _is_over_keys(softmax: ir.Node) -> bool:
    """True if a softmax is over the last axis; before opset 13 it may be over all but the first."""
    opsets = {} if softmax.graph is None else softmax.graph.opset_imports
    default = -1 if opsets.get("", _OPSET_BY_AXIS) >= _OPSET_BY_AXIS else 1
    return number(softmax, "axis", default) in (-1, len(dims(softmax.outputs[0])) - 1)


def _dropout_of(softmax: ir.Node) -> _Dropout | None:
    """The dropout that a softmax goes through, if its draw is counted."""
    shares = softmax.outputs[0]
    for node in readers(softmax):
        factor, inner = _unscaled(node.outputs[0])
        where = _only_reader(node, "Where") if inner is shares else None
        if where is None or where.inputs[1] is not node.outputs[0] or scalar(where.inputs[2]) != 0:
            continue
        mask, kept = where.inputs[0], where.outputs[0]
        draw = counted_draw(mask)
        is_whole = mask is not None and is_static(mask) and dims(mask) == dims(shares)
        if mask is not None and draw is not None and is_whole and not kept.is_graph_output():
            return _Dropout(draw, mask, factor, kept)
    return None


def _is_matrix(value: ir.Value | None) -> bool:
    """True for floats of known sizes, with one or two axes of pairs before rows and columns."""
    return value is not None and is_float(value) and is_static(value) and len(dims(value)) in (3, 4)


def _reads_first(node: ir.Node, op_type: str, value: ir.Value) -> bool:
    return is_standard(node, op_type) and node.inputs[0] is value and node.inputs[1] is not value


def _unmasked(scores: ir.Value) -> tuple[ir.Value | None, int, float, ir.Value]:
    """The mask of scores, its kind, what stands for masked ones, and the scores before it."""
    node = scores.producer()
    if node is not None and is_standard(node, "Where"):
        condition, kept, other = node.inputs
        fill = scalar(other)
        if kept is not None and fill is not None and _is_spread_over(condition, scores):
            return condition, MaskKind.CHOSEN, fill, kept
    if node is not None and is_standard(node, "Add"):
        for kept, mask in (node.inputs, node.inputs[::-1]):
            if kept is not None and _is_product(kept) and _is_spread_over(mask, scores):
                return mask, MaskKind.ADDED, 0.0, kept
    return None, MaskKind.NONE, 0.0, scores


def _is_product(value: ir.Value) -> bool:
    _, inner = _unscaled(value)
    return is_standard(inner.producer(), "MatMul")


def _is_spread_over(mask: ir.Value | None, scores: ir.Value) -> bool:
    """True if each axis of a mask is one of the scores, or of one element."""
    if mask is None or mask.shape is None or not is_static(mask) or not is_static(scores):
        return False
    own, whole = dims(mask), dims(scores)
    pairs = zip(own[::-1], whole[::-1], strict=False)
    return len(own) <= len(whole) and all(m in (1, n) for m, n in pairs)


def _unscaled(scores: ir.Value) -> tuple[float, ir.Value]:
    """The factor of scores, and the scores before it."""
    node = scores.producer()
    if node is not None and is_standard(node, "Mul", "Div"):
        kept, factor = node.inputs[0], scalar(node.inputs[1])
        if factor is None and node.op_type == "Mul":
            kept, factor = node.inputs[1], scalar(node.inputs[0])
        if kept is not None and factor:
            return (1 / factor if node.op_type == "Div" else factor), kept
    return 1.0, scores


def _transpose_of(value: ir.Value | None) -> ir.Value | None:
    """The value of which this one has rows and columns exchanged."""
    node = value.producer() if value is not None else None
    if node is None or not is_standard(node, "Transpose") or "perm" not in node.attributes:
        return None
    perm = list(node.attributes["perm"].as_ints())
    rank = len(perm)
    return node.inputs[0] if perm == [*range(rank - 2), rank - 1, rank - 2] else None


def _fits(found: _Forward, limits: AttentionLimits) -> bool:
    """True if the operator computes an attention of these shapes."""
    tensors = (found.queries, found.keys, found.values, found.result)
    if not all(_is_matrix(v) for v in tensors):
        return False
    *pairs, queries, width = dims(found.queries)
    keys = dims(found.keys)[-2]
    wanted = {ir.DataType.BOOL: MaskKind.CHOSEN, ir.DataType.FLOAT: MaskKind.ADDED}
    return (
        dims(found.keys) == dims(found.values) == (*pairs, keys, width)
        and dims(found.result) == (*pairs, queries, width)
        and dims(found.shares) == (*pairs, queries, keys)
        and (found.mask is None or wanted.get(_type(found.mask)) == found.kind)
        and (found.dropout is None or limits.has_draws)
        and is_within(limits, pairs, (queries, keys), width)
    )


def _type(value: ir.Value) -> ir.DataType:
    return value.dtype or ir.DataType.UNDEFINED


def _shape(found: _Forward, *, is_precise: bool) -> AttentionShape:
    *pairs, queries, width = dims(found.queries)
    batch, heads = (*pairs, 1)[:2]
    keys = dims(found.keys)[-2]
    own: tuple[int, ...] = (1,) * (len(pairs) + 2)
    if found.mask is not None:
        own = (*own, *dims(found.mask))[-len(own) :]
    in_batch, *in_head, in_query, in_key = mask_strides(own)
    real = _type(found.queries)
    is_single = real == ir.DataType.FLOAT  # halves are rounded more than TF32 does
    return AttentionShape(
        batch, heads, queries, keys, width, found.kind, in_batch, (*in_head, 0)[0], in_query,
        in_key, int(is_precise and is_single), int(real),
    )  # fmt: skip


def _backward(forward: _Forward, others: list[ir.Node]) -> _Backward | None:
    """The gradients that read a softmax beside its product; None where something else does."""
    weights = forward.weights
    transpose = next((n for n in others if _transpose_of(n.outputs[0]) is weights), None)
    of_values = _only_reader(transpose, "MatMul")
    slope = None if of_values is None else of_values.inputs[1]
    before = _slope_of_scores(forward, slope, [n for n in others if n is not transpose])
    if of_values is None or slope is None or before is None:
        return None
    found = _products(forward, before)
    return None if found is None else _Backward(slope, *found, of_values.outputs[0])


def _only_reader(node: ir.Node | None, op_type: str) -> ir.Node | None:
    """The one node that reads what a node makes, if it is this operator."""
    found = [] if node is None else list(readers(node))
    is_one = len(found) == 1 and is_standard(found[0], op_type)
    is_hidden = node is not None and not any(v.is_graph_output() for v in node.outputs)
    return found[0] if is_one and is_hidden else None


def _slope_of_scores(
    forward: _Forward, slope: ir.Value | None, others: list[ir.Node]
) -> ir.Value | None:
    """The gradient of the scores before mask and factor.

    It is made of shares * (d - sum(d * shares)), d = slope values^T, thinned out as shares are.
    """
    shares, found = forward.shares, None
    for last in others:
        rest = [n for n in others if n is not last]
        factor = _other_factor(last, shares)
        centred = None if factor is None else factor.producer()
        if len(rest) != 1 or centred is None or not is_standard(centred, "Sub"):
            continue
        direct, sums = centred.inputs
        total = None if sums is None else sums.producer()
        product = _thick(forward, direct)
        if total is None or direct is None or not is_standard(total, "ReduceSum"):
            continue
        is_matched = (
            total.inputs[0] is rest[0].outputs[0]
            and _other_factor(rest[0], shares) is direct
            and number(total, "keepdims", 1) == 1
            and product is not None
            and is_standard(product, "MatMul")
            and product.inputs[0] is slope
            and _transpose_of(product.inputs[1]) is forward.values
        )
        found = last.outputs[0] if is_matched else found
    return None if found is None else _before_mask(forward, found)


def _thick(forward: _Forward, slope: ir.Value | None) -> ir.Node | None:
    """The node whose gradient is thinned out to this one as the shares were."""
    if slope is None or forward.dropout is None:
        return None if slope is None else slope.producer()
    factor, kept = _unscaled(slope)
    chosen = kept.producer()
    if factor != forward.dropout.factor or chosen is None:
        return None
    if is_standard(chosen, "Where"):
        condition, inner, other = chosen.inputs
        is_same = condition is forward.dropout.mask and scalar(other) == 0
        return inner.producer() if is_same and inner is not None else None
    operands = chosen.inputs if is_standard(chosen, "Mul") else ()
    for truth, inner in (operands, operands[::-1]) if operands else ():
        cast = None if truth is None else truth.producer()
        is_same = cast is not None and cast.inputs[0] is forward.dropout.mask
        if is_same and is_standard(cast, "Cast") and inner is not None:
            return inner.producer()
    return None


def _other_factor(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The value that a Mul multiplies `value` with, or None if the node is another."""
    if not is_standard(node, "Mul"):
        return None
    a, b = node.inputs
    return b if a is value else a if b is value else None


def _before_mask(forward: _Forward, slope: ir.Value) -> ir.Value | None:
    """The gradient behind what mask and factor do to it, if nobody reads what is between."""
    if forward.kind == MaskKind.CHOSEN:
        where = _only_reader(slope.producer(), "Where")
        if where is None or where.inputs[0] is not forward.mask or scalar(where.inputs[2]) != 0:
            return None
        slope = where.outputs[0]
    if forward.scale == 1.0:
        return slope
    scaled = _only_reader(slope.producer(), "Mul") or _only_reader(slope.producer(), "Div")
    if scaled is None:
        return None
    factor, inner = _unscaled(scaled.outputs[0])
    return scaled.outputs[0] if inner is slope and factor == forward.scale else None


def _products(forward: _Forward, slope: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The gradients of queries and of transposed keys, if nothing else reads `slope`."""
    found: dict[str, ir.Value] = {}
    for node in [use.node for use in slope.uses()]:
        if not is_standard(node, "MatMul"):
            return None
        a, b = node.inputs
        if a is slope and _transpose_of(b) is forward.transposed:
            found["queries"] = node.outputs[0]
        elif b is slope and _transpose_of(a) is forward.queries:
            found["keys"] = node.outputs[0]
        else:
            return None
    both = len(found) == 2 and not slope.is_graph_output()
    return (found["queries"], found["keys"]) if both else None


def _replace(
    graph: ir.Graph, forward: _Forward, backward: _Backward | None, name: str,
    shape: AttentionShape, kept: int,
) -> list[ir.Node]:  # fmt: skip
    """The nodes that take the place of an attention and its gradients."""
    dropout = forward.dropout
    draw = Draw(0, 0, 0, 0) if dropout is None else dropout.draw.record
    factor = 1.0 if dropout is None else dropout.factor
    attributes = attention_attributes(shape, (forward.scale, forward.chosen, factor), draw)
    masks = [] if forward.mask is None else [forward.mask]
    masks += [] if dropout is None else dropout.draw.counters
    operands = [forward.queries, forward.keys, forward.values]
    made = attention_node([*operands, *masks], shape, attributes, name, kept)
    product = forward.result.producer()
    assert product is not None, "a product makes it"
    graph.insert_after(product, made)
    replace_value(forward.result, made.outputs[0])
    if backward is None:
        return [made]
    gradient = gradient_node(backward.slope, made, shape, name)
    maker = backward.values.producer()
    assert maker is not None, "a product makes it"
    graph.insert_after(maker, gradient)
    of_queries, of_keys, of_values, _ = gradient.outputs
    replace_value(backward.queries, of_queries)
    replace_value(backward.values, of_values)
    back = _replace_keys(graph, backward.transposed, of_keys, gradient, name)
    return [made, gradient, back]


def _replace_keys(
    graph: ir.Graph, transposed: ir.Value, of_keys: ir.Value, gradient: ir.Node, name: str
) -> ir.Node:
    """Let the gradient of keys be read where that of transposed ones was, exchanged again."""
    rank = len(dims(transposed))
    *pairs, width, count = dims(transposed)
    describe(of_keys, f"{name}/keys", _type(transposed), (*pairs, count, width))
    perm = ir.AttrInt64s("perm", [*range(rank - 2), rank - 1, rank - 2])
    back = ir.Node("", "Transpose", [of_keys], [perm], num_outputs=1, name=f"{name}/transposed")
    graph.insert_after(gradient, back)
    for node in [n for n in readers(transposed.producer() or gradient) if n is not back]:
        if _transpose_of(node.outputs[0]) is transposed:
            kept = node.outputs[0]
            if not kept.is_graph_output():
                kept.replace_all_uses_with(of_keys)
    replace_value(transposed, back.outputs[0])
    return back
