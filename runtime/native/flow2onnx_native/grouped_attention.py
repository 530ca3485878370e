"""`GroupQueryAttention` of steps that train, and its gradient, as native `Attention`."""

import math
from collections.abc import Collection, Sequence
from itertools import zip_longest

import numpy as np
import onnx_ir as ir

from flow2onnx_native.abi import AttentionShape
from flow2onnx_native.attention_layout import HEAD_AXES
from flow2onnx_native.attention_nodes import (
    CPU_LIMITS,
    MaskKind,
    attention_attributes,
    attention_node,
    gradient_node,
    mask_strides,
)
from flow2onnx_native.graph import detach, dims, is_static, is_transpose, number, replace_value
from flow2onnx_native.grouped_gradient import (
    CONTRIB,
    Grouped,
    GroupedGradient,
    gradient_of,
    grouped_of,
    only_reader,
    weights_computed_again,
)
from flow2onnx_native.node_builder import NodeBuilder
from flow2onnx_native.recomputed import Recomputed

__all__ = ["replace_grouped_attention"]


def replace_grouped_attention(graph: ir.Graph, operators: Collection[str]) -> int:
    """Put `Attention` and `AttentionGradient` in the place of attention of groups of heads.

    Returns how many there were. What computed them before stays, unread. Nodes with a past, a cap
    or sinks stay as they are, and those whose weights are read for something else.
    """
    if not {"Attention", "AttentionGradient"} <= set(operators):
        return 0
    nodes = [n for n in graph if (n.domain, n.op_type) == (CONTRIB, "GroupQueryAttention")]
    found = [grouped for node in nodes if (grouped := grouped_of(node)) is not None]
    weights, recomputed = weights_computed_again(graph) if found else [], Recomputed()
    masks: dict[object, ir.Value] = {}
    replaced = 0
    for count, grouped in enumerate(found):
        given = grouped.given_weights
        known = weights if given is None else [given]
        gradients = (gradient_of(grouped, w, recomputed) for w in known)
        gradient = next((g for g in gradients if g is not None), None)
        if gradient is not None or given is None:
            build = NodeBuilder(graph, grouped.node, f"native/grouped/{count}")
            _replace(build, grouped, gradient, _mask(build, grouped, masks))
            replaced += 1
    return replaced


def _replace(
    build: NodeBuilder, grouped: Grouped, gradient: GroupedGradient | None, mask: ir.Value
) -> None:
    """Let attention without scores compute what a node does, and what its gradient does."""
    given = tuple(grouped.operand(at) for at in range(3))
    operands = _operands(build, grouped, given)
    in_batch, in_head, in_query, in_key = mask_strides(dims(mask))
    kind = MaskKind.CHOSEN if mask.dtype == ir.DataType.BOOL else MaskKind.ADDED
    shape = AttentionShape(
        grouped.examples, grouped.heads, grouped.rows, grouped.rows, grouped.width, kind,
        in_batch, in_head, in_query, in_key, 0, int(ir.DataType.FLOAT),
        grouped.heads // grouped.shared,
    )  # fmt: skip
    attributes = attention_attributes(shape, (grouped.scale, -math.inf, 1.0))
    made = attention_node([*operands, mask], shape, attributes, build.name, CPU_LIMITS.kept)
    result, _ = build.put(made, [dims(operands[0])], ir.DataType.FLOAT)
    _give(build, grouped, result, *operands[1:])
    if gradient is not None:
        node = gradient_node(gradient.slope, made, shape, build.name)
        build.graph.insert_after(gradient.last, node)
        if gradient.read != given:  # computed again, so that they are not kept
            again = NodeBuilder(build.graph, gradient.last, f"{build.name}/again")
            for at, operand in enumerate(_operands(again, grouped, gradient.read)):
                node.replace_input_with(1 + at, operand)
        for old, new, operand in zip(gradient.results, node.outputs, operands, strict=False):
            replace_value(old, new)
            new.shape = operand.shape
        _leave_in_rows(NodeBuilder(build.graph, node, node.name or ""), grouped, node.outputs[:3])
    detach([grouped.node])


