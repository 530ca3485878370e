"""Scan over a length known at run time only: a Scan back over the states that were on the way."""

from dataclasses import dataclass

from flow2onnx.autodiff.registry import attribute, vjp
from flow2onnx.autodiff.walk import gradients
from flow2onnx.graph import Builder, Node, Value
from flow2onnx.graph.functions import inline_nodes
from flow2onnx.graph.nodes import captured_values
from flow2onnx.graph.types import dtype_of, sizes_of
from flow2onnx.lowering.scatters import zeros


@vjp("Scan")
def _(b, n, *gs):
    # a known number of steps is unrolled, which optimises better
    scanned = _Scanned.of(n)
    if isinstance(scanned.length, int):
        return NotImplemented
    before = _states_before(b, scanned)
    carried = [i for i, s in enumerate(scanned.states) if dtype_of(s).is_floating_point]
    wrt = [
        v
        for v in captured_values(scanned.body)
        if dtype_of(v).is_floating_point and v.const_value is None
    ]
    g_state, g_read, g_scanned = _scan_back(b, scanned, before, gs, (carried, wrt))
    found = dict(zip(carried, g_state, strict=True))
    places = {v: g for v, g in zip(wrt, g_read, strict=True)}
    return [
        *(found.get(i) for i in range(len(scanned.states))),
        *g_scanned,
        *(places.get(v) for v in captured_values(scanned.body)),
    ]


@dataclass(frozen=True, kw_only=True)
class _Scanned:
    """A Scan: its body, first states, and what it runs along; per input and output axis and way."""

    node: Node
    states: list[Value]
    inputs: list[Value]
    input_axes: list[int]
    input_ways: list[int]
    output_axes: list[int]
    output_ways: list[int]

    @classmethod
    def of(cls, n):
        count = attribute(n, "num_scan_inputs")
        states, inputs = list(n.inputs[:-count]), list(n.inputs[-count:])
        made = len(n.outputs) - len(states)
        axes = attribute(n, "scan_input_axes", [0] * count)
        ranks = [len(sizes_of(v)) for v in inputs]
        stacked = [len(sizes_of(v)) for v in n.outputs[len(states) :]]
        out = attribute(n, "scan_output_axes", [0] * made)
        return cls(
            node=n, states=states, inputs=inputs,
            input_axes=[a % r for a, r in zip(axes, ranks, strict=True)],
            input_ways=list(attribute(n, "scan_input_directions", [0] * count)),
            output_axes=[a % r for a, r in zip(out, stacked, strict=True)],
            output_ways=list(attribute(n, "scan_output_directions", [0] * made)),
        )  # fmt: skip

    @property
    def body(self):
        return self.node.attributes["body"].as_graph()

    @property
    def length(self):
        """The number of steps, or its name."""
        return sizes_of(self.inputs[0])[self.input_axes[0]]

    def parts(self):
        """The shapes of what one step reads of each scanned input."""
        return [
            [d for i, d in enumerate(sizes_of(v)) if i != axis]
            for v, axis in zip(self.inputs, self.input_axes, strict=True)
        ]


def _states_before(b, s):
    """The states before every step, stacked: the Scan again, which stands for the node from here.

    What the node made is read off it too, so that the steps are run once.
    """
    if not s.states:
        return []
    n, outputs = s.node, len(s.node.outputs)
    with b.before(n):
        name = b.unique("scan")
        inner = Builder.inside(b, name)
        with inner.under(b.prefix, b.source):
            states, parts = _step_inputs(inner, name, s)
            made = inline_nodes(inner, s.body, s.body.inputs, [*states, *parts], s.body.outputs)
            kept = [inner.Identity(v) for v in states]
            _set_outputs(inner, [*made, *kept])
        attributes = {k: a.value for k, a in n.attributes.items() if k != "body"}
        attributes["scan_output_axes"] = [*s.output_axes, *[0] * len(kept)]
        attributes["scan_output_directions"] = [*s.output_ways, *[0] * len(kept)]
        again = b.emit("Scan", n.inputs, {**attributes, "body": inner.graph}, outputs + len(kept))
    for old, new in zip(n.outputs, again[:outputs], strict=True):
        b.agree(new, old)
        old.replace_all_uses_with(new)
        b.read_sizes_of(new, old)
    return list(again[outputs:])


