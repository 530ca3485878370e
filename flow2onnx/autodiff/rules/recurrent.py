"""Recurrent layers, step by step: unrolled, or in a Scan over a length known at run time only."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flow2onnx.autodiff.registry import attribute, expansion, no_gradient
from flow2onnx.errors import UnsupportedError
from flow2onnx.graph import Builder, Value
from flow2onnx.graph.dimension import extents, is_known
from flow2onnx.graph.types import constant_of, dims, dtype_of, sizes_of
from flow2onnx.graph.unroll import MOST_ITERATIONS
from flow2onnx.lowering.dimensions import positions
from flow2onnx.lowering.scatters import zeros


@dataclass(frozen=True)
class _Layer:
    """One direction of a node: its recurrent weights, and what happens in a step.

    `bias` is that of the recurrent weights, `peepholes` what looks at the cell, and `functions`
    are the activations, which clip what they take.
    """

    weights: Value
    bias: Value | None
    peepholes: tuple[Value, ...] | None
    functions: tuple[Callable[..., Value], ...]


@expansion("RNN")
def _(b, n):
    return _unroll(b, n, _rnn, ["Tanh"])


@expansion("GRU")
def _(b, n):
    return _unroll(b, n, _gru_resetting_after if _resets_after(n) else _gru, ["Sigmoid", "Tanh"])


@expansion("LSTM")
def _(b, n):
    forgets = attribute(n, "input_forget", 0)
    return _unroll(b, n, _coupled_lstm if forgets else _lstm, ["Sigmoid", "Tanh", "Tanh"])


def _resets_after(n):
    return n.op_type == "GRU" and attribute(n, "linear_before_reset", 0)


# --- one step: the projected input and the states before it to the states after it ------------


def _rnn(b, layer, x, h):
    (f,) = layer.functions
    return (f(b, b.Gemm(h, layer.weights, x, transB=1)),)


def _gru(b, layer, x, h):
    f, g = layer.functions
    size = dims(layer.weights)[1]
    gates, last = b.several("Split", layer.weights, [2 * size, size], axis=0, outputs=2)
    x_gates, x_last = b.several("Split", x, [2 * size, size], axis=1, outputs=2)
    update, reset = _split_in_two(b, f(b, b.Gemm(h, gates, x_gates, transB=1)))
    new = g(b, b.Gemm(b.Mul(reset, h), last, x_last, transB=1))
    return (b.Add(b.Mul(b.Sub(1.0, update), new), b.Mul(update, h)),)


def _gru_resetting_after(b, layer, x, h):
    f, g = layer.functions
    size = dims(layer.weights)[1]
    recurrent = b.Gemm(h, layer.weights, layer.bias, transB=1)
    h_gates, h_last = b.several("Split", recurrent, [2 * size, size], axis=1, outputs=2)
    x_gates, x_last = b.several("Split", x, [2 * size, size], axis=1, outputs=2)
    update, reset = _split_in_two(b, f(b, b.Add(x_gates, h_gates)))
    new = g(b, b.Add(x_last, b.Mul(reset, h_last)))
    return (b.Add(b.Mul(b.Sub(1.0, update), new), b.Mul(update, h)),)


def _lstm(b, layer, x, h, c, *, is_coupled=False):
    f, g, last = layer.functions
    made = b.Gemm(h, layer.weights, x, transB=1)
    enter, leave, keep, new = b.several("Split", made, axis=1, num_outputs=4, outputs=4)
    peep = layer.peepholes
    enter = f(b, b.Add(enter, b.Mul(peep[0], c)) if peep else enter)
    if is_coupled:
        keep = b.Sub(1.0, enter)
    else:
        keep = f(b, b.Add(keep, b.Mul(peep[2], c)) if peep else keep)
    c = b.Add(b.Mul(keep, c), b.Mul(enter, g(b, new)))
    leave = f(b, b.Add(leave, b.Mul(peep[1], c)) if peep else leave)
    return b.Mul(leave, last(b, c)), c


def _coupled_lstm(b, layer, x, h, c):
    return _lstm(b, layer, x, h, c, is_coupled=True)


def _split_in_two(b, x):
    return b.several("Split", x, axis=1, num_outputs=2, outputs=2)


# --- all steps --------------------------------------------------------------------------------


def _unroll(b, n, cell, defaults):
    x, w, r, bias, lengths, *initial = [*n.inputs, *[None] * 8][:8]
    *initial, peepholes = initial
    is_by_image = attribute(n, "layout", 0)
    if is_by_image:
        x = b.Transpose(x, perm=[1, 0, 2])
        initial = [None if v is None else b.Transpose(v, perm=[1, 0, 2]) for v in initial]
    count, size = dims(w)[0], dims(r)[2]
    names = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    backwards = names[attribute(n, "direction", "forward")]
    functions = _activations(n, defaults * count)
    outputs, ends = [], []
    rows = _rows_of_all_steps(b, x)  # once, so that its gradient is one value for all directions
    parts = [_split_directions(b, v, count) for v in (w, r, bias, peepholes, *initial)]
    kept = initial if n.op_type == "LSTM" else initial[:1]
    for i, (weights, recurrent, offsets, peep, *starts) in enumerate(zip(*parts, strict=True)):
        own, shift = _split_bias(b, n, offsets, size)
        layer = _Layer(
            recurrent, shift, None if peep is None else _split(b, peep, 0, 3),
            functions[i * len(defaults) : (i + 1) * len(defaults)],
        )  # fmt: skip
        steps = _project_inputs(b, x, rows, weights, own)
        blank = _blank_state(b, x, size)
        states = [blank if s is None else s for s in starts[: len(kept)]]
        run = _run_steps if isinstance(steps, list) else _scan_steps
        ys, states = run(b, cell, layer, steps, states, lengths, backwards[i], blank)
        outputs.append(b.Unsqueeze(ys, [1]))
        ends.append([b.Unsqueeze(s, [0]) for s in states])
    found = [b.Concat(*outputs, axis=1), *(b.Concat(*e, axis=0) for e in zip(*ends, strict=True))]
    if is_by_image:
        orders = [[2, 0, 1, 3], [1, 0, 2], [1, 0, 2]]
        found = [b.Transpose(v, perm=p) for v, p in zip(found, orders, strict=False)]
    return found[: len(n.outputs)]


def _blank_state(b, x, size):
    """Zeros for every sequence of a batch."""
    images = extents(b, x)[1]
    if is_known(images):
        return b.const(np.zeros((images, size), dtype_of(x).numpy))
    return zeros(b, [images, size], dtype_of(x))


def _split_directions(b, value, count):
    """The part of an input that belongs to each direction."""
    if value is None:
        return [None] * count
    parts = [value] if count == 1 else _split(b, value, 0, count)
    return [b.Reshape(part, list(extents(b, value)[1:])) for part in parts]


def _split(b, value, axis, count):
    return b.several("Split", value, axis=axis, num_outputs=count, outputs=count)


def _split_bias(b, n, offsets, size):
    """The bias of the input's weights and that of the recurrent ones, as far as it stands apart."""
    if offsets is None:
        zero = np.zeros(3 * size, dtype_of(n.inputs[0]).numpy)
        return None, b.const(zero) if _resets_after(n) else None
    own, recurrent = _split(b, offsets, 0, 2)
    if not _resets_after(n):
        return b.Add(own, recurrent), None
    gates = np.repeat([1, 0], [2 * size, size]).astype(dtype_of(offsets).numpy)
    return b.Add(own, b.Mul(recurrent, gates)), b.Mul(recurrent, 1 - gates)


