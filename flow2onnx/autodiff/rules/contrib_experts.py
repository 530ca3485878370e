"""Experts in one operator: the runtime's MoE and QMoE.

A Scan takes one expert at a time, and the rows alone that it was chosen for. Its first product is
computed again; its second is not: what a row's gradient g weighs an expert with is a · (g W2), of
which g W2 is the gradient of its activations a.
"""

import math

import numpy as np

from flow2onnx.autodiff.registry import attribute, no_gradient, vjp
from flow2onnx.autodiff.walk import gradients
from flow2onnx.dtypes import bool_
from flow2onnx.graph import Builder
from flow2onnx.graph.dimension import extents
from flow2onnx.graph.types import dtype_of, rank_of, sizes_of
from flow2onnx.lowering.block_weights import BlockWeight, block_sums
from flow2onnx.lowering.scatters import scatter_add, scatter_sum, zeros

_ALL = 2**31  # ends a slice that has no end
_BLOCK = 16  # the least that the runtime reads weights in


@vjp("com.microsoft::MoE")
def _(b, n, g):
    x, router, w1, o1, w2, o2, *third = [*n.inputs, *[None] * 8][:8]
    _check(n, third)
    operands = {"w1": w1, "o1": o1, "w2": w2, "o2": o2}
    gates = _Gates(b, router, attribute(n, "k", 1))
    if attribute(n, "normalize_routing_weights", 0):
        gates.share_among_chosen()
    else:
        gates.share_among_all()
    gx, shares, found = _gradients(b, n, x, g, gates, operands)
    return gx, gates.back(shares), *(found.get(name) for name in operands)


@vjp("com.microsoft::QMoE")
def _(b, n, g):
    x, router, *rest = [*n.inputs, *[None] * 21][:21]
    names = ["w1", "s1", "o1", "w2", "s2", "o2"]
    operands = dict(zip(names, rest, strict=False))
    third, points, weights, scaled = rest[6:9], rest[9:12], rest[12], rest[13:]
    _check(n, [*third, points[2]])
    _check_bits(n, scaled)
    operands |= {"p1": points[0], "p2": points[1]}
    gates = _Gates(b, router, attribute(n, "k", 1))
    if weights is None:  # the chosen ones share, whatever normalize_routing_weights says
        gates.share_among_chosen()
    else:
        gates.share_by(weights, is_normal=attribute(n, "normalize_routing_weights", 0) == 1)
    gx, shares, found = _gradients(b, n, x, g, gates, operands)
    g_gates = gates.back(shares)
    g_router, g_weights = (g_gates, None) if weights is None else (None, g_gates)
    return gx, g_router, *(found.get(name) for name in names), *[None] * 6, g_weights


def _check(n, third):
    """Raise for what this gradient does not know."""
    if any(v is not None for v in third):
        raise no_gradient(n, "with a third product")
    if attribute(n, "use_sparse_mixer", 0):
        raise no_gradient(n, "with use_sparse_mixer")
    kind = attribute(n, "activation_type", "relu")
    if kind not in _CURVES:
        raise no_gradient(n, f"with activation_type={kind!r}")
    if kind == "swiglu" and attribute(n, "swiglu_fusion", 0) != 1:
        raise no_gradient(n, "with gates that are not beside what they gate (swiglu_fusion=1)")


def _check_bits(n, scaled):
    kind, bits = attribute(n, "quant_type", "int"), attribute(n, "expert_weight_bits", 4)
    if kind != "int" or any(v is not None for v in scaled):
        raise no_gradient(n, f"of weights of type {kind!r}")
    if bits not in (4, 8):
        raise no_gradient(n, f"of {bits} bits")
    if attribute(n, "weights_prepacked", -1) == 1:
        raise no_gradient(n, "with weights_prepacked=1")