def _step_inputs(inner, name, s):
    """Inputs of a body for the states and for what one step reads."""
    states = [
        inner.input(f"{name}/state_{i}", sizes_of(v), dtype_of(v)) for i, v in enumerate(s.states)
    ]
    parts = [
        inner.input(f"{name}/part_{i}", shape, dtype_of(v))
        for i, (v, shape) in enumerate(zip(s.inputs, s.parts(), strict=True))
    ]
    return states, parts


def _set_outputs(inner, values):
    """Make values outputs of a body: each is made in it, and is an output once."""
    made = {o for n in inner.nodes for o in n.outputs}
    for value in values:
        is_own = value in made and value not in inner.graph.outputs
        inner.graph.outputs.append(value if is_own else inner.Identity(value))


def _scan_back(b, s, before, gs, wanted):
    """The gradients in the first states, in what the body reads around it, in what is scanned."""
    carried, wrt = wanted
    states = len(s.states)
    steps = [i for i, g in enumerate(gs[states:]) if g is not None]
    g_last = [
        zeros(b, sizes_of(s.states[i]), dtype_of(s.states[i])) if gs[i] is None else gs[i]
        for i in carried
    ]
    sums = [zeros(b, sizes_of(v), dtype_of(v)) for v in wrt]
    real = [i for i, v in enumerate(s.inputs) if dtype_of(v).is_floating_point]
    body = _body_back(b, s, (carried, wrt, steps, real), gs)
    scanned = [*before, *s.inputs, *(gs[states + i] for i in steps)]
    attributes = {
        "body": body,
        "num_scan_inputs": len(scanned),
        "scan_input_axes": [
            *[0] * len(before), *s.input_axes, *(s.output_axes[i] for i in steps)
        ],
        "scan_input_directions": [
            *[1] * len(before), *(1 - w for w in s.input_ways),
            *(1 - s.output_ways[i] for i in steps),
        ],
        "scan_output_axes": [s.input_axes[i] for i in real],
        "scan_output_directions": [1 - s.input_ways[i] for i in real],
    }  # fmt: skip
    made = b.emit(
        "Scan", [*g_last, *sums, *scanned], attributes, len(carried) + len(wrt) + len(real)
    )
    like = [*(s.states[i] for i in carried), *wrt, *(s.inputs[i] for i in real)]
    made = [b.agree(g, v) for g, v in zip(made, like, strict=True)]
    found = dict(zip(real, made[len(carried) + len(wrt) :], strict=True))
    return (
        made[: len(carried)],
        made[len(carried) : len(carried) + len(wrt)],
        [found.get(i) for i in range(len(s.inputs))],
    )


def _body_back(b, s, places, gs):
    """One step back: the step again, then its gradients."""
    carried, wrt, steps, real = places
    name = b.unique("scan_back")
    inner = Builder.inside(b, name)
    with inner.under(b.prefix, b.source):
        g_states = [
            inner.input(f"{name}/g_{i}", sizes_of(s.states[i]), dtype_of(s.states[i]))
            for i in carried
        ]
        sums = [inner.input(f"{name}/sum_{i}", sizes_of(v), dtype_of(v)) for i, v in enumerate(wrt)]
        states, parts = _step_inputs(inner, name, s)
        g_steps = []
        for i in steps:
            g = gs[len(s.states) + i]
            shape = [d for a, d in enumerate(sizes_of(g)) if a != s.output_axes[i]]
            g_steps.append(inner.input(f"{name}/g_step_{i}", shape, dtype_of(g)))
        made = inline_nodes(inner, s.body, s.body.inputs, [*states, *parts], s.body.outputs)
        seeds = {}
        ends = [*(made[i] for i in carried), *(made[len(states) + i] for i in steps)]
        for y, g in zip(ends, [*g_states, *g_steps], strict=True):
            own = y if y.producer() in set(inner.nodes) else inner.Identity(y)
            seeds[own] = inner.Add(seeds[own], g) if own in seeds else g
        read = [*(states[i] for i in carried), *(parts[i] for i in real)]
        found = gradients(inner, seeds, [*read, *wrt])
        back = [_or_zeros(inner, found, v) for v in read]
        more = [inner.Add(t, found[v]) if v in found else t for t, v in zip(sums, wrt, strict=True)]
        _set_outputs(inner, [*back[: len(carried)], *more, *back[len(carried) :]])
    return inner.graph


def _or_zeros(inner, found, value):
    if value in found:
        return found[value]
    return zeros(inner, sizes_of(value), dtype_of(value))