def _rows_of_all_steps(b, x):
    """The inputs as a matrix, with a row for each step of each sequence."""
    length, images, width = extents(b, x)
    if is_known(length) and length > MOST_ITERATIONS:
        raise UnsupportedError(
            f"a recurrent layer over {length} steps is unrolled to train it; {MOST_ITERATIONS} are "
            "the most",
            hint="train on shorter parts of the sequence: inputs={…: (steps, …)}",
        )
    return b.Reshape(x, [length * images, width])


def _project_inputs(b, x, rows, weights, offsets):
    """The input of every step times its weights: one product for all steps.

    A list of all steps, or one value where their count is known at run time only.
    """
    length, images, _ = extents(b, x)
    made = b.Gemm(rows, weights, *([] if offsets is None else [offsets]), transB=1)
    if not is_known(length):
        return b.Reshape(made, [length, images, dims(weights)[0]])
    parts = [made] if length == 1 else _split(b, made, 0, length)
    return list(parts)


def _run_steps(b, cell, layer, steps, states, lengths, is_backward, blank):
    """The output of each step in the order of the input, and the states at the end.

    A sequence that is over keeps its states and puts out zeros; backwards, it starts at its end.
    """
    known = constant_of(lengths)
    is_full = lengths is None or (known is not None and bool((known >= len(steps)).all()))
    ys = [blank] * len(steps)
    order = range(len(steps))
    for t in reversed(order) if is_backward else order:
        new = cell(b, layer, steps[t], *states)
        if is_full:
            states, ys[t] = new, new[0]
        else:
            goes_on = b.Unsqueeze(b.Greater(lengths, t), [1])
            states = [b.Where(goes_on, v, s) for v, s in zip(new, states, strict=True)]
            ys[t] = b.Where(goes_on, new[0], blank)
    return b.Concat(*(b.Unsqueeze(y, [0]) for y in ys), axis=0), states