class _Gates:
    """The weights of experts in each row, (row, expert); 0 for those that it did not choose.

    One that it chose may count 0, too: `chosen` says which these are, as 1 and 0.
    """

    def __init__(self, b, scores, count):
        self.dense = None
        # of equal scores the runtime takes the last, TopK the first
        self._b, self._scores = b, scores
        turned = b.Slice(scores, [-1], [-_ALL], [1], [-1])
        self._best, places = b.several("TopK", turned, [count], outputs=2, axis=1)
        self._places = b.Sub(np.int64(sizes_of(scores)[1] - 1), places)
        self.chosen = self._spread(b.Expand(b.like(1.0, scores), extents(b, self._best)))

    def share_among_chosen(self):
        """Softmax of the scores of those that are chosen."""
        own = self._b.Softmax(self._best, axis=1)
        self.dense, self.back = self._spread(own), lambda g: self._softmax_back(own, g)

    def share_among_all(self):
        """Softmax of all scores."""
        b = self._b
        whole = b.Softmax(self._scores, axis=1)
        self.dense = self._spread(self._gather(whole))
        self.back = lambda g: b.Mul(whole, b.Sub(g, _dot(b, whole, g)))

    def share_by(self, weights, *, is_normal):
        """Other numbers of those that are chosen, divided by their sum if `is_normal`."""
        b, own = self._b, self._gather(weights)
        if not is_normal:
            self.dense, self.back = self._spread(own), lambda g: g
            return
        total = b.ReduceSum(own, [1], keepdims=1)
        part = b.Div(own, total)

        def back(g):
            g = self._gather(g)
            return self._spread(b.Div(b.Sub(g, _dot(b, part, g)), total))

        self.dense, self.back = self._spread(part), back

    def _softmax_back(self, own, g):
        g = self._gather(g)
        return self._spread(self._b.Mul(own, self._b.Sub(g, _dot(self._b, own, g))))

    def _gather(self, x):
        return self._b.GatherElements(x, self._places, axis=1)

    def _spread(self, x):
        """(row, chosen) as (row, expert)."""
        none = zeros(self._b, extents(self._b, self._scores), dtype_of(x))
        return self._b.ScatterElements(none, self._places, x, axis=1)


def _dot(b, x, y):
    return b.ReduceSum(b.Mul(x, y), [1], keepdims=1)


def _gradients(b, n, x, g, gates, operands):
    """The gradients of `x`, of the gates, (row, expert), and of operands by name."""
    rows = [b.Reshape(v, [-1, sizes_of(x)[-1]]) for v in (x, g)]
    # the runtime leaves out an expert that a row weighs with less than 0
    counts = b.And(b.Cast(gates.chosen, to=bool_), b.GreaterOrEqual(gates.dense, b.like(0.0, x)))
    turned = {"gate": gates.dense, "chosen": counts}
    parts = {name: b.Transpose(v, perm=[1, 0]) for name, v in turned.items()}
    parts |= {name: v for name, v in operands.items() if v is not None}
    none = zeros(b, extents(b, rows[0]), dtype_of(x))
    count = len(parts)
    attrs = {"body": _body(b, n, rows, parts), "num_scan_inputs": count}
    total, shares = b.emit("Scan", [none, *parts.values()], attrs, 2)
    trained = [name for name in parts if name[0] in "so" or (name[0] == "w" and "s1" not in parts)]
    attrs = {"body": _body(b, n, rows, parts, trained), "num_scan_inputs": count}
    found = b.emit("Scan", [*parts.values()], attrs, len(trained))
    gx = b.Reshape(total, extents(b, x))
    return gx, b.Transpose(shares, perm=[1, 0]), dict(zip(trained, found, strict=True))


def _body(b, n, rows, parts, trained=None):
    """The graph of one expert: the sum of the gradients of x so far, and those of its gates.

    With `trained`, the gradients of those operands instead.
    """
    name = b.unique("experts")
    inner = Builder.inside(b, name)
    with inner.under(b.prefix, b.source):
        state = [] if trained is not None else [
            inner.input(f"{name}/sum", sizes_of(rows[0]), dtype_of(rows[0]))
        ]  # fmt: skip
        own = {
            p: inner.input(f"{name}/{p}", sizes_of(v)[1:], dtype_of(v)) for p, v in parts.items()
        }
        expert = _Expert(inner, n, rows, own)
        made = expert.of_inputs(*state) if trained is None else expert.of_operands(trained)
        for value in made:
            inner.graph.outputs.append(inner.Identity(value))
    return inner.graph