def _operands(
    build: NodeBuilder, grouped: Grouped, given: Sequence[ir.Value | None]
) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Queries, keys and values, (example, head, row, number), of the rows that are given."""
    shared, lead = grouped.shared, (grouped.examples, grouped.rows)
    widths = [n * grouped.width for n in (grouped.heads, shared, shared)]
    parts = [v for v in given if v is not None]
    if len(parts) == 1:
        axis, shapes = [ir.AttrInt64("axis", 2)], [(*lead, n) for n in widths]
        parts = build.add("Split", [*parts, build.constant(widths)], shapes, axis)
    q, k = (_turn(build, grouped, part) for part in parts[:2])
    queries, keys, values = (
        build.transpose(build.reshape(part, (*lead, n, grouped.width)), HEAD_AXES)
        for part, n in ((q, grouped.heads), (k, shared), (parts[2], shared))
    )
    return queries, keys, values


def _turn(build: NodeBuilder, grouped: Grouped, rows: ir.Value) -> ir.Value:
    """Queries or keys, turned by their places where the node does so."""
    if not grouped.turns:
        return rows
    cosine, sine = grouped.operand(7), grouped.operand(8)
    assert cosine is not None, "it turns them"
    own = number(grouped.node, "rotary_interleaved", 0)
    attributes = [ir.AttrInt64("interleaved", int(own))]
    angles = 2 * dims(cosine)[1]
    if angles != grouped.width:
        heads = dims(rows)[2] // grouped.width
        attributes += [ir.AttrInt64("rotary_embedding_dim", angles),
                       ir.AttrInt64("num_heads", heads)]  # fmt: skip
    inputs = [rows, build.constant([0]), cosine, sine]
    return build.add("RotaryEmbedding", inputs, [dims(rows)], attributes, domain=CONTRIB)[0]


def _give(
    build: NodeBuilder, grouped: Grouped, result: ir.Value, keys: ir.Value, values: ir.Value
) -> None:
    """Let all who read what a node gives read what takes its place."""
    rows = build.transpose(result, HEAD_AXES)
    rows = build.reshape(rows, dims(grouped.node.outputs[0]))
    for old, new in zip(grouped.node.outputs, (rows, keys, values), strict=False):
        if old.uses() or old.is_graph_output():
            replace_value(old, new)


def _leave_in_rows(build: NodeBuilder, grouped: Grouped, gradients: Sequence[ir.Value]) -> None:
    """Turn gradients back, and put them side by side, as rows, where their heads are brought there.

    They are transposed first then, which attention does as it writes them.
    """
    turns = [only_reader(v, "RotaryEmbedding", CONTRIB) for v in gradients[: 2 * grouped.turns]]
    turned = [gradients[at] if n is None else n.outputs[0] for at, n in enumerate(turns)]
    ends = _join([*turned, *gradients[len(turns) :]], grouped.operand(1) is None)
    tails = [tail for end in ends if (tail := _rows_of_heads(end)) is not None]
    if None in turns or not tails or len(tails) != len(ends):
        return
    lead, rows = (grouped.examples, grouped.rows), list[ir.Value]()
    for value, turn in zip_longest(gradients, turns):
        part = build.transpose(value, HEAD_AXES)
        part = build.reshape(part, (*lead, dims(value)[1] * grouped.width))
        if turn is not None:
            given = [part, *turn.inputs[1:]]
            attributes = list(turn.attributes.values())
            part = build.add("RotaryEmbedding", given, [dims(part)], attributes, domain=CONTRIB)[0]
        rows.append(part)
    if len(tails) == 1:
        axis = [ir.AttrInt64("axis", 2)]
        rows = build.add("Concat", rows, [dims(grouped.rows_read)], axis)
    for old, new in zip(tails, rows, strict=True):
        replace_value(old, new)


def _join(heads: list[ir.Value], are_joined: bool) -> list[ir.Value]:
    """Heads of queries, keys and values one behind the other, where they are joined, or themselves.

    None of them where they go elsewhere.
    """
    if not are_joined:
        return heads
    first = only_reader(heads[0], "Concat")
    is_theirs = first is not None and all(only_reader(v, "Concat") is first for v in heads)
    if first is None or not is_theirs or list(first.inputs) != heads:
        return []
    return [first.outputs[0]] if number(first, "axis", 0) == 1 else []


def _rows_of_heads(heads: ir.Value) -> ir.Value | None:
    """Heads side by side in rows, of such that are one behind the other and go nowhere else."""
    turned = only_reader(heads, "Transpose")
    if turned is None or not is_transpose(turned, HEAD_AXES):
        return None
    rows = only_reader(turned.outputs[0], "Reshape")
    if rows is None or not is_static(rows.outputs[0]) or len(dims(rows.outputs[0])) != 3:
        return None
    return rows.outputs[0]


def _mask(build: NodeBuilder, grouped: Grouped, known: dict[object, ir.Value]) -> ir.Value:
    """Truths for keys that rows see, or numbers where the node adds some; layers share them."""
    lengths, bias = grouped.operand(5), grouped.operand(10)
    window = int(number(grouped.node, "local_window_size", -1))
    assert lengths is not None, "it is a plain one"
    key = (lengths, bias, window, grouped.rows)
    if key not in known:
        seen = _visible_keys(build, grouped, lengths, window)
        known[key] = seen if bias is None else _hide(build, grouped, seen, bias)
    return known[key]


def _visible_keys(build: NodeBuilder, grouped: Grouped, lengths: ir.Value, window: int) -> ir.Value:
    """True where a row looks at a key, (example, 1, row, key).

    A row beyond the last of its text looks where that one does.
    """
    rows, examples, truth = grouped.rows, grouped.examples, ir.DataType.BOOL
    places, keys = build.constant(np.arange(rows)[:, None]), build.constant(np.arange(rows)[None])
    cast = [ir.AttrInt64("to", int(ir.DataType.INT64))]
    sizes = dims(lengths) if is_static(lengths) else (examples,)
    last = build.add("Cast", [lengths], [sizes], cast, dtype=ir.DataType.INT64)[0]
    last = build.reshape(last, (examples, 1, 1, 1))
    places = build.add("Min", [places, last], [(examples, 1, rows, 1)])[0]
    shape = (examples, 1, rows, rows)
    seen = build.add("LessOrEqual", [keys, places], [shape], dtype=truth)[0]
    if window > 0:
        apart = build.add("Sub", [places, keys], [shape])[0]
        near = build.add("Less", [apart, build.constant([window])], [shape], dtype=truth)[0]
        seen = build.add("And", [seen, near], [shape])[0]
    return seen


def _hide(build: NodeBuilder, grouped: Grouped, seen: ir.Value, bias: ir.Value) -> ir.Value:
    """The numbers that are added to scores, and minus infinity for what is hidden."""
    hidden = build.constant(-np.inf, np.float32)
    shape = (grouped.examples, *dims(bias)[1:])
    return build.add("Where", [seen, bias, hidden], [shape], dtype=ir.DataType.FLOAT)[0]