def _scan_steps(b, cell, layer, steps, states, lengths, is_backward, blank):
    """`_run_steps` of as many steps as there are at run time."""
    name = b.unique("steps")
    inner = Builder.inside(b, name)
    scanned = [steps] if lengths is None else [steps, positions(b, extents(b, steps)[0])]
    with inner.under(b.prefix, b.source):
        before = [
            inner.input(f"{name}/state_{i}", sizes_of(s), dtype_of(s)) for i, s in enumerate(states)
        ]
        x = inner.input(f"{name}/x", sizes_of(steps)[1:], dtype_of(steps))
        after = cell(inner, layer, x, *before)
        y = inner.Identity(after[0])
        if lengths is not None:
            t = inner.input(f"{name}/t", (), dtype_of(scanned[1]))
            now = inner.Cast(t, to=dtype_of(lengths))
            goes_on = inner.Unsqueeze(inner.Greater(lengths, now), [1])
            after = [inner.Where(goes_on, v, s) for v, s in zip(after, before, strict=True)]
            y = inner.Where(goes_on, y, blank)
        inner.graph.outputs.extend([*after, y])
    ways = [int(is_backward)]
    made = b.emit(
        "Scan", [*states, *scanned],
        {"body": inner.graph, "num_scan_inputs": len(scanned),
         "scan_input_directions": ways * len(scanned), "scan_output_directions": ways},
        len(states) + 1,
    )  # fmt: skip
    return made[-1], list(made[:-1])


# --- activations ------------------------------------------------------------------------------


def _activations(n, defaults):
    """The activations of all directions, each with its own numbers and the clip before it."""
    alphas, betas = (list(attribute(n, f"activation_{k}", [])) for k in ("alpha", "beta"))
    clip = attribute(n, "clip", None)
    names = attribute(n, "activations", defaults)
    # the runtime does not clip the cell on its way out
    is_out = [n.op_type == "LSTM" and i % 3 == 2 for i in range(len(names))]
    return tuple(
        _activation(n, name.lower(), alphas, betas, None if out else clip)
        for name, out in zip(names, is_out, strict=True)
    )


def _activation(n, name, alphas, betas, clip):
    if name not in _ACTIVATIONS:
        raise no_gradient(n, f"with activation {name}")
    made, numbers = _ACTIVATIONS[name]
    # each list is used up in order by the activations that have such a number
    given = [
        values.pop(0) if values else default
        for values, default in zip((alphas, betas), numbers, strict=False)
    ]

    def apply(b, x):
        return made(b, x if clip is None else b.Clip(x, -clip, clip), *given)

    return apply


# Not every provider has the operators of these names in every element type.
_ACTIVATIONS = {
    "sigmoid": (lambda b, x: b.Sigmoid(x), ()),
    "tanh": (lambda b, x: b.Tanh(x), ()),
    "relu": (lambda b, x: b.Relu(x), ()),
    "softsign": (lambda b, x: b.Div(x, b.Add(b.Abs(x), 1.0)), ()),
    "softplus": (
        lambda b, x: b.Add(b.Relu(x), b.Log(b.Add(b.Exp(b.Neg(b.Abs(x))), 1.0))),
        (),
    ),
    "affine": (lambda b, x, alpha, beta: b.Add(b.Mul(x, alpha), beta), (1.0, 0.0)),
    "leakyrelu": (lambda b, x, alpha: b.Where(b.Less(x, 0.0), b.Mul(x, alpha), x), (0.01,)),
    "thresholdedrelu": (
        lambda b, x, alpha: b.Where(b.Greater(x, alpha), x, b.like(0.0, x)),
        (1.0,),
    ),
    "scaledtanh": (lambda b, x, alpha, beta: b.Mul(b.Tanh(b.Mul(x, beta)), alpha), (1.0, 1.0)),
    "hardsigmoid": (
        lambda b, x, alpha, beta: b.Clip(b.Add(b.Mul(x, alpha), beta), 0.0, 1.0),
        (0.2, 0.5),
    ),
    "elu": (
        lambda b, x, alpha: b.Where(
            b.Greater(x, 0.0), x, b.Mul(b.Sub(b.Exp(b.Min(x, b.like(0.0, x))), 1.0), alpha)
        ),
        (1.0,),
    ),
}