class _Expert:
    """One expert on the rows that it was chosen for."""

    def __init__(self, b, n, rows, parts):
        self._b, self._n, self._parts = b, n, parts
        gate = parts["gate"]
        self._places = b.Reshape(b.NonZero(parts["chosen"]), [-1])
        self._x, self._g = (b.Gather(v, self._places) for v in rows)
        self._gate = b.Unsqueeze(b.Gather(gate, self._places), [1])
        self._up, self._down = self._matrix("1"), self._matrix("2")
        raw = b.MatMul(self._x, b.Transpose(self._up, perm=[1, 0]))
        self._raw = b.Add(raw, parts["o1"]) if "o1" in parts else raw
        self._curve = _CURVES[attribute(n, "activation_type", "relu")](b, n, self._raw)
        self._pull = b.MatMul(self._g, self._down)  # of the activations, but for the gate

    def _matrix(self, which):
        """A weight, (row, column), in real numbers."""
        weight = self._parts[f"w{which}"]
        if f"s{which}" not in self._parts:
            return weight
        return self._block_weight(which).whole(self._b)

    def of_inputs(self, total):
        """`total` and the gradient of x, and the gradient of the gates."""
        b = self._b
        gx = b.MatMul(self._raw_gradient(), self._up)
        at = b.Unsqueeze(self._places, [1])
        shares = _dot(b, self._curve, self._pull)
        if "o2" in self._parts:  # a column: the runtime multiplies no rows with no vector
            shares = b.Add(shares, b.MatMul(self._g, b.Unsqueeze(self._parts["o2"], [1])))
        flat = b.Reshape(shares, [-1])
        own = scatter_sum(b, "ScatterND", extents(b, self._parts["gate"]), at, flat)
        return scatter_add(b, "ScatterND", total, at, gx), own

    def _raw_gradient(self):
        """The gradient of what the activation function reads."""
        b = self._b
        return gradients(b, {self._curve: b.Mul(self._pull, self._gate)}, [self._raw])[self._raw]

    def of_operands(self, trained):
        """The gradients of the operands `trained`."""
        b, parts = self._b, self._parts
        wanted = [self._up, *([parts["o1"]] if "o1" in parts else [])]
        found = gradients(b, {self._curve: b.Mul(self._pull, self._gate)}, wanted)
        g = b.Mul(self._g, self._gate)
        made = {
            "w1": found[self._up],
            "w2": b.MatMul(b.Transpose(g, perm=[1, 0]), self._curve),
            "o2": b.ReduceSum(g, [0], keepdims=0),
        }
        if "o1" in parts:
            made["o1"] = found[parts["o1"]]
        if "s1" in parts:
            made |= {f"s{i}": self._scale_gradient(i, made[f"w{i}"]) for i in "12"}
        return [made[name] for name in trained]

    def _block_weight(self, which):
        """A weight of few bits; one scale for a whole row is repeated for its blocks."""
        b, n = self._b, self._n
        packed, scales = self._parts[f"w{which}"], self._parts[f"s{which}"]
        points = self._parts.get(f"p{which}")
        bits = attribute(n, "expert_weight_bits", 4)
        rows, width = sizes_of(packed)
        columns = width * 8 // bits
        block = attribute(n, "block_size", 0)
        if _is_by_row(scales):
            if points is not None or columns % _BLOCK:
                raise no_gradient(n, "with zero points or rows of odd sizes, and one scale a row")
            block = _BLOCK
            steps = b.Reshape(scales, [rows, 1])
            scales = b.Expand(steps, [rows, columns // block])
        blocks = -(-columns // block)
        missing = blocks * block * bits // 8 - width
        whole = b.Pad(packed, [0, 0, 0, missing]) if missing else packed
        return BlockWeight(
            packed=b.Reshape(whole, [rows, blocks, -1]), scales=scales, points=points, bits=bits,
            block=block, rows=rows, columns=columns,
        )  # fmt: skip

    def _scale_gradient(self, which, slope):
        b, scales = self._b, self._parts[f"s{which}"]
        weight = self._block_weight(which)
        ones = b.Expand(b.like(1.0, scales), extents(b, weight.scales))
        steps = b.Mul(slope, weight.whole(b, ones))
        by_row = _is_by_row(scales)
        sums = b.ReduceSum(steps, [1]) if by_row else block_sums(b, steps, weight.block)
        return b.Reshape(sums, extents(b, scales))


def _is_by_row(scales):
    return rank_of(scales) == 1 or sizes_of(scales)[1] == 1


def _swiglu(b, n, x):
    """x σ(αx) (y + β) of pairs x, y that stand beside each other."""
    gate, other = (b.Slice(x, [i], [_ALL], [1], [2]) for i in (0, 1))
    limit = attribute(n, "swiglu_limit", math.inf)
    if math.isfinite(limit):
        gate, other = b.Min(gate, b.like(limit, x)), b.Clip(other, -limit, limit)
    swish = b.Mul(gate, b.Sigmoid(b.Mul(gate, attribute(n, "activation_alpha", 1.0))))
    return b.Mul(swish, b.Add(other, attribute(n, "activation_beta", 0.0)))


_CURVES = {
    "relu": lambda b, n, x: b.Relu(x),
    "gelu": lambda b, n, x: b.emit("com.microsoft::FastGelu", [x])[0],
    "silu": lambda b, n, x: b.Mul(x, b.Sigmoid(x)),
    "identity": lambda b, n, x: b.Identity(x),
    "swiglu": _swiglu,
}
